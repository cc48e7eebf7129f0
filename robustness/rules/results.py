"""What a run found: counts of each cell and what is missing. `metrics` makes numbers of it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from robustness.data.gaps import Gap, Kind, gather
from robustness.rules.judging import Counts

FORMAT = 3
"""Of report.json; another one is refused."""


@dataclass
class CellResult:
    """Counts of one cell, the reasons why they are not the whole cell, and what was passed over."""

    counts: Counts = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Result:
    """One benchmark under one protocol.

    Attributes:
        benchmark: Name of the row.
        numbers: What is made of the counts (`metrics`).
        folder: Folder under the data root.
        label: What must stand beside every number: which files, which subset.
        transform: How images were prepared, in words.
        identity: Digests of the transform ("" where nothing tells it from others), of the images'
            names and sizes and what made them, and of their bytes ("" where they were not read for
            it), and the number of images of each cell: two results with the same are comparable.
        images: Images that each cell must have counted.
        required: Cells that a complete benchmark has.
        cells: What was found.
        gaps: What is wrong with the benchmark as a whole.
        attacks: Cells that are the clean images under an attack, and the attack in words.
        libraries: What ran the attack of each of these cells, with its version.
    """

    benchmark: str
    numbers: str
    folder: str
    label: str
    transform: str
    identity: dict[str, str]
    images: int
    required: list[str]
    cells: dict[str, CellResult] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    attacks: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether the images are known by their bytes, not by names and sizes alone."""
        return bool(self.identity.get("contents"))

    def whole(self, cell: str) -> Counts | None:
        """The counts of a cell that lacks nothing, or None."""
        found = self.cells.get(cell)
        return found.counts if found and not found.gaps and not self.gaps else None

    def all_gaps(self) -> list[str]:
        """Everything that is missing, the same lack of many cells in one line."""
        return [gap.text for gap in self.gaps] + gather(
            {name: [gap.text for gap in cell.gaps] for name, cell in self.cells.items()}
        )

    def all_notes(self) -> list[str]:
        """Everything that was passed over, the same of many cells in one line."""
        return gather({name: cell.notes for name, cell in self.cells.items()})


@dataclass(frozen=True)
class Gate:
    """What became of a rule that the report must pass.

    Attributes:
        asked: The rule; it fails where what it says holds, or where nobody can tell.
        found: What was found.
        failed: Whether it failed.
    """

    asked: str
    found: str
    failed: bool


@dataclass
class Report:
    """A whole run. Holds nothing that differs between two runs of the same question.

    Attributes:
        model: Name, class, arguments, weights, origin of the weights, which of a checkpoint's they
            are, and dtype of the model.
        results: By benchmark.
        absent: Asked-for or known benchmarks without a folder, and where it was looked for.
        incomplete: Whether what was asked for is not all there.
        gates: Rules that it was held against.
    """

    model: dict[str, Any]
    results: list[Result] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    incomplete: bool = False
    gates: list[Gate] = field(default_factory=list)

    def result(self, benchmark: str) -> Result | None:
        """The result of one benchmark, or None."""
        return next((r for r in self.results if r.benchmark == benchmark), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        content = {"format": FORMAT} | asdict(self)
        if not self.gates:
            del content["gates"]
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Report":
        """Inverse of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: It is no report of this format.
        """
        if content["format"] != FORMAT:
            raise ValueError(f"format must be {FORMAT}, got {content['format']}.")
        results = [
            Result(
                **{
                    **result,
                    "cells": {name: _cell(cell) for name, cell in result["cells"].items()},
                    "gaps": _gaps(result["gaps"]),
                }
            )
            for result in content["results"]
        ]
        gates = [Gate(**gate) for gate in content.get("gates", [])]
        return cls(content["model"], results, content["absent"], content["incomplete"], gates)


def _cell(content: dict[str, Any]) -> CellResult:
    return CellResult(**{**content, "gaps": _gaps(content["gaps"])})


def _gaps(content: list[list[str]]) -> list[Gap]:
    return [Gap(Kind(kind), text) for kind, text in content]
