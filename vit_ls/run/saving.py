"""Saves a run into its folder, and finds what to continue it from."""

from pathlib import Path
from typing import Any

from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError
from vit_ls.job.machine import provenance
from vit_ls.job.ranks import agreed
from vit_ls.run.checkpoint import Position, newest_checkpoint, position_of, read_checkpoint
from vit_ls.run.folder import SUMMARY, RunFolder
from vit_ls.run.retention import BEST, LAST, Ranking, Saver
from vit_ls.run.state import RunState


class Keeper:
    """The checkpoints and the summary of a run; only the primary process writes.

    Args:
        state: Of the run.
        title: Part of the folder's name where the configuration gives none.

    Attributes:
        path: The folder.
        found: The checkpoint that the configuration asks to continue from, if there is one.
        inside: Whether that is a checkpoint of the folder itself.
        last_saved: The newest checkpoint that is known to be good.

    Raises:
        ConfigError: The folder, or the checkpoint, cannot be used; neither was changed.
    """

    def __init__(self, state: RunState, title: str) -> None:
        self.state, self.config, self.ranks = state, state.config, state.ranks
        self.found: dict[str, Any] | None = None
        self.last_saved: Path | None = None
        resume = self.config.resume
        if resume and resume != "auto":
            self._take(Path(resume))  # before a folder is made
        self._folder = agreed(
            self.ranks, lambda: RunFolder(self.config, title) if self.ranks.primary else None
        )
        self.path = Path(self.ranks.from_primary(str(self._folder.path) if self._folder else ""))
        newest = self.ranks.from_primary(agreed(self.ranks, self._newest)) if resume else None
        if newest is not None:
            self._take(newest)
        self.inside = self.ranks.from_primary(self._is_inside())
        self._since = 0
        self._of_ranks: list[dict[str, Any]] = []
        self._saver = Saver(
            self.path,
            keep=self.config.checkpoint_hist,
            milestones=self.config.save_epochs or [],
        )

    @property
    def best(self) -> tuple[int | None, Path]:
        """Epoch and file of the best checkpoint of this folder."""
        return self._ranking().best[0], self.path / BEST

    def begin(self) -> None:
        """Make the folder that of this run, once nothing more can be refused."""
        found = self.found if self.inside else None
        at = self.state.at
        self._since = at.epoch if found is None else found.get("since", 0)
        if self._folder is not None:
            self._folder.write_config(self.config)
            start = {"processes": self.ranks.world_size, "epoch": at.epoch, "batch": at.batch}
            data = {"images": self.state.training_images, "listing": self.state.listing}
            self._folder.add_start(provenance(self.ranks.device) | start | {"data": data})
            if found is not None:
                if at.batch == 0 and self.last_saved is not None:
                    # A kill may have come between writing this state and naming it.
                    self._saver.arrange(found["epoch"], self.last_saved, self._ranking())
                self._folder.write_summary(at.rows)
        self.found = None

    def save_epoch(self, epoch: int) -> None:
        """Save after an epoch; all processes must call it together."""
        self._of_ranks = self.state.of_ranks()
        if self._folder is not None:
            self._saver.save_epoch(epoch, self._content(epoch), self._ranking())
            self._folder.write_summary(self.state.at.rows)
        self.last_saved = self.path / LAST

    def save_recovery(self) -> None:
        """Save within an epoch; all processes must call it together."""
        self._of_ranks = self.state.of_ranks()
        at = self.state.at
        if self._folder is not None:
            position = Position(at.epoch, at.batch)
            content = self._content(at.epoch)
            self.last_saved = self._saver.save_recovery(position, content, self._ranking())

    def release(self) -> None:
        """Let others have the folder."""
        if self._folder is not None:
            self._folder.release()

    def _is_inside(self) -> bool:
        if self._folder is None or self.last_saved is None:
            return False
        return self.last_saved.parent.samefile(self._folder.path)

    def _take(self, path: Path) -> None:
        try:
            self.found = read_checkpoint(path)
        except CheckpointError as error:
            raise ConfigError(f"--resume: {error}") from error
        self.last_saved = path

    def _newest(self) -> Path | None:
        """What to continue from where that is left to the folder."""
        if self._folder is None:
            return None
        folder = self._folder.path
        if self.config.resume == "auto":
            newest = newest_checkpoint(folder, self.config.model)
            if newest is None and (folder / SUMMARY).exists():
                raise ConfigError(
                    f"--resume auto: {folder} has a {SUMMARY} and no checkpoint: a run was here, "
                    "and is not started anew over what is left of it."
                )
            return newest[0] if newest else None
        named = Path(self.config.resume)
        if named.parent.samefile(folder):
            if self.config.start_epoch is not None:
                raise ConfigError(
                    f"--start-epoch {self.config.start_epoch} cannot change where the run of "
                    f"{folder} stands: name another --experiment."
                )
            newest = newest_checkpoint(folder, self.config.model)
            stands = position_of(newest[0]) if newest else None
            if newest and stands and stands > (position_of(named) or (0, 0)):
                raise ConfigError(
                    f"--resume {named}: {newest[0]} is further in the same run and would be lost; "
                    "--resume auto continues from it, another --experiment goes back."
                )
        return None

    def _ranking(self) -> Ranking:
        """Of the epochs saved in this folder."""
        rows = [row for row in self.state.at.rows if row["epoch"] >= self._since]
        metrics = {row["epoch"]: self.state.metric(row) for row in rows}
        return Ranking.of(metrics, decreasing=self.config.eval_metric == "loss")

    def _content(self, epoch: int) -> dict[str, Any]:
        at = self.state.at
        content = self.state.content(self._of_ranks) | {"epoch": epoch, "since": self._since}
        metric = self.state.metric(at.rows[-1]) if at.batch == 0 and at.rows else None
        return content if metric is None else content | {"metric": metric}
