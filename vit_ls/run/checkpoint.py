"""Checkpoints as files, of plain values and tensors."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError
from vit_ls.run.files import read_file

_logger = logging.getLogger(__name__)

SUFFIX = ".pth.tar"


class Position(NamedTuple):
    """A moment of a run, to be held against others.

    Attributes:
        epoch: Epochs done.
        within: How far in this one: of a file's name batches, of its content images, because their
            number does not depend on how many processes share a batch.
    """

    epoch: int
    within: int


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
    return Position(at["epoch"], at["images"]) if at else None
