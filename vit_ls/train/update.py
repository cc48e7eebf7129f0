"""One update of the weights."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import torch
from timm.task import TrainingTask
from timm.utils import dispatch_clip_grad
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, get_total_norm

from vit_ls.config import TrainConfig
from vit_ls.job.precision import autocast
from vit_ls.job.ranks import Ranks


class Outcome(NamedTuple):
    """What an update saw and did.

    Attributes:
        loss_sum: Sum of the losses over this process's images, on the device.
        images: Their number.
        applied: Whether the weights were changed.
        finite: False where a loss was not; always True where that is not checked at each update.
        norm: L2 norm of the gradients before clipping, on the device; None where it is not needed.
    """

    loss_sum: Tensor
    images: int
    applied: bool
    finite: bool
    norm: Tensor | None


class Updater:
    """Makes updates of a task's weights.

    Args:
        task: Computes the loss.
        optimizer: Changes the weights.
        config: Precision, clipping, memory layout.
        ranks: The processes; they skip an update together.
    """

    def __init__(
        self,
        task: TrainingTask,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        ranks: Ranks,
    ) -> None:
        self.task, self.optimizer, self.config, self.ranks = task, optimizer, config, ranks
        self.autocast = autocast(config.amp, config.amp_dtype, ranks.device)
        half = config.amp_dtype == "float16" and not isinstance(self.autocast, nullcontext)
        self.scaler = torch.amp.GradScaler(ranks.device.type) if half else None
        self._scale: float | None = None
        self._second_order = bool(getattr(optimizer, "is_second_order", False))
        # On a GPU, reading the loss would wait for it: there it is left to the log interval, unless
        # updates must be skipped one by one.
        self._checks = ranks.device.type == "cpu" or config.skip_nonfinite > 0

    def __call__(self, batches: Iterator[tuple[Tensor, Tensor]], count: int) -> Outcome:
        """Update once, from up to `count` batches whose gradients are added up."""
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        images, finite, applied = 0, True, False
        norm: Tensor | None = None
        for number, (inputs, targets) in enumerate(batches, 1):
            last = number == count
            if not finite:
                continue
            with nullcontext() if last else self.task.no_sync():
                loss = self._loss(inputs, targets)
                if self._checks and self._broken(loss):
                    finite = False
                    continue
                self._scaled(loss / count).backward(create_graph=self._second_order)
            loss_sum += loss.detach() * len(inputs)
            images += len(inputs)
            if last:
                norm, applied = self._step()
        self.optimizer.zero_grad()
        return Outcome(loss_sum, images, applied, finite, norm)

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if self.config.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with self.autocast:
            loss: Tensor = self.task(inputs, targets)["loss"]
        return loss

    def _broken(self, loss: Tensor) -> bool:
        """Whether a loss is not finite in any process."""
        if loss.device.type != "cpu":
            self.ranks.look_around()
        return self.ranks.any(not bool(torch.isfinite(loss)))

    def _scaled(self, loss: Tensor) -> Tensor:
        return loss if self.scaler is None else self.scaler.scale(loss)

    def _step(self) -> tuple[Tensor | None, bool]:
        """Clip the gradients and change the weights, unless the scaler refuses.

        Returns:
            The norm of the gradients, if it was computed, and whether the weights were changed.
        """
        if self.scaler is None:
            norm = self._clip()
            self.optimizer.step()
            return norm, True
        if self._scale is None:
            self._scale = self.scaler.get_scale()
        self.scaler.unscale_(self.optimizer)
        norm = self._clip()
        self.ranks.look_around()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        # The scaler lowers its scale exactly where it has skipped the step. Reading it waits for
        # the device, as the step has done for its own check; it is read once.
        before, self._scale = self._scale, self.scaler.get_scale()
        return norm, self._scale >= before

    def _clip(self) -> Tensor | None:
        """Clip the gradients; returns their norm before that, where it is known or wanted."""
        clip, mode = self.config.clip_grad, self.config.clip_mode
        if clip is not None and mode == "norm":
            return clip_grad_norm_(self.task.get_clip_parameters(), clip)
        norm: Tensor | None = None
        if self.config.log_grad_norm:
            parameters = self.task.get_clip_parameters()
            norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
        if clip is not None:
            dispatch_clip_grad(self.task.get_clip_parameters("agc" in mode), clip, mode=mode)
        return norm
