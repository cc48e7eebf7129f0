"""From a request to a report: plan the cells, take what is cached, evaluate the rest."""

import logging
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from robustness.data.gaps import Gap, Kind
from robustness.data.inputs import CellImages
from robustness.data.listing import digest
from robustness.files import link_atomically, write_atomically
from robustness.rules.metrics import metrics
from robustness.rules.results import CellResult, Report
from robustness.running import predictions
from robustness.running.cache import KEEP, Cache, Kept
from robustness.running.loop import Loop, run_cell
from robustness.running.plan import PlannedBenchmark, PlannedCell, Request, plan
from robustness.running.subject import Subject
from robustness.scores.files import Owner, encode, file_of, megabytes, write_classifier
from vit_ls.job import by_primary

_logger = logging.getLogger(__name__)

_ELSEWHERE_TOO = ("names", "sizes", "made", "fingerprint")
"""What tells images from others on another machine too, where times of modification do not."""

_CONTENTS = "images_contents"
"""The part of a cell's key that the bytes of its images decide."""


def run(
    request: Request, subject: Subject, loop: Loop, cache: Cache, output: Path | None = None
) -> Report:
    """Evaluate everything that is found; the report says what is not.

    Every process of the loop must call it; the first one reads and writes the cache.

    Args:
        request: What is asked.
        subject: The model.
        loop: How it is run.
        cache: Finished cells.
        output: Folder that takes the predictions of each cell, or None.
    """
    report = new_report(request, subject, loop.dtype)
    every = list(plan(request, subject))
    if output is not None and loop.keep:
        _logger.info("%s", size_of_scores(every, subject, loop, output))
        if loop.classifier is not None:
            by_primary(
                loop.ranks, partial(write_classifier, output, loop.classifier, subject.weights)
            )
    for planned in every:
        result = planned.result()
        data: list[str] = []
        contents: list[str] = []
        kept = planned.kept_in(cache)
        if planned.unknown:
            _logger.warning("%s: %s", planned.benchmark.name, planned.unknown)
        for cell in planned.cells(subject, loop.dtype):
            result.cells[cell.name] = _cell_result(planned, cell, subject, loop, kept, output)
            if cell.attacked is None:
                images = (cell.key.get(f"images_{what}", "") for what in _ELSEWHERE_TOO)
                data += [cell.name, *images]
                contents.append(cell.key.get(_CONTENTS, ""))
        result.identity["data"] = digest(data)
        result.identity["contents"] = digest(contents) if all(contents) else ""
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
        "class": subject.identity["class"],
        "arguments": subject.arguments,
        "weights": subject.weights,
        "origin": subject.origin,
        "which": subject.which,
        "dtype": str(dtype).removeprefix("torch."),
    }
    return Report(model, absent=absent)


def expected_report(request: Request, subject: Subject, dtype: torch.dtype) -> Report:
    """The report before any image is counted: every number has its name, and is withheld."""
    report = new_report(request, subject, dtype)
    for planned in plan(request, subject):
        result = planned.result()
        none = [Gap(Kind.NO_IMAGES, "not evaluated yet")]
        cells = [*planned.source.cells(), *result.attacks]
        result.cells = {name: CellResult(gaps=none) for name in cells}
        report.results.append(result)
    return report


def _cell_result(
    planned: PlannedBenchmark,
    cell: PlannedCell,
    subject: Subject,
    loop: Loop,
    cache: Cache,
    output: Path | None,
) -> CellResult:
    notes = cell.notes
    if not cell.listing.samples:
        return CellResult({}, cell.gaps or [Gap(Kind.NO_IMAGES, "no images")], notes)
    where = f"{planned.benchmark.name} {cell.name}"
    kept = by_primary(loop.ranks, lambda: cache.load(cell.key, planned.answer))
    gaps = cell.gaps
    stored = kept is not None
    if kept is not None:
        _logger.info("%s: cached", where)
    else:
        images = CellImages(
            cell.listing.samples,
            partial(planned.source.read, cell=cell.source),
            planned.protocol.pixels if cell.attacked else planned.protocol.apply,
            channels=subject.channels,
            image_size=planned.benchmark.image_size,
            frames=0 if cell.attacked else planned.benchmark.frames_of(cell.name),
        )
        outcome = run_cell(loop, images, cell.rule, cell.attacked)
        count = outcome.counts.get("images", 0)
        _logger.info(
            "%s: %d images in %.1f s, %.0f images/s, %.0f %% of it waiting for images",
            where, count, outcome.seconds, count / outcome.seconds, 100 * outcome.waiting,
        )  # fmt: skip
        content, scores = predictions.encode(outcome.table), b""
        if outcome.scores:
            of = Owner(planned.benchmark.name, cell.name, cell.rule, subject.weights,
                       outcome.table.digest)  # fmt: skip
            scores = encode(outcome.scores, of)
        kept = Kept(outcome.counts, content, predictions.suffix(), scores)
        gaps = gaps + outcome.gaps()
        stored = not outcome.gaps()
        if stored:
            finished = kept
            by_primary(loop.ranks, lambda: cache.store(cell.key, planned.answer, finished))
    if output is not None:
        name, written = planned.benchmark.name, kept
        file = predictions.file_of(output, name, cell.name, written.kind)
        by_primary(loop.ranks, lambda: write_atomically(file, written.content))
        target = file_of(output, name, cell.name)
        if stored and KEEP in cell.key and cache.folder is not None:
            source = cache.scores_of(cell.key)
            by_primary(loop.ranks, lambda: link_atomically(source, target))
        elif kept.scores:
            by_primary(loop.ranks, lambda: write_atomically(target, written.scores))
    return CellResult(kept.counts, gaps, notes)


def size_of_scores(
    every: Sequence[PlannedBenchmark], subject: Subject, loop: Loop, output: Path
) -> str:
    """What the scores of a run take, in a line."""
    images = sum(
        planned.wanted * (len(planned.source.cells()) + len(planned.attacks))
        for planned in every
        if planned.keep
    )
    width = subject.num_classes if "logits" in loop.keep else 0
    if loop.classifier is not None:
        width += loop.classifier.in_features
    there = next(folder for folder in (output, *output.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free / 1e6
    size = megabytes(images, width)
    return f"scores: at most {size:,.1f} MB in {output / 'scores'}, of {free:,.0f} MB free"
