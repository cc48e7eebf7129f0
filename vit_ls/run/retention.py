"""The checkpoints that a run keeps, under timm's names.

    last            the state after the newest epoch
    checkpoint-N    after epoch N (from 0), for the best epochs
    model_best      after the best of them
    milestone-N     after N epochs, for those asked for
    recovery-E-B    before batch B of epoch E, the newest

The names of one state are links of one file. Which epochs are kept is a function of the summary, so
there is no history that could be lost: after a kill at any moment, `Saver.arrange` gives the folder
the names that its newest checkpoint asks for.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vit_ls.run.checkpoint import SUFFIX, Position, position_of
from vit_ls.whole import link_whole, write_whole

BEST, LAST = f"model_best{SUFFIX}", f"last{SUFFIX}"
_NUMBERED = re.compile(r"checkpoint-(\d+)\.pth\.tar")
_RECOVERY = re.compile(r"recovery-(\d+)-(\d+)\.pth\.tar")


class Ranking(NamedTuple):
    """The epochs of a run, best first.

    Attributes:
        epochs: Epoch and metric: from best to worst, of equal ones the earlier first; then those
            without a metric, the newest first.
    """

    epochs: tuple[tuple[int, float | None], ...] = ()

    @classmethod
    def of(cls, metrics: Mapping[int, float | None], *, decreasing: bool) -> "Ranking":
        """Rank epochs by their metrics; `decreasing` says that a lower one is better."""

        def key(entry: tuple[int, float | None]) -> tuple[bool, float, int]:
            epoch, metric = entry
            if metric is None:
                return True, 0.0, -epoch
            return False, metric if decreasing else -metric, epoch

        known = {
            epoch: None if metric is None or math.isnan(metric) else metric
            for epoch, metric in metrics.items()
        }
        return cls(tuple(sorted(known.items(), key=key)))

    @property
    def best(self) -> tuple[int | None, float | None]:
        """Epoch and metric of the best one, where any has a metric."""
        epoch, metric = self.epochs[0] if self.epochs else (None, None)
        return (None, None) if metric is None else (epoch, metric)

    def state(self, most: int) -> dict[str, Any]:
        """The state of timm's CheckpointSaver that keeps `most` of them."""
        epoch, metric = self.best
        return {
            "checkpoint_files": [(numbered(epoch), metric) for epoch, metric in self.epochs[:most]],
            "best_epoch": epoch,
            "best_metric": metric,
            "pending": (None, None),
        }


def numbered(epoch: int) -> str:
    """Name of the checkpoint of an epoch."""
    return f"checkpoint-{epoch}{SUFFIX}"


class Saver:
    """Writes the checkpoints of one folder, whole or not at all.

    At any moment after the second save the folder holds the two newest states as files of their
    own: names are taken away last, and never that of one of these two.

    Args:
        folder: Of the run.
        keep: How many of the best epochs are kept.
        milestones: Numbers of epochs after which a state is kept for good.
    """

    def __init__(self, folder: Path, *, keep: int, milestones: Sequence[int] = ()) -> None:
        self.folder, self.keep, self.milestones = folder, keep, milestones

    def save_epoch(self, epoch: int, content: dict[str, Any], ranking: Ranking) -> Path:
        """Save the state after an epoch; returns the file.

        Args:
            epoch: The last one trained.
            content: Of the checkpoint.
            ranking: Of the epochs saved in this folder, this one among them.
        """
        last = self.folder / LAST
        before = position_of(last)
        # The former state stays until the next one is there, whatever its rank.
        if before is not None and before.epoch - 1 not in self._kept(epoch, ranking):
            link_whole(last, self._recovery(before))
        self._write(last, content, ranking)
        self.arrange(epoch, last, ranking)
        return last

    def save_recovery(self, at: Position, content: dict[str, Any], ranking: Ranking) -> Path:
        """Save the state within an epoch; returns the file."""
        path = self._recovery(at)
        self._write(path, content, ranking)
        self._drop_recovery(at)
        return path

    def arrange(self, epoch: int, newest: Path, ranking: Ranking) -> None:
        """Give the folder the names that its newest state asks for, and take away the others.

        Args:
            epoch: The last one that `newest` has trained.
            newest: The file of the state.
            ranking: Of the epochs saved in this folder up to that one.
        """
        link_whole(newest, self.folder / LAST)
        kept = self._kept(epoch, ranking)
        if epoch in kept:
            link_whole(newest, self.folder / numbered(epoch))
        best = ranking.best[0]
        if best is not None and (source := self.folder / numbered(best)).exists():
            link_whole(source, self.folder / BEST)
        if epoch + 1 in self.milestones:
            link_whole(newest, self.folder / f"milestone-{epoch + 1}{SUFFIX}")
        for one in self._numbers() - kept:
            # Later ones are no good, or the run would continue from them; it will come to them.
            if one <= epoch:
                (self.folder / numbered(one)).unlink(missing_ok=True)
        self._drop_recovery(Position(epoch + 1, 0))

    def _write(self, path: Path, content: dict[str, Any], ranking: Ranking) -> None:
        whole = content | {"saver": ranking.state(self.keep)}
        write_whole(path, lambda file: torch.save(whole, file))

    def _recovery(self, at: Position) -> Path:
        return self.folder / f"recovery-{at.epoch}-{at.within}{SUFFIX}"

    def _numbers(self) -> set[int]:
        """The epochs whose checkpoints are there."""
        names = (_NUMBERED.fullmatch(path.name) for path in self.folder.iterdir())
        return {int(name[1]) for name in names if name}

    def _kept(self, epoch: int, ranking: Ranking) -> set[int]:
        """The epochs to keep, among those that are there and `epoch`."""
        there = self._numbers() | {epoch}
        return set([one for one, _ in ranking.epochs if one in there][: self.keep])

    def _drop_recovery(self, at: Position) -> None:
        """Delete recovery files but those of the two newest states up to `at`."""
        recovery = {
            Position(int(name[1]), int(name[2])): path
            for path in self.folder.iterdir()
            if (name := _RECOVERY.fullmatch(path.name))
        }
        last = position_of(self.folder / LAST)
        states = {one for one in (*recovery, last) if one is not None and one <= at}
        for one in sorted(states)[:-2]:
            if one in recovery:
                recovery[one].unlink()
