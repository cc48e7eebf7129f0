"""What a configuration asks of a model: arguments for timm's `create_model`, and what follows."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from timm.layers import convert_splitbn_model, convert_sync_batchnorm, set_fast_norm
from timm.models import (
    is_model,
    list_models,
    model_entrypoint,
    resolve_model_input_args,
)
from timm.utils.model import freeze_batch_norm_2d
from torch import nn

from vit_ls.boundary import blamed_on
from vit_ls.config import ConfigError, DataConfig, TrainConfig, asdict, nearest
from vit_ls.engine.classes import check_same_classes
from vit_ls.engine.idle import warn_of_idle
from vit_ls.engine.weights import check_weights_file, class_names, classes_in

_logger = logging.getLogger(__name__)


def check_model_name(name: str, flag: str = "--model") -> None:
    """Raise ConfigError for a name that timm does not know."""
    if ":" not in name and not is_model(name):
        end = nearest(name, list_models())
        raise ConfigError(f"{flag} must be a model that timm knows, got {name!r}{end}")


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


def make_model(
    factory: Callable[..., nn.Module],
    config: DataConfig,
    *,
    classes: Mapping[str, int] | None = None,
) -> Any:
    """The model that a configuration asks for, made by timm's factory.

    Args:
        factory: timm's `create_model`.
        config: The settings.
        classes: Of the data, where it has names for them: weights of a run with others keep their
            classifier to themselves.

    Raises:
        ConfigError: The factory, or the model, refuses the arguments.
    """
    set_fast_norm(config.fast_norm)
    model = made(config.model, lambda: factory(**model_kwargs(config, classes)))
    if isinstance(config, TrainConfig):
        _set_classifier(model, config)
    return model


def made(name: str, make: Callable[[], nn.Module]) -> Any:
    """A model, or ConfigError for whatever its factory says of the arguments."""
    # Models have no error of their own for their arguments, and loading adds others.
    with blamed_on(f"model {name} cannot be built", ConfigError):
        return make()


def model_kwargs(config: DataConfig, classes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Arguments for `create_model`; `classes` as in `make_model`."""
    overlay = dict(config.pretrained_cfg_overlay)
    if isinstance(config, TrainConfig) and config.initial_checkpoint:
        start = Path(config.initial_checkpoint)
        check_weights_file("--initial-checkpoint", start)
        check_same_classes(f"--initial-checkpoint {start}", class_names(start), classes)
    if config.pretrained_path:
        path = Path(config.pretrained_path)
        check_weights_file("--pretrained-path", path)
        overlay |= {"file": config.pretrained_path, **classes_in(path, classes)}
    more: dict[str, Any] = {"global_pool": config.gp}
    if isinstance(config, TrainConfig):
        more |= {
            "checkpoint_path": config.initial_checkpoint or None,
            "drop_rate": config.drop,
            "drop_path_rate": config.drop_path,
            "drop_block_rate": config.drop_block,
            "bn_momentum": config.bn_momentum,
            "bn_eps": config.bn_eps,
        }
    return {
        **resolve_model_input_args(
            config.model,
            {name: value for name, value in asdict(config).items() if value is not None},
            pretrained_cfg_overlay=overlay or None,
            **_size(config),
            **config.model_kwargs,
        ),
        "pretrained": config.pretrained or bool(config.pretrained_path),
        "num_classes": config.num_classes,
        **{name: value for name, value in more.items() if value is not None},
    }


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


def _size(config: DataConfig) -> dict[str, Any]:
    """The input size, for this package's models: timm hands it only to models of a fixed size.

    Ours take any size, but make their position tables for the one that they are told.
    """
    size = config.input_size[1:] if config.input_size else config.img_size
    known = ":" not in config.model and is_model(config.model)
    ours = known and model_entrypoint(config.model).__module__.startswith("vit_ls.")
    return {"img_size": size} if ours and size and "img_size" not in config.model_kwargs else {}


def _set_classifier(model: nn.Module, config: TrainConfig) -> None:
    """Scale the classifier's first values and set its bias, where that is wanted."""
    scale, bias = config.head_init_scale, config.head_init_bias
    if scale is None and bias is None:
        return
    get_classifier: Any = getattr(model, "get_classifier", tuple)
    found = get_classifier()
    heads = [found] if isinstance(found, nn.Module) else list(found)
    parameters = [pair for head in heads for pair in head.named_parameters()]
    biases = [one for name, one in parameters if name.endswith("bias")]
    if not parameters or (bias is not None and not biases):
        raise ConfigError("--head-init-scale and -bias need a model with a classifier that has it.")
    with torch.no_grad():
        if scale is not None:
            for _, one in parameters:
                one.mul_(scale)
        if bias is not None:
            for one in biases:
                one.fill_(bias)


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
