"""Runs of train.py that are continued, and what they left in their folders."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import runs
import torch

from vit_ls.run import read_checkpoint

FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--workers", "0", "--opt", "adamw"),
    *("--lr", "1e-3", "--batch-size", "32", "--drop-path", "0.1"),
]


class Runs:
    """Runs of train.py on a folder of images, below a folder of their own."""

    def __init__(self, images: Path, output: Path) -> None:
        self.images, self.output = images, output
        self.log = output / "log"

    def __call__(
        self, *more: str, name: str = "run", before: Callable[[], object] | None = None
    ) -> int:
        """Run in the folder `name` and return the exit status; the log starts anew."""
        self.log.unlink(missing_ok=True)
        argv = [str(self.images), "--output", str(self.output), "--experiment", name, *FLAGS]
        return runs.finish([*argv, *more], self.log, before=before)

    def ends(self, status: int, *more: str, **kwargs: Any) -> str:
        """Run, hold the status against the one that is expected, and return the log."""
        found = self(*more, **kwargs)
        text = self.log.read_text()
        assert found == status, text
        assert "Traceback" not in text
        return text

    def path(self, file: str, name: str = "run") -> Path:
        return self.output / name / file


def copy(folder: Path, to: Path) -> None:
    """Copy a run; names of one file become names of one file."""
    to.mkdir()
    copied: dict[int, Path] = {}
    for path in folder.iterdir():
        number = path.stat().st_ino
        if number in copied:
            (to / path.name).hardlink_to(copied[number])
        else:
            copied[number] = Path(shutil.copy2(path, to))


def content(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Of each file: its number, its time, its bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            path.read_bytes(),
        )
        for path in files
    }


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "summary.csv").open() as file:
        return list(csv.DictReader(file))


def damage(path: Path) -> None:
    """Spoil a file under all its names."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(64 * b"\xff")


def assert_same_run(folder: Path, undisturbed: Path) -> None:
    """Bit-identical: the summary, and all checkpoints but those within an epoch."""
    assert (folder / "summary.csv").read_bytes() == (undisturbed / "summary.csv").read_bytes()
    names = {path.name for path in undisturbed.glob("*.pth.tar") if "recovery" not in path.name}
    assert names == {path.name for path in folder.glob("*.pth.tar") if "recovery" not in path.name}
    for name in names:
        found, wanted = (read_checkpoint(one / name) for one in (folder, undisturbed))
        for content in (found, wanted):
            del content["args"]  # it holds the folder's name
        _assert_same(found, wanted, name)


def _assert_same(found: Any, wanted: Any, where: str = "") -> None:
    """Bit-identical, in depth."""
    assert type(found) is type(wanted), where
    if isinstance(wanted, torch.Tensor):
        assert torch.equal(found, wanted), where
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key, value in wanted.items():
            _assert_same(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted), where
        for index, value in enumerate(wanted):
            _assert_same(found[index], value, f"{where}[{index}]")
    else:
        assert found == wanted, where
