"""What the slices of a session share: rows that are on disk at once, what failed, and the time."""

import csv
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

Row = dict[str, str]
FAILURES = ("slice", "case", "error")
DONE, POISONED = 0, 3
"""Status of a worker: all cases were taken or the time is up; the device does not answer any more,
and the next case needs another process."""


@dataclass(frozen=True)
class Plan:
    """What a session measures, and where it writes."""

    folder: Path
    device: str
    """"cuda", or "cpu" of a rehearsal."""
    sizes: tuple[int, ...]
    """Sides of images, in pixels."""
    dtypes: tuple[str, ...]
    """Of the kernels."""
    rehearse: bool = False

    def failed(self, slice_: str, case: str, error: str | BaseException) -> None:
        """Note what could not be measured, in one line."""
        if isinstance(error, BaseException):
            error = f"{type(error).__name__}: {error}"
        line = " ".join(error.split())[:300]
        sys.stdout.write(f"{slice_}: {case}: {line}\n")
        append(self.folder / "failed.csv", FAILURES, {"slice": slice_, "case": case, "error": line})


class Case(NamedTuple):
    """What is measured in one go, or fails in one."""

    name: str
    rows: Callable[[], Iterable[Row]]


class Slice(NamedTuple):
    """One question, with a file of rows."""

    title: str
    share: float
    """Of the time of a session; what a slice leaves is the others'."""
    columns: tuple[str, ...]
    cases: Callable[[Plan], Iterator[Case]]


def append(path: Path, columns: Sequence[str], row: Row) -> None:
    """Write a row behind those that are there."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def read(path: Path) -> list[Row]:
    """The rows of a file; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rows_file(plan: Plan, letter: str) -> Path:
    """Where a slice writes its rows."""
    return plan.folder / f"{letter}.csv"


def take(letter: str, slice_: Slice, plan: Plan, *, first: int, seconds: float) -> int:
    """Take the cases of a slice from the `first` on, until its time is up; a status.

    The number of the case at hand is on disk, for whoever has to go on after this process.
    """
    end = time.monotonic() + seconds
    for number, case in enumerate(slice_.cases(plan)):
        if number < first:
            continue
        if time.monotonic() > end:
            plan.failed(letter, f"{case.name} and what follows", "the time of the slice is up.")
            break
        at_hand(plan).write_text(f"{number} {case.name}")
        try:
            for row in case.rows():
                append(rows_file(plan, letter), slice_.columns, row)
                sys.stdout.write(
                    f"{letter}: {' '.join(value for value in row.values() if value)}\n"
                )
                sys.stdout.flush()
        except Exception as error:  # whatever a kernel, a compiler or a model of others' does
            plan.failed(letter, case.name, error)
            if not _answers(plan.device):
                return POISONED
    return DONE


def at_hand(plan: Plan) -> Path:
    """The file that has the number and the name of the case that runs."""
    return plan.folder / ".case"


def _answers(device: str) -> bool:
    """Whether a device still computes: after an illegal access its process has lost it."""
    if device != "cuda":
        return True
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True
