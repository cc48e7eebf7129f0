"""Files that are there whole or not at all."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from vit_ls.errors import CheckpointError


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
