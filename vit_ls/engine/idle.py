"""Settings that do nothing with a model, an optimiser or a device, which only these show."""

import logging
from collections.abc import Iterator

import torch
from timm.optim import get_optimizer_info
from torch import nn

from vit_ls.config import DataConfig, TrainConfig
from vit_ls.engine.update import mixes_precision

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
    full = not mixes_precision(config.amp, device)
    if config.fast_norm and full:
        yield "--fast-norm", "--amp"
    elif config.fast_norm and not any(getattr(one, "_fast_norm", False) for one in model.modules()):
        yield "--fast-norm", f"norms of timm's, {config.model} has none"
    # Where it is off by choice, that was said when the settings were read.
    if config.amp is None and config.amp_dtype != DataConfig.amp_dtype and full:
        yield "--amp-dtype", "--amp"
    if isinstance(config, TrainConfig):
        if config.sync_bn and not torch.distributed.is_initialized():
            yield "--sync-bn", "several processes"
        yield from idle_of_optimizer(config)


def idle_of_optimizer(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """The settings that timm's optimiser of that name does not take, and what each would need."""
    taken = get_optimizer_info(config.opt.lower().rpartition("_")[2])  # less "lookahead_"
    for flag, changed, takes, what in (
        ("--opt-eps", config.opt_eps is not None, taken.has_eps, "an epsilon"),
        ("--opt-betas", config.opt_betas is not None, taken.has_betas, "betas"),
        ("--momentum", config.momentum != TrainConfig.momentum, taken.has_momentum, "a momentum"),
    ):
        if changed and not takes:
            yield flag, f"an --opt that has {what}, {config.opt} has none"
