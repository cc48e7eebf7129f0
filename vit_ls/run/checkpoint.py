"""Checkpoints as files: whole or absent, of plain values and tensors."""

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError
from vit_ls.run.files import read_file

_logger = logging.getLogger(__name__)

SUFFIX = ".pth.tar"


class Position(NamedTuple):
    """A moment of a run: before batch `batch` of epoch `epoch`."""

    epoch: int
    batch: int


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Give `path` new content at once: a crash leaves the old or the new content, never a part.

    Raises:
        CheckpointError: The file system refuses the content; the old one is still there.
    """
    part = _part(path)
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        _give_name(part, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        cause = _cause(error)
        if isinstance(cause, OSError):
            reason = cause.strerror or str(cause)
            raise CheckpointError(f"{path} cannot be written: {reason}.") from error
        raise cause from None


def link_whole(source: Path, target: Path) -> None:
    """Give the content of `source` the name `target` too, at once.

    Both names are links of one file, or copies where the file system has no links.

    Raises:
        CheckpointError: The file system refuses it; what had the name before still has it.
    """
    if target.exists() and target.samefile(source):
        return
    part = _part(target)
    part.unlink(missing_ok=True)
    try:
        part.hardlink_to(source)
    except OSError:
        write_whole(target, lambda file: file.write(source.read_bytes()))
    else:
        _give_name(part, target)


def read_checkpoint(path: Path, *, tensors: bool = True) -> dict[str, Any]:
    """Read a training checkpoint.

    Args:
        path: The file.
        tensors: Read the tensors too, and so find damage in them; otherwise they are left on disk.

    Raises:
        CheckpointError: It is not there, damaged, or no training checkpoint.
    """
    content = read_file(path, tensors=tensors)
    if "state_dict" not in content or "epoch" not in content:
        raise CheckpointError(f"{path} is not a training checkpoint.")
    return content


def position_of(path: Path) -> Position | None:
    """Where a checkpoint stands; None where none is there that can be read, or it does not say."""
    try:
        return _position(read_checkpoint(path, tensors=False))
    except CheckpointError:
        return None


def newest_checkpoint(folder: Path, arch: str) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint of `folder` furthest in its run, or None where there is none at all.

    Those that are no good are passed over, each with a warning.

    Args:
        folder: Of the run.
        arch: The model's name.

    Raises:
        ConfigError: There are checkpoints and none is good; it names each and what is wrong.
    """
    standing: list[tuple[Position, Path]] = []
    wrong: dict[Path, CheckpointError] = {}
    newest = None
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            standing.append((_checked_position(path, arch), path))
        except CheckpointError as error:
            wrong[path] = error
    for _, path in sorted(standing, key=lambda one: one[0], reverse=True):
        try:
            newest = path, read_checkpoint(path)
            break
        except CheckpointError as error:
            wrong[path] = error
    if newest is None and wrong:
        raise ConfigError(
            f"{folder} has no checkpoint to continue from, and was left as it is: "
            + " ".join(str(error) for error in wrong.values())
        )
    for reason in wrong.values():
        _logger.warning("passed over: %s", reason)
    return newest


def _checked_position(path: Path, arch: str) -> Position:
    content = read_checkpoint(path, tensors=False)
    position = _position(content)
    if content.get("arch") != arch:
        raise CheckpointError(f"{path} is of another run: its model is {content.get('arch')!r}.")
    if position is None:
        raise CheckpointError(f"{path} is of another run: it was not written by this program.")
    return position


def _position(content: dict[str, Any]) -> Position | None:
    at = content.get("position")
    return Position(at["epoch"], at["batch"]) if at else None


def _part(path: Path) -> Path:
    """What a file is called while it is written; no pattern for checkpoints finds it."""
    return path.with_name(f".{path.name}.part")


def _give_name(part: Path, path: Path) -> None:
    """Rename, and wait until the disk has it."""
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _cause(error: BaseException) -> BaseException:
    """What went wrong first.

    torch ends a file whose writing failed, fails at that again, and raises a RuntimeError about
    positions; what the system said is its context. Whatever else comes up meanwhile, such as the
    death of a loading process, is not about the file.
    """
    while isinstance(error, RuntimeError) and error.__context__ is not None:
        error = error.__context__
    return error
