"""The one place that knows layouts: where a cell lies and how its folders name the classes."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from robustness.corruptions import CORRUPTIONS
from robustness.data import labels
from robustness.data.benchmarks import Benchmark
from robustness.data.gaps import Gap, Kind, some
from robustness.data.listing import Listing, Sample
from robustness.errors import shown
from vit_ls.config import ConfigError

IMAGE_TYPES = (".jpeg", ".jpg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
VIDEO_TYPES = (".mp4",)
JUNK = ("@eaDir", "__MACOSX", "Thumbs.db", "desktop.ini", "lost+found")
"""What machines leave in folders; so are all names that begin with a dot."""

OUTSIDE = -1
"""Class of a folder that the benchmark has and its rule leaves out."""

Classify = Callable[[str], int | None]
"""Class of a folder's name; None where it names none."""


@dataclass(frozen=True)
class Naming:
    """How folders name the classes.

    Attributes:
        of: Makes the function that reads names, given the benchmark's folder and the cell's.
        folders: Class folders of a complete cell.
    """

    of: Callable[[Path, Path], Classify | None]
    folders: int


def find(benchmark: Benchmark, root: Path) -> Path | None:
    """The benchmark's folder under `root`, or None."""
    return next((root / f for f in benchmark.folders if (root / f).is_dir()), None)


def cell_folder(benchmark: Benchmark, folder: Path, cell: str) -> Path | None:
    """The folder that holds the class folders of `cell`, or None."""
    place = _PLACES[benchmark.layout](folder, cell)
    return place if place is not None and place.is_dir() else None


def list_cell(benchmark: Benchmark, folder: Path, cell: str) -> Listing:
    """The images of one cell; what does not belong is a problem, never left out in silence."""
    place = cell_folder(benchmark, folder, cell)
    if place is None:
        return Listing((), (Gap(Kind.NO_FOLDER, "no folder"),))
    found = _Found(_types(benchmark))
    named = naming(benchmark)
    classify = named.of(folder, place)
    if classify is None:
        text = f"not {named.folders} class folders, so that their order does not name the classes"
        return Listing((), (Gap(Kind.STRANGE_CLASS, text),))
    loose = 0
    for entry in _entries(place, found):
        if not entry.is_dir():
            if found.takes(entry.name):
                loose += 1
                found.stray.append(entry.name)
            continue
        target = classify(entry.name)
        if target is None:
            found.strange.append(entry.name)
        elif target == OUTSIDE:
            found.passed["class folders outside the benchmark's rule"] += 1
        else:
            _read_class(entry, target, found)
    flat = bool(loose) and not found.samples
    return Listing(tuple(found.samples), tuple(_problems(benchmark, found, flat)), found.notes())


def naming(benchmark: Benchmark) -> Naming:
    """How the benchmark's folders name its classes."""
    if benchmark.classes == "sorted":
        return Naming(partial(_of_order, benchmark.num_classes[0]), benchmark.num_classes[0])
    if isinstance(benchmark.classes, str):
        return _NAMINGS[benchmark.classes]
    index = {name: place for place, name in enumerate(benchmark.classes)}
    return Naming(lambda *_: index.get, len(index))


@dataclass
class _Found:
    types: tuple[str, ...]
    samples: list[Sample] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    unwritable: list[str] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)

    def takes(self, name: str) -> bool:
        return name.lower().endswith(self.types)

    def notes(self) -> tuple[str, ...]:
        return tuple(f"passed over: {count} {what}" for what, count in sorted(self.passed.items()))


def _entries(folder: str | Path, found: _Found) -> Iterator[os.DirEntry[str]]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if is_junk(entry.name):
            found.passed[entry.name if entry.name in JUNK else "hidden names"] += 1
        elif shown(entry.name) != entry.name:
            found.unwritable.append(f"{Path(folder).name}/{shown(entry.name)}")
        else:
            yield entry


def _read_class(folder: os.DirEntry[str], target: int, found: _Found) -> None:
    for entry in _entries(folder.path, found):
        key = f"{folder.name}/{entry.name}"
        if found.takes(entry.name) and not entry.is_dir():
            found.samples.append(Sample(key, target, Path(entry.path)))
        elif entry.is_dir():
            deeper = [p.relative_to(folder.path) for p in Path(entry.path).rglob("*")]
            found.stray += [f"{folder.name}/{shown(str(p))}" for p in deeper if found.takes(p.name)]
        else:
            found.stray.append(key)


def _problems(benchmark: Benchmark, found: _Found, flat: bool) -> Iterator[Gap]:
    for name in found.strange:
        yield Gap(Kind.STRANGE_CLASS, f"{name} is no class folder of {benchmark.name}")
    if found.unwritable:
        text = f"{len(found.unwritable)} names that are not UTF-8, which no report can hold"
        yield Gap(Kind.NOT_UTF8, f"{text}: {some(found.unwritable)}")
    if flat:
        text = f"{len(found.stray)} images lie flat, without class folders"
        yield Gap(Kind.FLAT, f"{text}: {some(found.stray)}")
    elif found.stray:
        text = f"{len(found.stray)} files that no rule takes (loose, nested or of an unknown type)"
        yield Gap(Kind.STRAY, f"{text}: {some(found.stray)}")


def is_junk(name: str) -> bool:
    """Whether a name is none of a benchmark: hidden, or left by a machine."""
    return name in JUNK or name.startswith(".")


def _types(benchmark: Benchmark) -> tuple[str, ...]:
    return VIDEO_TYPES if benchmark.frames else IMAGE_TYPES


_GROUPS = ("", *dict.fromkeys(row.group for row in CORRUPTIONS.values()))


def _severity_folder(folder: Path, cell: str) -> Path | None:
    corruption, severity = cell.split("/")
    for group in _GROUPS:
        base = folder / group / corruption
        if (base / severity).is_dir():
            return base / severity
        if base.is_dir():
            # C-bar's severities are decimals ("2.30"): the k-th of five, by value.
            steps = sorted((p for p in base.iterdir() if _is_number(p.name)), key=_number_of)
            whole = all(step.name.isdigit() for step in steps)
            return steps[int(severity) - 1] if len(steps) == 5 and not whole else None
    return None


def _perturbation_folder(folder: Path, cell: str) -> Path:
    places = (folder / group / cell for group in _GROUPS)
    return next((place for place in places if place.is_dir()), folder / cell)


def _is_number(name: str) -> bool:
    return re.fullmatch(r"\d+(\.\d+)?", name) is not None


def _number_of(path: Path) -> float:
    return float(path.name)


_PLACES: dict[str, Callable[[Path, str], Path | None]] = {
    "classes": lambda folder, _: folder,
    "cells": lambda folder, cell: folder / cell,
    "in9": lambda folder, cell: folder / cell / "val",
    "objectnet": lambda folder, _: folder / "images",
    "corruptions": _severity_folder,
    "videos": _perturbation_folder,
}


def _of_wnid(name: str) -> int | None:
    return labels.wnid_to_index().get(name)


def _of_v2(name: str) -> int | None:
    # Sorted as strings, as ImageFolder does, "10" would come before "2": the name is the class.
    return int(name) if name.isdecimal() and int(name) < 1000 else _of_wnid(name)


def _of_subset(subset: str, name: str) -> int | None:
    index = _of_wnid(name)
    return index if index in labels.subset_indices(subset) else None


def _of_in9(name: str) -> int | None:
    match = re.match(r"0?([0-8])(?:_|$)", name)
    return int(match[1]) if match else None


def _of_order(count: int, _: Path, place: Path) -> Classify | None:
    """The k-th folder by name is class k, as ImageFolder has it: only where all are there."""
    names = sorted(e.name for e in os.scandir(place) if e.is_dir() and not is_junk(e.name))
    return {name: k for k, name in enumerate(names)}.get if len(names) == count else None


@lru_cache(maxsize=2)
def _of_objectnet(folder: Path, _: Path) -> Classify:
    """ObjectNet brings its mapping: folder -> label -> names of ImageNet's classes."""
    try:
        files = [folder / "mappings" / f"{name}.json" for name in _OBJECTNET_FILES]
        label_of, names_of = (json.loads(file.read_text()) for file in files)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"imagenet-objectnet needs {folder}/mappings as released: {error}."
        ) from None
    targets = labels.objectnet_targets(names_of)
    known = {name: targets.get(label, OUTSIDE) for name, label in label_of.items()}
    return known.get


_OBJECTNET_FILES = ("folder_to_objectnet_label", "objectnet_to_imagenet_1k")

_NAMINGS = {
    "wnid": Naming(lambda *_: _of_wnid, 1000),
    "v2": Naming(lambda *_: _of_v2, 1000),
    "a": Naming(lambda *_: partial(_of_subset, "a"), 200),
    "r": Naming(lambda *_: partial(_of_subset, "r"), 200),
    "in9": Naming(lambda *_: _of_in9, 9),
    "objectnet": Naming(_of_objectnet, 113),
}
