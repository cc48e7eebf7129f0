"""The model of a configuration: built, made ready for its device, and what does nothing with it."""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timm.layers import convert_splitbn_model, convert_sync_batchnorm, set_fast_norm
from timm.models import is_model, list_models, model_entrypoint, resolve_model_input_args
from timm.optim import get_optimizer_info
from timm.utils.model import freeze_batch_norm_2d
from torch import nn

from vit_ls.config import ConfigError, DataConfig, TrainConfig, asdict, nearest
from vit_ls.errors import blamed_on
from vit_ls.job.precision import mixes_precision
from vit_ls.replace import KINDS, new_parameters
from vit_ls.replace import replace_attention as put_attention
from vit_ls.run.classes import check_same_classes
from vit_ls.run.files import check_weights_file
from vit_ls.run.loading import built_from, load_weights, named_by
from vit_ls.run.weights import class_names, run_settings

_logger = logging.getLogger(__name__)


def check_model_name(name: str, flag: str = "--model") -> None:
    """Raise ConfigError for a name that timm does not know."""
    if ":" not in name and not is_model(name):
        end = nearest(name, list_models())
        raise ConfigError(f"{flag} must be a model that timm knows, got {name!r}{end}")


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
        ConfigError: The factory, or the model, refuses the arguments; or the weights to start from
            cannot be used.
    """
    set_fast_norm(config.fast_norm)
    make = partial(create, factory, **model_kwargs(config))
    if config.pretrained_path:
        path = Path(config.pretrained_path)
        check_weights_file("--pretrained-path", path)
        overlay = _classes_in(path, classes)
        with named_by("--pretrained-path"):
            model = made(
                config.model, lambda: built_from(make, path, overlay, weights=config.weights_asked)
            )
    else:
        model = made(config.model, make)
    if isinstance(config, TrainConfig):
        if config.initial_checkpoint:
            _start(model, Path(config.initial_checkpoint), classes)
        _set_classifier(model, config)
    return model


def create(
    factory: Callable[..., nn.Module],
    *args: Any,
    replace_attention: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """The model of a factory, with its attention replaced where that is asked for.

    Args:
        factory: timm's `create_model`.
        *args: Of the factory.
        replace_attention: As `model_kwargs` gives it; None leaves the attention as it is.
        **kwargs: Of the factory.

    Raises:
        ValueError: The attention cannot be replaced, or its options are none.
    """
    model = factory(*args, **kwargs)
    if not replace_attention:
        return model
    kind, options, keep = (replace_attention[key] for key in ("kind", "options", "keep"))
    try:
        attention = KINDS[kind](**options)
    except TypeError as error:
        raise ValueError(f"--attention-kwargs must be options of {kind}: {error}.") from error
    return put_attention(model, attention, keep=keep)


def made(name: str, make: Callable[[], nn.Module]) -> Any:
    """A model, or ConfigError for whatever its factory says of the arguments."""
    # Models have no error of their own for their arguments, and loading adds others.
    with blamed_on(f"model {name} cannot be built", ConfigError):
        return make()


def model_kwargs(config: DataConfig) -> dict[str, Any]:
    """Arguments for `create`, but for the weights to start from."""
    more: dict[str, Any] = {"global_pool": config.gp}
    if isinstance(config, TrainConfig):
        more |= {
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
            pretrained_cfg_overlay=dict(config.pretrained_cfg_overlay) or None,
            **_size(config),
            **config.model_kwargs,
        ),
        "pretrained": config.pretrained,
        "num_classes": config.num_classes,
        **{name: value for name, value in more.items() if value is not None},
        **_attention(config),
    }


def _attention(config: DataConfig) -> dict[str, Any]:
    """The argument of `create` that replaces a model's attention, or none."""
    if config.replace_attention is None:
        return {}
    wanted = {
        "kind": config.replace_attention,
        "options": dict(config.attention_kwargs),
        "keep": tuple(config.keep_attention or ()),
    }
    return {"replace_attention": wanted}


def _classes_in(path: Path, wanted: Mapping[str, int] | None) -> dict[str, int]:
    """The number of classes of a run's checkpoint, so that its classifier is kept where it fits."""
    found = class_names(path)
    if found and wanted and found != wanted:
        _logger.info("%s was trained on other classes: the classifier starts anew.", path)
        return {"num_classes": -1}
    classes = run_settings(path).get("num_classes")
    return {"num_classes": classes} if isinstance(classes, int) else {}


def _start(model: nn.Module, path: Path, classes: Mapping[str, int] | None) -> None:
    """Load the weights of `--initial-checkpoint`, which are trained on as they are."""
    flag = "--initial-checkpoint"
    check_weights_file(flag, path)
    check_same_classes(f"{flag} {path}", class_names(path), classes)
    with named_by(flag):
        load_weights(model, path, flag=flag)


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
        if config.freeze == "backbone":
            _freeze_backbone(model)
        elif config.freeze:
            _freeze_original(model)
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


def _freeze_original(model: nn.Module) -> None:
    """Leave only what the replaced attention added to train."""
    new = set(new_parameters(model))
    if not new:
        raise ConfigError(
            "--freeze original needs parameters that --replace-attention adds: a rank or slices."
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in new)


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
