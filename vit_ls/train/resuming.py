"""Brings a run to where a checkpoint left it."""

import logging
from pathlib import Path
from typing import Any

from vit_ls.config import ConfigError, checked_changes, former
from vit_ls.run.classes import check_same_classes
from vit_ls.run.state import Progress, RunState
from vit_ls.train.recipe import make_optimizer

_logger = logging.getLogger(__name__)


def check_continued(content: dict[str, Any], state: RunState) -> set[str]:
    """Check that a run may go on as it is set up now.

    Args:
        content: Of the checkpoint to continue from.
        state: Of the run, not loaded yet.

    Returns:
        The names of the settings that are not those of the checkpoint's run; each is shown.

    Raises:
        ConfigError: The classes, the images or a setting make it another run.
    """
    changed = _changes(content, state)
    check_same_classes("--resume", content.get("classes"), state.classes)
    return changed


def _changes(content: dict[str, Any], state: RunState) -> set[str]:
    was = content.get("args")
    if "position" not in content or not isinstance(was, dict):
        _logger.warning("the checkpoint is not of this program: its settings are not compared.")
        return set()
    changes = checked_changes(was, state.config)
    if not (state.same_images(content) or state.config.resume_changed):
        now, then = state.training_images, content["training_images"]
        what = f"there are {now} training images, the run had {then}"
        if now == then:
            what = f"the {now} training images have other names or sizes than those of the run"
        raise ConfigError(f"--resume: {what}; --resume-changed allows that.")
    for one in changes:
        _logger.info("%s", one)
    return {one.name for one in changes}


def go_on(
    content: dict[str, Any],
    changed: set[str],
    state: RunState,
    *,
    source: Path | None,
    updates_per_epoch: int,
) -> None:
    """Take all but the weights from a checkpoint: their average, the optimiser, the position.

    Args:
        content: Of the checkpoint.
        changed: The names of the settings that are not those of its run.
        state: Of the run; its weights are loaded.
        source: The checkpoint's file.
        updates_per_epoch: Of the run.
    """
    if state.task.has_ema():
        state.load_weights(content, ema=True)
    if not state.config.no_resume_opt:
        trainable = state.task.get_trainable_module()
        before = None
        if changed and trainable is not None:
            before = make_optimizer(trainable, former(content["args"]), state.ranks.world_size)
        state.load_optimizer(content, before)
    state.load_position(content, reseeded="seed" in changed)
    if "position" not in content:
        enter(state, state.at.epoch, updates_per_epoch)
    _logger.info("continuing from %s: epoch %d, batch %d.", source, state.at.epoch, state.at.batch)


def enter(state: RunState, epoch: int, updates_per_epoch: int) -> None:
    """Stand at the beginning of an epoch, as if those before it had been trained."""
    rows = [row for row in state.at.rows if row["epoch"] < epoch]
    updates = epoch * updates_per_epoch
    state.at = Progress(epoch, updates=updates, skipped=state.at.skipped, rows=rows)


def replay(scheduler: Any, state: RunState) -> None:
    """Bring a new schedule to where the run stands; plateau's depends on each evaluation."""
    if state.config.sched != "plateau":
        scheduler.step(state.at.epoch)
        scheduler.step_update(state.at.updates)
    else:
        for row in state.at.rows:
            scheduler.step(row["epoch"] + 1, state.metric(row))
