"""Saves a run into its folder, and finds what to continue it from."""

import logging
from pathlib import Path
from typing import Any

from vit_ls.engine.checkpoint import BEST, LAST, Saver, newest_checkpoint, read_checkpoint
from vit_ls.engine.folder import RunFolder
from vit_ls.engine.state import RunState

_logger = logging.getLogger(__name__)


class Keeper:
    """The checkpoints and the summary of a run; only the primary process writes.

    Args:
        state: Of the run.
        title: Part of the folder's name where the configuration gives none.

    Attributes:
        path: The folder.
        last_saved: The newest checkpoint that is known to be good.

    Raises:
        ConfigError: The folder cannot be used.
    """

    def __init__(self, state: RunState, title: str) -> None:
        self.state, self.config, self.ranks = state, state.config, state.ranks
        self.folder = RunFolder(self.config, title) if self.ranks.primary else None
        self.path = Path(self.ranks.from_primary(str(self.folder.path) if self.folder else ""))
        self.last_saved: Path | None = None
        self._of_ranks: list[dict[str, Any]] = []
        self._saver = Saver(
            self.path,
            self._content,
            decreasing=self.config.eval_metric == "loss",
            max_history=self.config.checkpoint_hist,
        )

    @property
    def best(self) -> tuple[int | None, Path]:
        """Epoch and file of the best checkpoint."""
        return self.ranks.from_primary(self._saver.best_epoch), self.path / BEST

    def found(self) -> dict[str, Any] | None:
        """The checkpoint that the configuration asks to continue from, if there is one.

        Raises:
            CheckpointError: It cannot be read.
        """
        name = self.config.resume
        if name == "auto":
            newest = newest_checkpoint(self.path, self.config.model) if self.folder else None
            name = self.ranks.from_primary(str(newest[0]) if newest else "")
        if not name:
            return None
        self.last_saved = Path(name)
        return read_checkpoint(self.last_saved)

    def take_over(self, content: dict[str, Any]) -> None:
        """Continue the history of a checkpoint from the same folder."""
        inside = self.last_saved is not None and self.last_saved.parent == self.path
        if not inside or self.folder is None or "saver" not in content:
            return
        self._saver.restore(content["saver"])
        if content["position"]["batch"] == 0:
            self._of_ranks = content["ranks"]
            self._save_epoch(content["epoch"], content.get("metric"))

    def save_epoch(self, epoch: int, metric: float | None) -> None:
        """Save after an epoch; all processes must call it together."""
        self._of_ranks = self.state.of_ranks()
        if self.folder is not None:
            self._save_epoch(epoch, metric)
        self.last_saved = self.path / LAST

    def save_recovery(self) -> None:
        """Save within an epoch; all processes must call it together."""
        self._of_ranks = self.state.of_ranks()
        at = self.state.at
        if self.folder is not None:
            self._saver.save_recovery(at.epoch, at.batch)
            self.last_saved = Path(self._saver.curr_recovery_file)

    def release(self) -> None:
        """Let others have the folder."""
        if self.folder is not None:
            self.folder.release()

    def _save_epoch(self, epoch: int, metric: float | None) -> None:
        self._saver.save_checkpoint(epoch, metric)
        if epoch + 1 in (self.config.save_epochs or []):
            self._saver.save_milestone(epoch + 1)
        self._saver.drop_recovery(keep=1)
        if self.folder is not None:
            self.folder.write_summary(self.state.at.rows)

    def _content(self, epoch: int, metric: float | None) -> dict[str, Any]:
        content = self.state.content(self._of_ranks) | {"epoch": epoch}
        return content if metric is None else content | {"metric": metric}
