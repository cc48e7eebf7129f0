"""A model from a configuration: arguments for timm's `create_model`, and weights to start from."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timm.layers import set_fast_norm
from timm.models import is_model, list_models, model_entrypoint, resolve_model_input_args
from torch import nn

from vit_ls.boundary import blamed_on
from vit_ls.config import ConfigError, DataConfig, TrainConfig, asdict, nearest
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
    make = partial(factory, **model_kwargs(config))
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


def made(name: str, make: Callable[[], nn.Module]) -> Any:
    """A model, or ConfigError for whatever its factory says of the arguments."""
    # Models have no error of their own for their arguments, and loading adds others.
    with blamed_on(f"model {name} cannot be built", ConfigError):
        return make()


def model_kwargs(config: DataConfig) -> dict[str, Any]:
    """Arguments for `create_model`, but for the weights to start from."""
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
    }


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
