"""One update of the weights."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from timm.task import TrainingTask
from timm.utils import NativeScaler, dispatch_clip_grad
from torch import Tensor

from vit_ls.config import TrainConfig
from vit_ls.engine.ranks import Ranks


class Outcome(NamedTuple):
    """What an update saw and did.

    Attributes:
        loss_sum: Sum of the losses over this process's images, on the device.
        images: Their number.
        applied: Whether the weights were changed.
        finite: False where a loss was not; always True where that is not checked at each update.
    """

    loss_sum: Tensor
    images: int
    applied: bool
    finite: bool


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
        self.scaler = NativeScaler(device=ranks.device.type) if half else None
        self._second_order = bool(getattr(optimizer, "is_second_order", False))
        # On a GPU, reading the loss would wait for it: there it is left to the log interval, unless
        # updates must be skipped one by one.
        self._checks = ranks.device.type == "cpu" or config.skip_nonfinite > 0

    def __call__(self, batches: Iterator[tuple[Tensor, Tensor]], count: int) -> Outcome:
        """Update once, from up to `count` batches whose gradients are added up."""
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        images, finite, applied = 0, True, True
        for number, (inputs, targets) in enumerate(batches, 1):
            last = number == count
            if not finite:
                continue
            with nullcontext() if last else self.task.no_sync():
                loss = self._loss(inputs, targets)
                if self._checks and self.ranks.any(not bool(torch.isfinite(loss))):
                    finite = applied = False
                    continue
                applied = self._backward(loss / count, step=last)
            loss_sum += loss.detach() * len(inputs)
            images += len(inputs)
        self.optimizer.zero_grad()
        return Outcome(loss_sum, images, applied and images > 0, finite)

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        if self.config.channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with self.autocast:
            loss: Tensor = self.task(inputs, targets)["loss"]
        return loss

    def _backward(self, loss: Tensor, *, step: bool) -> bool:
        """Add to the gradients; on `step`, change the weights, unless the scaler refuses."""
        clip = self.config.clip_grad
        parameters = list(self.task.get_clip_parameters("agc" in self.config.clip_mode))
        if self.scaler is None:
            loss.backward(create_graph=self._second_order)
            if step:
                if clip is not None:
                    dispatch_clip_grad(parameters, clip, mode=self.config.clip_mode)
                self.optimizer.step()
            return True
        before = self.scaler.state_dict()["scale"] if step else 0.0
        self.scaler(
            loss,
            self.optimizer,
            clip_grad=clip,
            clip_mode=self.config.clip_mode,
            parameters=parameters,
            create_graph=self._second_order,
            need_update=step,
        )
        # The scaler lowers its scale exactly where it has skipped the step.
        return not step or self.scaler.state_dict()["scale"] >= before


def autocast(amp: bool | None, dtype: str, device: torch.device) -> Any:
    """Context of mixed precision: as asked for, or on a GPU."""
    if amp or (amp is None and device.type == "cuda"):
        return torch.autocast(device.type, dtype=getattr(torch, dtype))
    return nullcontext()
