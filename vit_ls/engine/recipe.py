"""Task, optimiser and schedule of a run, from timm's factories."""

import warnings
from typing import Any

import torch
from timm.data import create_transform
from timm.loss import create_classification_loss
from timm.optim import create_optimizer_v2, optimizer_kwargs
from timm.scheduler import create_scheduler_v2, scheduler_kwargs
from timm.task import (
    ClassificationTask,
    FeatureDistillationTask,
    LogitDistillationTask,
    TokenDistillationTask,
    TrainingTask,
)
from torch import nn

from vit_ls.config import ConfigError, TrainConfig


def check_recipe(config: TrainConfig) -> None:
    """Try loss, optimiser, schedule and augmentation on a stand-in, before data and model.

    Raises:
        ConfigError: One of timm's factories refuses its settings.
    """
    stand_in = nn.Linear(2, 2)
    tries = (
        ("the loss", lambda: create_classification_loss(**_loss_kwargs(config))),
        ("the optimiser", lambda: make_optimizer(stand_in, config, 1)),
        ("the schedule", lambda: make_schedule(torch.optim.SGD(stand_in.parameters()), config, 1)),
        ("--aa", lambda: create_transform(32, is_training=True, auto_augment=config.aa or None)),
    )
    for what, attempt in tries:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                attempt()
        # The factories have no error of their own: whatever they raise here is about the settings.
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise ConfigError(f"{what} cannot be made from these settings: {reason}") from error


def make_task(
    model: nn.Module, teacher: nn.Module | None, config: TrainConfig, device: torch.device
) -> TrainingTask:
    """What computes the loss: classification, or distillation from a teacher.

    Args:
        model: The model to train.
        teacher: The teacher, for distillation.
        config: Loss and distillation settings.
        device: Of the model.
    """
    loss = _loss_kwargs(config)
    if teacher is None:
        return ClassificationTask(model, criterion_kwargs=loss, device=device, verbose=False)
    teacher = teacher.to(device).requires_grad_(False)
    shared: dict[str, Any] = {
        "criterion_kwargs": loss,
        "distill_loss_weight": config.distill_loss_weight,
        "task_loss_weight": config.task_loss_weight,
        "device": device,
        "verbose": False,
    }
    if config.kd_distill_type == "feature":
        return FeatureDistillationTask(model, teacher, **shared)
    shared["temperature"] = config.kd_temperature
    if config.kd_distill_type == "token":
        return TokenDistillationTask(
            model, teacher, distill_type=config.kd_token_distill_type, **shared
        )
    return LogitDistillationTask(model, teacher, **shared)


def learning_rate(config: TrainConfig, world_size: int) -> float:
    """The peak rate: as given, or scaled from `lr_base` by the global batch as timm does."""
    if config.lr is not None:
        return config.lr
    ratio = config.batch_size * config.grad_accum_steps * world_size / config.lr_base_size
    adaptive = any(part in config.opt.lower() for part in ("ada", "lamb"))
    scale = config.lr_base_scale or ("sqrt" if adaptive else "linear")
    return config.lr_base * (ratio**0.5 if scale == "sqrt" else ratio)


def make_optimizer(model: nn.Module, config: TrainConfig, world_size: int) -> torch.optim.Optimizer:
    """The optimiser, with timm's groups for weight decay and layer-wise rates."""
    settings = optimizer_kwargs(config) | {"lr": learning_rate(config, world_size)}
    optimizer: torch.optim.Optimizer = create_optimizer_v2(model, **settings, **config.opt_kwargs)
    return optimizer


def make_schedule(
    optimizer: torch.optim.Optimizer, config: TrainConfig, updates_per_epoch: int
) -> tuple[Any, int]:
    """The schedule, or None, and the number of epochs with warm-up, cycles and cool-down."""
    scheduler, epochs = create_scheduler_v2(
        optimizer, **scheduler_kwargs(config), updates_per_epoch=updates_per_epoch
    )
    return scheduler, epochs


def _loss_kwargs(config: TrainConfig) -> dict[str, Any]:
    kwargs: dict[str, Any] = {"smoothing": config.smoothing, "soft_targets": config.mixes}
    if config.jsd_loss:
        kwargs |= {"loss_type": "jsd", "jsd_splits": config.aug_splits}
    if config.bce_loss:
        kwargs |= {
            "loss_type": "bce",
            "bce_sum": config.bce_sum,
            "bce_target_thresh": config.bce_target_thresh,
            "pos_weight": config.bce_pos_weight,
        }
    return kwargs
