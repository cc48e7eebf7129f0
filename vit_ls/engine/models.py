"""What follows from a configuration once its model is made: frozen parts, compiler, layout."""

from typing import Any

import torch
from timm.layers import convert_splitbn_model, convert_sync_batchnorm
from timm.utils.model import freeze_batch_norm_2d
from torch import nn

from vit_ls.config import ConfigError, DataConfig, TrainConfig
from vit_ls.engine.idle import warn_of_idle


def check_compiler(config: DataConfig) -> None:
    """Raise ConfigError for a backend or a mode that torch.compile does not know or cannot use."""
    if not config.torchcompile:
        return
    try:
        # Nothing is compiled before a first forward, but both names are looked up.
        torch.compile(nn.Identity(), backend=config.torchcompile, mode=config.torchcompile_mode)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"--torchcompile {config.torchcompile} cannot be used: {reason}"
        ) from error
    mode, steps = config.torchcompile_mode, getattr(config, "grad_accum_steps", 1)
    # Asked for last, because only the name of a known mode gives options.
    if mode and steps > 1 and torch._inductor.list_mode_options(mode).get("triton.cudagraphs"):
        raise ConfigError(
            f"--torchcompile-mode {mode} cannot go with --grad-accum-steps {steps}: a CUDA graph "
            "writes each gradient over the one before it."
        )


def prepared(model: nn.Module, config: DataConfig, device: torch.device) -> nn.Module:
    """The model on its device, as the configuration wants it: frozen parts, memory, layout."""
    warn_of_idle(model, config, device)
    if isinstance(config, TrainConfig):
        if config.freeze:
            _freeze_backbone(model)
        if config.grad_checkpointing:
            set_grad_checkpointing: Any = getattr(model, "set_grad_checkpointing", None)
            if set_grad_checkpointing is None:
                raise ConfigError("--grad-checkpointing: the model has no set_grad_checkpointing.")
            set_grad_checkpointing(enable=True)
        if config.sync_bn and torch.distributed.is_initialized():
            if device.type == "cpu":
                raise ConfigError(
                    "--sync-bn needs a GPU for each process: torch has it there alone."
                )
            # Not torch's own: it would drop the activation that timm's norms hold.
            model = convert_sync_batchnorm(model)
        if config.split_bn:
            model = convert_splitbn_model(model, max(config.aug_splits, 2))
    elif config.torchcompile:
        model.compile(backend=config.torchcompile, mode=config.torchcompile_mode)
    model = model.to(device)
    if config.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model


def _freeze_backbone(model: nn.Module) -> None:
    """Leave only the classifier to train; batch norm keeps its statistics."""
    get_classifier: Any = getattr(model, "get_classifier", None)
    if get_classifier is None:
        raise ConfigError("--freeze backbone needs a model with get_classifier().")
    for module in model.children():
        freeze_batch_norm_2d(module)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for parameter in get_classifier().parameters():
        parameter.requires_grad_(True)
