"""From a request to a report: plan the cells, take what is cached, evaluate the rest."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

import vit_ls
from robustness.data import layouts
from robustness.data.benchmarks import Benchmark
from robustness.data.images import CellImages
from robustness.data.layouts import Listing
from robustness.data.sources import Places, Source
from robustness.errors import UsageError
from robustness.rules.metrics import metrics
from robustness.rules.protocols import Protocol, protocol_for
from robustness.rules.results import CellResult, Report, Result
from robustness.running.cache import Cache
from robustness.running.loop import Loop, Outcome, run_cell
from robustness.running.subject import Subject

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        benchmarks: Rows of the table.
        places: Where their images come from.
        named: Whether the user named the benchmarks, so that an absent one is a gap.
        max_images: Images of each cell at most, or None.
    """

    benchmarks: Sequence[Benchmark]
    places: Places
    named: bool = False
    max_images: int | None = None


@dataclass(frozen=True)
class PlannedCell:
    """One cell, listed and checked.

    Attributes:
        name: Of the cell.
        listing: Its images, already the subset where one is asked for.
        gaps: Why it cannot be whole.
        key: Of its counts in the cache.
    """

    name: str
    listing: Listing
    gaps: list[str]
    key: dict[str, str]


@dataclass(frozen=True)
class PlannedBenchmark:
    """One benchmark that was found, with the transform of its images."""

    benchmark: Benchmark
    source: Source
    protocol: Protocol
    wanted: int

    def cells(self, subject: Subject, dtype: torch.dtype) -> Iterator[PlannedCell]:
        """List the cells one after the other: all at once would be millions of names."""
        row = self.benchmark
        for name in self.source.cells():
            listing = self.source.listing(name)
            gaps = list(listing.problems)
            found = len(listing.samples)
            if found != row.images and layouts.NO_FOLDER not in gaps:
                gaps.append(f"{found} images of {row.images}")
            chosen = listing if self.wanted == row.images else listing.subset(self.wanted)
            key = {
                "weights": subject.weights,
                "model": subject.name,
                "benchmark": row.name,
                "cell": name,
                "rule": row.rule,
                "transform": self.protocol.description,
                "dtype": str(dtype),
                "images": chosen.digest(),
                "made": self.source.made,
                "version": vit_ls.__version__,
            }
            yield PlannedCell(name, chosen, gaps, key)

    def result(self) -> Result:
        """The result before any cell is counted."""
        label = self.source.label
        if self.wanted < self.benchmark.images:
            label += f"; subset of {self.wanted} images of {self.benchmark.images} in each cell"
        return Result(
            self.benchmark.name,
            self.source.folder.name,
            label,
            self.protocol.description,
            self.wanted,
            list(self.benchmark.cells),
            gaps=self.source.problems(),
        )


def plan(request: Request, subject: Subject) -> Iterator[PlannedBenchmark]:
    """The benchmarks that are there, with the subject's transforms.

    Raises:
        UsageError: The model has another number of classes than a benchmark needs.
    """
    for row in request.benchmarks:
        source = request.places.source(row)
        if source is None:
            continue
        if subject.num_classes != row.num_classes:
            raise UsageError(
                f"{row.name} needs a model of {row.num_classes} classes, "
                f"got {subject.name} with {subject.num_classes}."
            )
        protocol = protocol_for(row.protocol, subject.data_config, source.image_size)
        wanted = min(request.max_images or row.images, row.images)
        yield PlannedBenchmark(row, source, protocol, wanted)


def run(request: Request, subject: Subject, loop: Loop, cache: Cache) -> Report:
    """Evaluate everything that is found; the report says what is not.

    Every process of the team must call it; the first one reads and writes the cache.
    """
    report = new_report(request, subject, loop.dtype)
    for planned in plan(request, subject):
        result = planned.result()
        for cell in planned.cells(subject, loop.dtype):
            result.cells[cell.name] = _cell_result(planned, cell, subject, loop, cache)
        report.results.append(result)
    asked_in_vain = request.named and bool(report.absent)
    withheld = any(m.value is None and not m.optional for m in metrics(report))
    report.incomplete = asked_in_vain or withheld or any(r.all_gaps() for r in report.results)
    return report


def new_report(request: Request, subject: Subject, dtype: torch.dtype) -> Report:
    """A report without results: the model, and the benchmarks that are not there."""
    absent = {
        row.name: request.places.looked(row)
        for row in request.benchmarks
        if request.places.source(row) is None
    }
    model = {
        "name": subject.name,
        "weights": subject.weights,
        "origin": subject.origin,
        "dtype": str(dtype).removeprefix("torch."),
    }
    return Report(model, absent=absent)


def _cell_result(
    planned: PlannedBenchmark, cell: PlannedCell, subject: Subject, loop: Loop, cache: Cache
) -> CellResult:
    if not cell.listing.samples:
        return CellResult({}, cell.gaps or ["no images"])
    first = loop.team.rank == 0
    counts = loop.team.from_first(cache.load(cell.key) if first else None)
    where = f"{planned.benchmark.name} {cell.name}"
    if isinstance(counts, dict):
        _logger.info("%s: cached", where)
        return CellResult(counts, cell.gaps)
    began = time.monotonic()
    outcome = _evaluate(planned, cell, subject, loop)
    took = time.monotonic() - began
    _logger.info("%s: %d images in %.1f s", where, outcome.counts.get("images", 0), took)
    if first and not outcome.gaps():
        cache.store(cell.key, outcome.counts)
    return CellResult(outcome.counts, cell.gaps + outcome.gaps())


def _evaluate(
    planned: PlannedBenchmark, cell: PlannedCell, subject: Subject, loop: Loop
) -> Outcome:
    images = CellImages(
        cell.listing.samples,
        partial(planned.source.read, cell=cell.name),
        planned.protocol.apply,
        channels=subject.data_config["input_size"][0],
        image_size=planned.source.image_size,
    )
    return run_cell(loop, images, planned.benchmark.rule)


def seconds_per_image(model: nn.Module, subject: Subject, loop: Loop) -> float:
    """Time of the model alone for one image of a batch, measured once."""
    size = (loop.batch_size, *subject.data_config["input_size"])
    batch = torch.zeros(size, device=loop.team.device)
    with torch.inference_mode():
        model(batch[:1])
        began = time.perf_counter()
        model(batch).sum().item()
    return (time.perf_counter() - began) / loop.batch_size


def describe(request: Request, subject: Subject, loop: Loop, cache: Cache) -> list[str]:
    """What a run would do, in lines: images, transforms, the model's hash, what it costs."""
    parameters = sum(p.numel() for p in subject.model.parameters())
    lines = [
        f"model {subject.name}, {parameters / 1e6:.2f} M parameters, {subject.origin} weights",
        f"weights sha256 {subject.weights}",
    ]
    to_do = 0
    for planned in plan(request, subject):
        cells = list(planned.cells(subject, loop.dtype))
        cached = [cell for cell in cells if cell.listing.samples and cache.load(cell.key)]
        images = sum(len(cell.listing.samples) for cell in cells)
        to_do += images - sum(len(cell.listing.samples) for cell in cached)
        result = planned.result()
        result.cells = {cell.name: CellResult({}, cell.gaps) for cell in cells}
        lines += [
            f"{planned.benchmark.name}: {images} images in {len(cells)} cells "
            f"({len(cached)} cached) of {planned.source.folder}; {result.label}",
            f"  transform: {result.transform}",
            *(f"  gap: {gap}" for gap in result.all_gaps()),
        ]
    absent = new_report(request, subject, loop.dtype).absent
    lines += [f"{name}: {where}" for name, where in absent.items()]
    rate = seconds_per_image(loop.model, subject, loop)
    lines.append(
        f"cost: {to_do} images to evaluate, about {to_do * rate / 60:.1f} min of the model alone "
        f"at {rate * 1000:.2f} ms each on {loop.team.device}"
    )
    return lines
