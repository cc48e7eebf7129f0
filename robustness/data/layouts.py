"""Finds a benchmark's folder and lists the images of a cell with their classes."""

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robustness.corruptions import CORRUPTIONS
from robustness.data import labels
from robustness.data.benchmarks import Benchmark

GENERATED_MARK = "GENERATED.txt"
"""File that `python -m robustness.corrupt` leaves in the folders it makes."""

NO_FOLDER = "no folder"
IMAGE_TYPES = (".jpeg", ".jpg", ".png")
_GROUPS = ("", *dict.fromkeys(row.group for row in CORRUPTIONS.values()))


@dataclass(frozen=True)
class Sample:
    """One image.

    Attributes:
        key: Name within its cell, "class folder/file name".
        target: Index of its class.
        path: File, or None where the image is not one.
    """

    key: str
    target: int
    path: Path | None


@dataclass(frozen=True)
class Listing:
    """The images of a cell, sorted by key, and what is wrong with its folder."""

    samples: tuple[Sample, ...]
    problems: tuple[str, ...] = ()

    def digest(self) -> str:
        """Changes when an image comes, goes or is renamed."""
        names = "\n".join(sample.key for sample in self.samples)
        return hashlib.sha256(names.encode()).hexdigest()

    def subset(self, count: int) -> "Listing":
        """The `count` images whose SHA-256 of the key is least, in the order of the keys.

        The choice depends on names alone, is the same in every cell of a benchmark, and a smaller
        subset lies within a larger one.
        """
        drawn = sorted(self.samples, key=lambda s: hashlib.sha256(s.key.encode()).digest())[:count]
        return Listing(tuple(sorted(drawn, key=lambda s: s.key)), self.problems)


def find(benchmark: Benchmark, root: Path) -> Path | None:
    """The benchmark's folder under `root`, or None."""
    return next((root / f for f in benchmark.folders if (root / f).is_dir()), None)


def list_cell(benchmark: Benchmark, folder: Path, cell: str) -> Listing:
    """The images of one cell; what does not belong is a problem, never left out in silence."""
    place = cell_folder(benchmark, folder, cell)
    if place is None:
        return Listing((), (NO_FOLDER,))
    classify = _CLASSIFIERS.get(benchmark.layout, _CLASSIFIERS["wnid"])
    samples: list[Sample] = []
    problems: list[str] = []
    for entry in sorted(os.scandir(place), key=lambda e: e.name):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        target = classify(entry.name)
        if target is None:
            problems.append(f"{entry.name} is no class folder of {benchmark.name}")
            continue
        samples.extend(
            Sample(f"{entry.name}/{name}", target, Path(entry.path, name))
            for name in sorted(os.listdir(entry.path))  # noqa: PTH208 - three million names
            if name.lower().endswith(IMAGE_TYPES) and not name.startswith(".")
        )
    return Listing(tuple(samples), tuple(problems))


def cell_folder(benchmark: Benchmark, folder: Path, cell: str) -> Path | None:
    """The folder that holds the class folders of `cell`, or None."""
    if benchmark.layout == "corruptions":
        corruption, severity = cell.split("/")
        return _severity_folder(folder, corruption, int(severity))
    place = folder / cell / "val" if benchmark.layout == "in9" else folder
    return place if place.is_dir() else None


def _severity_folder(folder: Path, corruption: str, severity: int) -> Path | None:
    for group in _GROUPS:
        base = folder / group / corruption
        if (base / str(severity)).is_dir():
            return base / str(severity)
        if base.is_dir():
            # C-bar's severities are decimals ("2.30"): the k-th of five, by value.
            steps = sorted((p for p in base.iterdir() if _is_number(p.name)), key=_number_of)
            return steps[severity - 1] if len(steps) == 5 and not _are_whole(steps) else None
    return None


def _is_number(name: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", name) is not None


def _number_of(path: Path) -> float:
    return float(path.name)


def _are_whole(steps: list[Path]) -> bool:
    return all(step.name.isdigit() for step in steps)


def _of_wnid(name: str) -> int | None:
    return labels.wnid_to_index().get(name)


def _of_v2(name: str) -> int | None:
    # Sorted as strings, as ImageFolder does, "10" would come before "2": the name is the class.
    return int(name) if name.isdecimal() and int(name) < 1000 else _of_wnid(name)


def _of_subset(subset: str) -> Callable[[str], int | None]:
    def classify(name: str) -> int | None:
        index = _of_wnid(name)
        return index if index in labels.subset_indices(subset) else None

    return classify


def _of_in9(name: str) -> int | None:
    match = re.match(r"0?([0-8])(?:_|$)", name)
    return int(match[1]) if match else None


_CLASSIFIERS: dict[str, Callable[[str], int | None]] = {
    "wnid": _of_wnid,
    "v2": _of_v2,
    "a": _of_subset("a"),
    "r": _of_subset("r"),
    "in9": _of_in9,
}
