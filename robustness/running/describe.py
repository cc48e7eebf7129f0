"""What a run would do, without doing it."""

import time
from pathlib import Path

import torch

from robustness.rules.results import CellResult
from robustness.running.cache import Cache
from robustness.running.loop import Loop
from robustness.running.plan import Request, plan
from robustness.running.run import new_report, size_of_scores
from robustness.running.subject import Subject


def seconds_per_image(subject: Subject, loop: Loop) -> float:
    """Time of the model alone for one image of a batch, measured once."""
    one = subject.example
    batch = one.expand(loop.batch_size, *one.shape).to(loop.ranks.device)
    with torch.inference_mode():
        loop.model(batch[:1])
        began = time.perf_counter()
        loop.model(batch).sum().item()
    return (time.perf_counter() - began) / loop.batch_size


def describe(
    request: Request, subject: Subject, loop: Loop, cache: Cache, output: Path | None = None
) -> list[str]:
    """What a run would do, in lines: images, transforms, the model's hash, what it costs."""
    parameters = sum(p.numel() for p in subject.model.parameters())
    lines = [
        f"model {subject.name}, {parameters / 1e6:.2f} M parameters, "
        f"{subject.origin} weights{subject.which and f' ({subject.which})'}",
        f"weights sha256 {subject.weights}",
    ]
    to_do = attacked = 0
    for planned in plan(request, subject):
        cells = list(planned.cells(subject, loop.dtype))
        kept = planned.kept_in(cache)
        cached = [c for c in cells if c.listing.samples and kept.load(c.key, planned.answer)]
        images = sum(len(cell.listing.samples) for cell in cells)
        row = planned.benchmark
        to_do += sum(
            len(cell.listing.samples) * max(1, row.frames_of(cell.source))
            for cell in cells
            if cell not in cached and cell.attacked is None
        )
        attacked += sum(cell.attacked is not None and cell not in cached for cell in cells)
        result = planned.result()
        result.cells = {cell.name: CellResult({}, cell.gaps, cell.notes) for cell in cells}
        lines += [
            f"{planned.benchmark.name}: {images} images in {len(cells)} cells "
            f"({len(cached)} cached) of {planned.source.folder}; {result.label}",
            f"  transform: {result.transform}",
            *(f"  gap: {gap}" for gap in result.all_gaps()),
            *(f"  note: {note}" for note in result.all_notes()),
        ]
    absent = new_report(request, subject, loop.dtype).absent
    lines += [f"{name}: {where}" for name, where in absent.items()]
    if loop.keep and output is not None:
        lines.append(size_of_scores(list(plan(request, subject)), subject, loop, output))
    rate = seconds_per_image(subject, loop)
    lines.append(
        f"cost: {to_do} images to evaluate, about {to_do * rate / 60:.1f} min of the model alone "
        f"at {rate * 1000:.2f} ms each on {loop.ranks.device}"
        + (f", without {attacked} attacks" if attacked else "")
    )
    return lines
