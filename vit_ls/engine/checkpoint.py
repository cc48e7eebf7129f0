"""Checkpoints: whole or absent, of plain values and tensors, knowing where the run stood."""

import logging
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch
from timm.utils import CheckpointSaver

from vit_ls.engine.errors import CheckpointError

_logger = logging.getLogger(__name__)

SUFFIX = ".pth.tar"
BEST, LAST = f"model_best{SUFFIX}", f"last{SUFFIX}"


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Give `path` new content at once: a crash leaves the old or the new content, never a part.

    Raises:
        CheckpointError: The content cannot be written; the old one is still there.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    # torch reports a failed write as RuntimeError.
    except (OSError, RuntimeError) as error:
        part.unlink(missing_ok=True)
        raise CheckpointError(f"{path} cannot be written: {error}") from error


def read_checkpoint(path: Path, *, tensors: bool = True) -> dict[str, Any]:
    """Read a training checkpoint.

    Args:
        path: The file.
        tensors: Read the tensors too, and so find damage in them; otherwise they are left on disk.

    Raises:
        CheckpointError: It is not there, damaged, or no training checkpoint.
    """
    try:
        if tensors and zipfile.is_zipfile(path):
            # torch does not look at the checksums that it writes.
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise CheckpointError(f"{path} cannot be read: {damaged} in it is damaged.")
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=not tensors)
    except CheckpointError:
        raise
    # A damaged file raises whatever the part of it raises that is read first.
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise CheckpointError(f"{path} cannot be read: {reason[0]}") from error
    if not isinstance(content, dict) or "state_dict" not in content or "epoch" not in content:
        raise CheckpointError(f"{path} is not a training checkpoint.")
    return content


def newest_checkpoint(folder: Path, arch: str) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint of `folder` furthest in the run; those that are no good are passed over."""
    standing: dict[int, tuple[tuple[int, int], Path]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            content = read_checkpoint(path, tensors=False)
            if content.get("arch") != arch or "position" not in content:
                raise CheckpointError(f"{path} is of another run: it holds {content.get('arch')}.")
            position = content["position"]
            # Several names may be links to one file.
            standing[path.stat().st_ino] = (position["epoch"], position["batch"]), path
        except CheckpointError as error:
            _logger.warning("passed over: %s", error)
    for _, path in sorted(standing.values(), reverse=True):
        try:
            return path, read_checkpoint(path)
        except CheckpointError as error:
            _logger.warning("passed over: %s", error)
    return None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Saver(CheckpointSaver):
    """timm's saver (best-of history, milestones, recovery files), writing whole files or none.

    Args:
        folder: Of the run.
        collect: Returns the content to save, given the epoch and the metric or None.
        decreasing: Whether a lower metric is better.
        max_history: How many of the best checkpoints are kept.
    """

    def __init__(
        self,
        folder: Path,
        collect: Callable[[int, float | None], dict[str, Any]],
        *,
        decreasing: bool,
        max_history: int,
    ) -> None:
        super().__init__(
            None,
            None,
            checkpoint_dir=str(folder),
            recovery_dir=str(folder),
            decreasing=decreasing,
            max_history=max_history,
        )
        self.folder = folder
        self.collect = collect

    def _save(self, save_path: str, epoch: int, metric: float | None = None) -> None:
        content = self.collect(epoch, metric) | {"saver": self.state_dict(epoch, metric)}
        write_whole(Path(save_path), lambda file: torch.save(content, file))

    def _replace(self, src: str, dst: str) -> None:
        Path(src).replace(dst)
        _sync_folder(self.folder)

    def _duplicate(self, src: str, dst: str) -> None:
        """Give `dst` the content of `src`, by a link where that is possible."""
        source, target = Path(src), Path(dst)
        if target.exists() and target.samefile(source):
            return
        part = target.with_name(f".{target.name}.part")
        part.unlink(missing_ok=True)
        try:
            part.hardlink_to(source)
        except OSError:  # a file system without links
            write_whole(target, lambda file: file.write(source.read_bytes()))
            return
        part.replace(target)
        _sync_folder(self.folder)

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the history that a checkpoint of the same folder recorded.

        The checkpoint itself is not in it: it was written before it was ranked. Saving the same
        epoch again ranks it, and so repairs a run that was killed between the two.
        """
        self.load_state_dict(state | {"pending": (None, None)})

    def drop_recovery(self, keep: int) -> None:
        """Delete all but the newest recovery checkpoints."""
        files = self.folder.glob(f"{self.recovery_prefix}-*{SUFFIX}")
        found = sorted(files, key=lambda path: path.stat().st_mtime_ns)
        for path in found[: max(len(found) - keep, 0)]:
            path.unlink()
