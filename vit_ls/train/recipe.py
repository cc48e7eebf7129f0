"""Task, optimiser and schedule of a run, from timm's factories."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
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
from vit_ls.errors import blamed_on
from vit_ls.run.building import make_model


def _settings_of(what: str) -> AbstractContextManager[None]:
    """Puts what a factory of timm's refuses down to its settings."""
    return blamed_on(f"{what} cannot be made from these settings", ConfigError)


def check_recipe(factory: Callable[..., nn.Module], config: TrainConfig) -> None:
    """Try loss, optimiser, schedule and augmentation, before the data is opened.

    The optimiser is tried on the run's own model, whose tensors are on the meta device, and what is
    refused there on a plain layer too: a model that cannot be made there proves nothing.

    Args:
        factory: timm's `create_model`.
        config: The settings.

    Raises:
        ConfigError: One of timm's factories refuses its settings.
    """
    stand_in = nn.Linear(2, 2)
    with _quiet():
        with _settings_of("the loss"):
            create_classification_loss(**_loss_kwargs(config))
        with _settings_of("--aa"):
            create_transform(32, is_training=True, auto_augment=config.aa or None)
        with _settings_of("the schedule"):
            make_schedule(torch.optim.SGD(stand_in.parameters()), config, 1)
        try:
            make_optimizer(outline(factory, config), config, 1)
        except Exception:
            make_optimizer(stand_in, config, 1)


def outline(
    factory: Callable[..., nn.Module], config: TrainConfig, device: str = "meta"
) -> nn.Module:
    """The model without the weights to start from: on the meta device, without any values."""
    bare = replace(config, pretrained=False, pretrained_path=None, initial_checkpoint="")
    with torch.device(device):
        model: nn.Module = make_model(factory, bare)
        return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to itself what a trial says: the run says it again."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


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
        student_dim, teacher_dim = config.kd_student_feature_dim, config.kd_teacher_feature_dim
        return FeatureDistillationTask(
            model,
            teacher,
            student_feature_dim=_feature_dim(model, student_dim, "--kd-student-feature-dim"),
            teacher_feature_dim=_feature_dim(teacher, teacher_dim, "--kd-teacher-feature-dim"),
            **shared,
        )
    shared["temperature"] = config.kd_temperature
    if config.kd_distill_type == "token":
        if not hasattr(model, "set_distilled_training"):
            raise ConfigError(
                "--kd-distill-type token needs a model with a distillation token, as "
                f"deit_tiny_distilled_patch16_224 has, got {config.model}."
            )
        return TokenDistillationTask(
            model, teacher, distill_type=config.kd_token_distill_type, **shared
        )
    return LogitDistillationTask(model, teacher, loss_type=config.kd_loss_type, **shared)


def _feature_dim(model: nn.Module, asked: int | None, flag: str) -> int | None:
    """The width of a model's features before the classifier, where it was given."""
    known = getattr(model, "head_hidden_size", None) or getattr(model, "num_features", None)
    if asked is not None and known is not None and asked != known:
        raise ConfigError(f"{flag} must be {known}, the width of that model, got {asked}.")
    return asked


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
    if _fuses(model, config):
        settings["fused"] = True
    with _settings_of("the optimiser"):
        optimizer: torch.optim.Optimizer = create_optimizer_v2(
            model, **settings, **config.opt_kwargs
        )
    return optimizer


def _fuses(model: nn.Module, config: TrainConfig) -> bool:
    """Whether AdamW takes PyTorch's one kernel for all: on a GPU, where nothing else is asked."""
    if {"fused", "foreach", "capturable", "differentiable"} & config.opt_kwargs.keys():
        return False
    return config.opt.lower() == "adamw" and all(p.is_cuda for p in model.parameters())


def make_schedule(
    optimizer: torch.optim.Optimizer, config: TrainConfig, updates_per_epoch: int
) -> tuple[Any, int]:
    """The schedule, or None, and the number of epochs with warm-up, cycles and cool-down."""
    with _settings_of("the schedule"):
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
