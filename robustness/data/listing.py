"""The images of a cell: what belongs to it, what does not, and what tells them from others."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from robustness.data.gaps import Gap


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
    """The images of a cell, sorted by key.

    Attributes:
        samples: The images.
        problems: What is wrong with the folder.
        notes: What was passed over rightly.
    """

    samples: tuple[Sample, ...]
    problems: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()

    def subset(self, count: int) -> "Listing":
        """The `count` images whose SHA-256 of the key is least, in the order of the keys.

        The choice depends on names alone, is the same in every cell of a benchmark, and a smaller
        subset lies within a larger one.
        """
        drawn = sorted(self.samples, key=lambda s: hashlib.sha256(s.key.encode()).digest())[:count]
        return Listing(tuple(sorted(drawn, key=lambda s: s.key)), self.problems, self.notes)

    def names(self) -> str:
        """Digest of the names and classes."""
        return digest(f"{sample.key}\t{sample.target}\n" for sample in self.samples)

    def files(self, *, verify: bool = False) -> dict[str, str]:
        """Digests of the files' sizes and times of modification.

        Args:
            verify: Digest of their bytes instead of the times: slow, and nothing escapes it.
        """
        files = [sample.path for sample in self.samples if sample.path]
        if verify:
            return {"sizes": _each(files, _size), "contents": _each(files, _contents)}
        return {"sizes": _each(files, _size), "times": _each(files, _time)}


def _each(files: Sequence[Path], what: Callable[[Path], str]) -> str:
    """Digest of a property of each file; one that cannot be read has none, and is a gap later."""

    def asked(file: Path) -> str:
        try:
            return what(file)
        except OSError:
            return "unreadable"

    return digest(f"{asked(file)}\n" for file in files)


def _size(file: Path) -> str:
    return str(file.stat().st_size)


def _time(file: Path) -> str:
    return str(file.stat().st_mtime_ns)


def _contents(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digest(parts: Iterable[str]) -> str:
    """SHA-256 over texts, one after the other."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.encode())
    return whole.hexdigest()
