"""What a run found: counts of each cell and what is missing. `metrics` makes numbers of it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from robustness.data.gaps import gather
from robustness.rules.judging import Counts


@dataclass
class CellResult:
    """Counts of one cell and the reasons why they are not the whole cell."""

    counts: Counts = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)


@dataclass
class Result:
    """One benchmark under one protocol.

    Attributes:
        benchmark: Name of the row.
        folder: Folder under the data root.
        label: What must stand beside every number: which files, which subset.
        transform: How images were prepared.
        images: Images that each cell must have counted.
        required: Cells that a complete benchmark has.
        cells: What was found.
        gaps: What is wrong with the benchmark as a whole.
    """

    benchmark: str
    folder: str
    label: str
    transform: str
    images: int
    required: list[str]
    cells: dict[str, CellResult] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)

    def whole(self, cell: str) -> Counts | None:
        """The counts of a cell that lacks nothing, or None."""
        found = self.cells.get(cell)
        return found.counts if found and not found.gaps and not self.gaps else None

    def all_gaps(self) -> list[str]:
        """Everything that is missing, the same lack of many cells in one line."""
        return self.gaps + gather({name: cell.gaps for name, cell in self.cells.items()})


@dataclass
class Report:
    """A whole run. Holds nothing that differs between two runs of the same question.

    Attributes:
        model: Name, weights, origin of the weights, dtype and options of the model.
        results: By benchmark.
        absent: Asked-for or known benchmarks without a folder, and where it was looked for.
        incomplete: Whether what was asked for is not all there.
    """

    model: dict[str, str]
    results: list[Result] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    incomplete: bool = False

    def result(self, benchmark: str) -> Result | None:
        """The result of one benchmark, or None."""
        return next((r for r in self.results if r.benchmark == benchmark), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Report":
        """Inverse of `to_dict`.

        Raises:
            KeyError, TypeError: It is no report.
        """
        results = [
            Result(**{**r, "cells": {name: CellResult(**c) for name, c in r["cells"].items()}})
            for r in content["results"]
        ]
        return cls(content["model"], results, content["absent"], content["incomplete"])
