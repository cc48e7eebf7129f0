"""A training run: epochs of updates and evaluations, to be stopped and continued at any update."""

import itertools
import logging
import math
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from timm.utils import random_seed
from torch import nn

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.errors import RunFailedError, StoppedError
from vit_ls.job.ranks import Ranks
from vit_ls.job.signals import StopRequests
from vit_ls.run.retention import LAST
from vit_ls.run.saving import Keeper
from vit_ls.run.state import Progress, RunState
from vit_ls.train.batches import TrainStream, UnreadableImages, check_trained
from vit_ls.train.distribute import distribute, share_norms
from vit_ls.train.evaluating import evaluate_run
from vit_ls.train.meters import Interval, Sums, Timed, mean_norm
from vit_ls.train.recipe import make_optimizer, make_schedule, make_task
from vit_ls.train.reporting import Reporter, check_reports_of_run
from vit_ls.train.resuming import check_continued, enter, go_on, replay
from vit_ls.train.update import Outcome, Updater
from vit_ls.train.utilisation import utilisation

_logger = logging.getLogger(__name__)


class Best(NamedTuple):
    """The best evaluation of a run, or its end where nothing was evaluated: top1 is None."""

    top1: float | None
    epoch: int
    checkpoint: Path


class _StopAskedError(Exception):
    """A stop was asked for during an evaluation."""


class Trainer:
    """One run.

    Args:
        model: The model, on its device.
        teacher: For distillation, or None.
        train: Training batches.
        held_out: Loader of the evaluation's batches; None evaluates nothing.
        config: Everything else.
        ranks: The processes.
        image_size: Height and width of the training images, in pixels.
        title: Part of the folder's name where the configuration gives none.

    Raises:
        ConfigError: The folder cannot be used.
        CheckpointError: The checkpoint to continue from cannot be used.
    """

    def __init__(
        self,
        model: nn.Module,
        teacher: nn.Module | None,
        train: TrainStream,
        held_out: Any,
        config: TrainConfig,
        ranks: Ranks,
        *,
        image_size: tuple[int, int],
        title: str,
    ) -> None:
        self.train, self.held_out, self.config, self.ranks = train, held_out, config, ranks
        # Counted here, before anything is wrapped around the model.
        self._utilisation = (
            utilisation(model, image_size, config, ranks.device) if ranks.primary else None
        )
        self.task = make_task(model, teacher, config, ranks.device)
        trainable = self.task.get_trainable_module() or model
        self.optimizer = make_optimizer(trainable, config, ranks.world_size)
        self.updates_per_epoch = -(-len(train) // config.grad_accum_steps)
        self.scheduler, epochs = make_schedule(self.optimizer, config, self.updates_per_epoch)
        self.last_epoch = config.stop_epoch or epochs
        self.updater = Updater(self.task, self.optimizer, config, ranks)
        self.state = RunState(
            config,
            ranks,
            self.task,
            self.optimizer,
            self.updater.scaler,
            train.unreadable,
            train.class_to_idx,
            train.num_images,
            train.listing,
        )
        self._unreadable = UnreadableImages(train, ranks)
        self._stop = StopRequests()
        check_reports_of_run(config, ranks)  # before a folder is made
        self.keeper = Keeper(self.state, title)
        random_seed(config.seed, ranks.rank)
        try:
            self._set_up()
        except BaseException:
            self.keeper.release()
            raise

    @property
    def at(self) -> Progress:
        """Where the run stands."""
        return self.state.at

    def _set_up(self) -> None:
        """Continue if asked to; then wrap the model: average, compiler, processes."""
        config, content = self.config, self.keeper.found
        changed: set[str] = set()
        if content is not None:
            changed = check_continued(content, self.state)
            self.state.load_weights(content)
        if config.model_ema:
            self.task.setup_ema(
                decay=config.model_ema_decay,
                use_warmup=config.model_ema_warmup,
                device=torch.device("cpu") if config.model_ema_force_cpu else None,
            )
        if content is not None:
            go_on(
                content,
                changed,
                self.state,
                source=self.keeper.last_saved,
                updates_per_epoch=self.updates_per_epoch,
            )
        if config.start_epoch is not None:
            enter(self.state, config.start_epoch, self.updates_per_epoch)
        if self.scheduler is not None and (self.at.epoch or self.at.updates):
            replay(self.scheduler, self.state)
        if self.at.epoch >= self.last_epoch and not self.keeper.inside:
            raise ConfigError(
                f"nothing is left to train: the run would start at epoch {self.at.epoch} of "
                f"{self.last_epoch}."
            )
        self.keeper.begin()
        if config.torchcompile:
            how: dict[str, Any] = {
                "backend": config.torchcompile,
                "mode": config.torchcompile_mode,
            }
            self.task.compile(**how)
            if not config.model_ema_force_cpu:  # else the average is not evaluated
                self.task.compile_ema(**how)
        distribute(self.task, config, self.ranks)

    def fit(self, stop: StopRequests) -> Best:
        """Train to the end, or until a stop is requested.

        Raises:
            StoppedError: A signal asked for it; the run has saved where it stands.
            RunFailedError: The run cannot go on.
            CheckpointError: A checkpoint cannot be written.
        """
        self._stop = stop
        left = (self.last_epoch - self.at.epoch) * self.updates_per_epoch
        left -= -(-self.at.batch // self.config.grad_accum_steps)  # a run may go on within one
        done = self.at.updates
        reporter = (
            Reporter(self.config, self.keeper.path, done=done, total=done + left)
            if self.ranks.primary and left > 0
            else None
        )
        try:
            while self.at.epoch < self.last_epoch:
                started = time.perf_counter()
                measured = self._train_epoch(reporter)
                self._finish_epoch()
                if reporter is not None:
                    seconds = time.perf_counter() - started
                    reporter.epoch(self.at.rows, {"seconds": seconds, **measured})
        finally:
            if reporter is not None:
                reporter.close()
            self.keeper.release()
        return self._best()

    def _train_epoch(self, reporter: Reporter | None) -> dict[str, float]:
        """Train to the end of the epoch; returns what was measured."""
        self.task.train()
        stream = Timed(self.train.epoch(self.at.epoch, self.at.batch, self.at.shift))
        sums = Sums(self.at, self.ranks.device)
        interval = whole = Interval(stream, self.at, self._utilisation)
        while (left := len(self.train) - self.at.batch) > 0:
            count = min(self.config.grad_accum_steps, left)
            outcome = self.updater(itertools.islice(stream, count), count)
            if outcome.finite and not outcome.images:
                # A streamed data set that is shorter than it said: nobody has read its sums yet.
                self._check_finite(sums.read())
                break
            sums.add(outcome)
            self.at.batch += count
            self.at.images += outcome.images
            # It comes before the device is waited for: a lost process is noticed here.
            stopping = self.ranks.any(self._stop.requested)
            self._after_update(outcome)
            if reporter is not None:
                reporter.step()
            saving = stopping or _due(self.at.updates, self.config.recovery_interval)
            number = -(-self.at.batch // self.config.grad_accum_steps)
            showing = left == count or _due(number, self.config.log_interval)
            if saving or showing:
                self._check_finite(sums.read())
                self._unreadable.check()
            if showing:
                values = interval.values(self.at, self.ranks)
                if reporter is not None:
                    reporter.interval(self.at, values, self._lr())
                    reporter.images(self.at, stream.last)
                interval = Interval(stream, self.at, self._utilisation)
            if stopping:
                self._save_and_stop()
            if saving:
                self.keeper.save_recovery()
        return whole.timing(self.at, self.ranks)

    def _save_and_stop(self) -> NoReturn:
        self.keeper.save_recovery()
        raise StoppedError(f"stopped as asked, and saved in {self.keeper.path}.")

    def _after_update(self, outcome: Outcome) -> None:
        if not outcome.finite:
            self.at.skipped += 1
            if self.at.skipped > self.config.skip_nonfinite:
                self._fail_nonfinite()
            _logger.warning(
                "the loss is not finite: skipped the update of epoch %d, batch %d; %d so far.",
                self.at.epoch,
                self.at.batch,
                self.at.skipped,
            )
        if not outcome.applied:
            return
        self.at.updates += 1
        self.task.update_ema(step=self.at.updates)
        if self.scheduler is not None:
            self.scheduler.step_update(self.at.updates)

    def _check_finite(self, loss_sum: float) -> None:
        if self.ranks.any(not math.isfinite(loss_sum)):
            self._fail_nonfinite()

    def _fail_nonfinite(self) -> None:
        raise RunFailedError(
            f"the loss is not finite at or before update {self.at.updates + 1} (epoch "
            f"{self.at.epoch}, batch {self.at.batch}), lr {self._lr():.4g}; "
            f"last good checkpoint: {self.keeper.last_saved or 'none'}."
        )

    def _finish_epoch(self) -> None:
        """Evaluate, write the epoch's row, and save."""
        epoch, config = self.at.epoch, self.config
        self.ranks.meet()
        share_norms(self.task, config, self.ranks)
        sums = torch.tensor([self.at.loss_sum, self.at.images], dtype=torch.float64)
        loss_sum, images = self.ranks.total(sums).tolist()
        check_trained(images, epoch, config.train_split)
        row: dict[str, Any] = {"epoch": epoch, "train_loss": loss_sum / max(images, 1)}
        row |= mean_norm(self.at)
        due = (epoch + 1) % config.val_interval == 0 or epoch + 1 == self.last_epoch
        if self.held_out is not None and (due or epoch + 1 in (config.save_epochs or [])):
            try:
                row |= evaluate_run(
                    self.task,
                    self.held_out,
                    config,
                    self.ranks,
                    self.updater.autocast,
                    after_batch=self._check_stop,
                )
            except _StopAskedError:
                self._save_and_stop()
        metric = self.state.metric(row)
        row |= {"lr": self._lr(), "skipped": self.at.skipped}
        if self.train.unreadable is not None:
            row["unreadable"] = int(self.train.unreadable.sum())
        self.state.at = Progress(
            epoch + 1,
            updates=self.at.updates,
            skipped=self.at.skipped,
            rows=[*self.at.rows, row],
        )
        if self.scheduler is not None:
            self.scheduler.step(epoch + 1, metric)
        self.keeper.save_epoch(epoch)

    def _check_stop(self) -> None:
        """Leave the evaluation, which can be longer than the time that is left."""
        if self.ranks.any(self._stop.requested):
            raise _StopAskedError

    def _best(self) -> Best:
        if self.held_out is None:
            return Best(None, self.at.epoch - 1, self.keeper.path / LAST)
        epoch, path = self.keeper.best
        row = next((row for row in self.at.rows if row["epoch"] == epoch), None)
        if epoch is None or row is None:
            raise RunFailedError(f"{self.keeper.path} holds no evaluated checkpoint.")
        top1 = max(row[name] for name in ("eval_top1", "eval_ema_top1") if name in row)
        return Best(top1, epoch, path)

    def _lr(self) -> float:
        groups = self.optimizer.param_groups
        return sum(float(group["lr"]) for group in groups) / len(groups)


def _due(count: int, interval: int) -> bool:
    return interval > 0 and count > 0 and count % interval == 0
