"""Settings that do nothing with a model or on a device, which only building them shows."""

import logging
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import nn

from vit_ls.config import DataConfig, TrainConfig
from vit_ls.engine.update import autocast

_logger = logging.getLogger(__name__)


def warn_of_idle(model: nn.Module, config: DataConfig, device: torch.device) -> None:
    """Name the settings that are on and change nothing.

    Args:
        model: As it was built.
        config: The settings.
        device: That the model will run on.
    """
    for flag, needs in _idle(model, config, device):
        _logger.warning("%s has no effect: it needs %s.", flag, needs)


def _idle(model: nn.Module, config: DataConfig, device: torch.device) -> Iterator[tuple[str, str]]:
    full = isinstance(autocast(config.amp, config.amp_dtype, device), nullcontext)
    if config.fast_norm and full:
        yield "--fast-norm", "--amp"
    elif config.fast_norm and not any(getattr(one, "_fast_norm", False) for one in model.modules()):
        yield "--fast-norm", f"norms of timm's, {config.model} has none"
    # Where it is off by choice, that was said when the settings were read.
    if config.amp is None and config.amp_dtype != DataConfig.amp_dtype and full:
        yield "--amp-dtype", "--amp"
    if (
        isinstance(config, TrainConfig)
        and config.sync_bn
        and not torch.distributed.is_initialized()
    ):
        yield "--sync-bn", "several processes"
