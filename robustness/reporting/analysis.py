"""Everything that is made of kept predictions, without running a model again."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from robustness.corruptions import CORRUPTIONS
from robustness.data.benchmarks import IN_MCE, PERTURBATIONS, SINGLE
from robustness.reporting.comparison import BY_NAME, differences, verified
from robustness.reporting.published import published_pairs
from robustness.reporting.report import read_report
from robustness.rules import statistics
from robustness.rules.metrics import (
    alexnet,
    alexnet_flips,
    cells_of,
    corruptions_of,
    mean_errors,
)
from robustness.rules.results import Report, Result
from robustness.running import predictions
from robustness.running.predictions import Table
from vit_ls.config import ConfigError
from vit_ls.style import markdown_table


@dataclass(frozen=True)
class Line:
    """One number of the analysis.

    Attributes:
        benchmark: Name of the row of benchmarks.
        cell: Cell, corruption or family; empty for the whole benchmark.
        name: What it is.
        value: In percent, or what its name says.
        low: Lower end of its 95 % interval.
        high: Upper end.
        note: What must stand beside it.
    """

    benchmark: str
    cell: str
    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


class Run:
    """A report with its predictions.

    Args:
        folder: Output folder of a run.
        report: Of that run; None to read it there.
    """

    def __init__(self, folder: Path, report: Report | None = None) -> None:
        self.folder = folder
        self.report: Report = report or read_report(folder / "report.json")

    @classmethod
    def at(cls, path: Path) -> "Run":
        """The run of a folder, or of a report in its folder."""
        return cls(path) if path.is_dir() else cls(path.parent, read_report(path))

    def tables(self, result: Result) -> dict[str, Table]:
        """The predictions of the whole cells of a result.

        Raises:
            ConfigError: They are missing, damaged or of another run.
        """
        return {c: self.table(result, c) for c in result.cells if result.whole(c) is not None}

    def table(self, result: Result, cell: str) -> Table:
        """The predictions of one whole cell.

        Raises:
            ConfigError: They are missing, damaged or of another run.
        """
        counts = result.whole(cell)
        assert counts is not None
        table = predictions.read(self.folder, result.benchmark, cell)
        where = f"{self.folder}: the predictions of {result.benchmark} {cell} are of another run"
        if (len(table.names), int(table.right.sum())) != (counts["images"], counts["top1"]):
            raise ConfigError(
                f"{where}: {int(table.right.sum())}/{len(table.names)} right, "
                f"the report has {counts['top1']}/{counts['images']}."
            )
        if "flips" in counts and (table.flips is None or table.flips.sum() != counts["flips"]):
            raise ConfigError(f"{where}: they have not the {counts['flips']} flips of the report.")
        return table


def analyse(run: Run) -> list[Line]:
    """Calibration, response-rate curve, bootstrap intervals, families, effective robustness."""
    lines: list[Line] = []
    for result in run.report.results:
        if result.numbers == "unknown":
            continue  # its images have no class to be right about
        tables = run.tables(result)
        if result.numbers == "flips":
            lines += _of_flips(result, tables)
            continue
        for cell in [c for c in tables if "/" not in c]:
            lines += _of_cell(result, cell, tables[cell])
        lines += _lost_to_attacks(result, tables)
        if corruptions_of(result):
            lines += _of_corruptions(result, tables)
        if result.numbers == "in9":
            lines += _background_gap(result, tables)
    return lines + list(_effective(run.report))


def compare_pairs(first: Run, second: Run) -> list[Line]:
    """Paired tests of two runs, cell by cell, on the same images.

    A cell whose images differ is named, with no number.
    """
    lines = []
    for result in first.report.results:
        other = second.report.result(result.benchmark)
        if other is None or result.numbers == "unknown":
            continue
        both = [first.report, second.report]
        differ = differences(both, result.benchmark, transform=False)
        how = "" if verified(both, result.benchmark) else f"; {BY_NAME}"
        ours, theirs = first.tables(result), second.tables(other)
        for cell in [c for c in ours if c in theirs]:
            a, b = ours[cell], theirs[cell]
            if differ or a.names != b.names or not np.array_equal(a.label, b.label):
                note = f"withheld: other {', '.join(differ) or 'images'}"
                lines.append(Line(result.benchmark, cell, "McNemar p", None, note=note))
                continue
            if a.flips is not None and b.flips is not None:
                counts = result.whole(cell) or {}
                steps = counts["comparisons"] / counts["images"]
                less = [(a.flips - b.flips) / steps]
                found = statistics.bootstrap(less, [100.0], paired=True)
                name = "difference of flip probability"
                lines.append(Line(result.benchmark, cell, name, *found, note=how[2:]))
                continue
            test = statistics.mcnemar(a.right, b.right)
            note = f"right alone: {test.first_alone} and {test.second_alone}{how}"
            lines.append(Line(result.benchmark, cell, "McNemar p", test.p, note=note))
            gain = [a.right.astype(float) - b.right.astype(float)]
            found = statistics.bootstrap(gain, [100.0], paired=True)
            lines.append(Line(result.benchmark, cell, "difference of top-1", *found, note=how[2:]))
    return lines


def _of_cell(result: Result, cell: str, table: Table) -> Iterator[Line]:
    confidence, right = table.confidence, table.right
    few = f"withheld: fewer than {statistics.BIN} images in two bins"
    for name, as_scripts in (
        ("RMS calibration error, as the A and R scripts print it", True),
        ("RMS calibration error, all bins", False),
    ):
        value = statistics.calibration_error(confidence, right, as_scripts=as_scripts)
        yield Line(result.benchmark, cell, name, value, note=few if value is None else "")
    yield Line(result.benchmark, cell, "AURRA", statistics.aurra(confidence, right))


def _lost_to_attacks(result: Result, tables: dict[str, Table]) -> Iterator[Line]:
    """Clean top-1 less robust top-1, on the same images."""
    for cell in [cell for cell in result.attacks if cell in tables and SINGLE[0] in tables]:
        lost = tables[SINGLE[0]].right.astype(float) - tables[cell].right
        found = statistics.bootstrap([lost], [100.0], paired=True)
        note = f"{result.attacks[cell]}; bootstrap over images"
        yield Line(result.benchmark, cell, "top-1 lost to the attack", *found, note=note)


def _of_flips(result: Result, tables: dict[str, Table]) -> Iterator[Line]:
    """Intervals of the flip probabilities and of the mean flip rate."""
    shares = {}
    for cell, table in tables.items():
        counts = result.whole(cell)
        if counts is not None and table.flips is not None:
            shares[cell] = table.flips / (counts["comparisons"] / counts["images"])
            found = statistics.bootstrap([shares[cell]], [100.0], paired=True)
            note = "bootstrap over videos"
            yield Line(result.benchmark, cell, "flip probability", *found, note=note)
    if all(cell in shares for cell in PERTURBATIONS):
        weights = [100 / alexnet_flips()[cell] / len(PERTURBATIONS) for cell in PERTURBATIONS]
        paired = len({tables[cell].names for cell in PERTURBATIONS}) == 1
        cells = [shares[cell] for cell in PERTURBATIONS]
        found = statistics.bootstrap(cells, weights, paired=paired)
        yield Line(result.benchmark, "", "mFR", *found, note="bootstrap over videos")


def _of_corruptions(result: Result, tables: dict[str, Table]) -> Iterator[Line]:
    errors = mean_errors(result)
    families: dict[str, list[str]] = {}
    for name in errors:
        if name in CORRUPTIONS:
            families.setdefault(CORRUPTIONS[name].group, []).append(name)
    for family, names in families.items():
        mean = fmean(errors[name] for name in names)
        yield Line(result.benchmark, family, "mean error", mean, note=", ".join(names))
    required = list(dict.fromkeys(c.split("/")[0] for c in result.required if "/" in c))
    if not all(name in errors for name in required):
        return
    yield _interval(result, tables, required, "mean error", dict.fromkeys(required, 1.0))
    if result.numbers == "mce":
        scales = {name: 1 / alexnet().mean[name] for name in IN_MCE}
        yield _interval(result, tables, list(IN_MCE), "mCE", scales)


def _interval(
    result: Result,
    tables: dict[str, Table],
    corruptions: Sequence[str],
    name: str,
    scales: dict[str, float],
) -> Line:
    cells, weights = [], []
    names = set()
    for corruption in corruptions:
        own = cells_of(result, corruption)
        for cell in own:
            names.add(tables[cell].names)
            cells.append((~tables[cell].right).astype(float))
            weights.append(100 * scales[corruption] / len(own) / len(corruptions))
    found = statistics.bootstrap(cells, weights, paired=len(names) == 1)
    note = "bootstrap over images" + ("" if len(names) == 1 else ", each cell by itself")
    return Line(result.benchmark, "", name, *found, note=note)


def _background_gap(result: Result, tables: dict[str, Table]) -> Iterator[Line]:
    if not {"mixed_same", "mixed_rand"} <= tables.keys():
        return
    same, rand = tables["mixed_same"], tables["mixed_rand"]
    cells = [same.right.astype(float), rand.right.astype(float)]
    paired = same.names == rand.names
    found = statistics.bootstrap(cells, [100.0, -100.0], paired=paired)
    yield Line(result.benchmark, "", "BG-gap", *found, note="bootstrap over images")


def _effective(report: Report) -> Iterator[Line]:
    """Accuracy beyond what the clean one lets expect (arXiv:2007.00644)."""
    val = report.result("imagenet-val")
    clean = val.whole("all") if val else None
    if clean is None:
        return
    share = clean["top1"] / clean["images"]
    for result in report.results:
        counts = result.whole("all")
        pairs = published_pairs(result.benchmark)
        if counts is None or len(pairs) < 5 or not 0 < share < 1:
            continue
        line = statistics.logit_line(*np.array(pairs).T / 100)
        value = counts["top1"] / counts["images"] - statistics.on_line(share, line)
        note = f"against a line through {len(pairs)} models of timm's table"
        yield Line(result.benchmark, "all", "effective robustness", 100 * value, note=note)


def to_markdown(lines: Sequence[Line], title: str) -> str:
    """A table for people."""
    rows = []
    for line in lines:
        digits = 2 if _of_percent(line) else 4
        value = "-" if line.value is None else f"{line.value:.{digits}f}"
        interval = "" if line.low is None else f"{line.low:.2f} to {line.high:.2f}"
        rows.append([line.benchmark, line.cell, line.name, value, interval, line.note])
    head = ("benchmark", "cell", "number", "%, or as named", "95 % interval", "note")
    return f"## {title}\n\n{markdown_table(head, rows)}\n"


def _of_percent(line: Line) -> bool:
    """Whether a number is a percentage; the others are p values, losses and temperatures."""
    return not (line.name.endswith(" p") or line.name.startswith(("NLL", "Brier", "temperature")))


def per_class_csv(run: Run) -> str:
    """Right and all images of each class in each cell, and over all cells of a corruption."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["benchmark", "cell", "class", "right", "images", "percent"])
    for result in [r for r in run.report.results if r.numbers != "unknown"]:
        for cell, table in run.tables(result).items():
            for label, (right, images) in statistics.per_class(table.label, table.right).items():
                share = round(100 * right / images, 4)
                writer.writerow([result.benchmark, cell, label, right, images, share])
    return text.getvalue()


def to_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Plain values."""
    return [line.__dict__ for line in lines]
