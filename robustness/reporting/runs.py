"""A run on disk, its predictions, and the numbers that are made of them as files."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustness.reporting.report import read_report
from robustness.rules import statistics
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


_PLAIN = ("NLL", "Brier", "temperature", "classes")


def _of_percent(line: Line) -> bool:
    """Whether a number is a percentage; the others are p values, losses and temperatures."""
    return not (
        line.name.endswith(" p") or line.name.startswith(("NLL", "Brier", "temperature", "classes"))
    )


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
