"""A model as the run that wrote a checkpoint built it, for the programs that only use the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timm import create_model

from vit_ls.config import ConfigError, ValidateConfig, inherit
from vit_ls.data.inputs import input_config
from vit_ls.models.wrappers import Which
from vit_ls.run.building import create, made, model_kwargs
from vit_ls.run.loading import load_weights
from vit_ls.run.weights import class_names, run_settings


def as_trained(
    path: Path | None, name: str, *, file_flag: str = "--checkpoint", flag: str = "--model"
) -> dict[str, Any]:
    """Arguments for `create` that make the model of the run which wrote a file.

    Weights do not tell a window, a pooling or a normalisation. The arguments are those with which
    validate.py makes it; how its images were prepared is in `pretrained_cfg_overlay`, from where
    timm's `resolve_model_data_config` reads it.

    Args:
        path: The checkpoint; None, or a file of no run, gives no arguments.
        name: Of the model that is to take the weights.
        file_flag: Names the file in an error.
        flag: Names the model in an error.

    Raises:
        ConfigError: The run trained another model.
        CheckpointError: There is no such file.
    """
    settings = run_settings(path) if path else {}
    if not settings:
        return {}
    was = str(settings["model"])
    if was.partition(".")[0] != name.partition(".")[0]:
        raise ConfigError(
            f"{file_flag} {path} is of a run of {was}; {flag} must be that, got {name}."
        )
    config = inherit(ValidateConfig(model=name), {"model"}, settings)
    kwargs = model_kwargs(config)
    for key in ("model_name", "pretrained", "pretrained_cfg"):
        kwargs.pop(key, None)
    return kwargs | {"pretrained_cfg_overlay": _images(config)}


def channels(settings: Mapping[str, Any]) -> int | None:
    """The channels that settings ask a model for, where they do."""
    size = settings.get("input_size")
    found: int | None = size[0] if size else settings.get("in_chans")
    return found


def _images(config: ValidateConfig) -> dict[str, Any]:
    """What a run was told of its images, as entries of timm's `pretrained_cfg`."""
    planes = channels(vars(config)) or 3
    told: dict[str, Any] = {
        "crop_pct": config.crop_pct,
        "test_crop_pct": config.crop_pct,  # that for tests is of the published weights, as below
        "crop_mode": config.crop_mode,
        "interpolation": config.interpolation,
    }
    for key, value in (("mean", config.mean), ("std", config.std)):
        if value:
            told[key] = tuple(value) * (planes if len(value) == 1 else 1)
    size = config.input_size or (config.img_size and [planes, config.img_size, config.img_size])
    if size:
        told |= {"input_size": tuple(size), "test_input_size": tuple(size)}
    return {key: value for key, value in told.items() if value is not None}


@dataclass(frozen=True)
class Run:
    """What a checkpoint says of the run that wrote it.

    Attributes:
        path: The checkpoint.
        config: The run's settings.
        classes: Index of each class, where the data had names for them.
        data_config: How validate.py prepares images for it, for timm's `create_transform`.
        weights: Which weights the model has: "raw", or "ema" for their average.
    """

    path: Path
    config: Mapping[str, Any]
    classes: Mapping[str, int] | None
    data_config: Mapping[str, Any]
    weights: Which


def built(
    path: Path,
    name: str,
    *,
    weights: str = "best",
    changes: Mapping[str, Any] | None = None,
) -> tuple[Any, Which]:
    """The model of a file of weights, as its run built it where it is of a run.

    Args:
        path: The file.
        name: Of the model.
        weights: "best", "ema" or "raw"; see `which_weights`.
        changes: Arguments of the model that are to be others than the run's.

    Returns:
        The model in eval mode, and which weights it has.

    Raises:
        ConfigError: The run trained another model, or the arguments are refused.
        CheckpointError: The file cannot be read, or does not fit.
    """
    kwargs = as_trained(path, name) | dict(changes or {})
    model = made(name, lambda: create(create_model, name, **kwargs))
    which = load_weights(model, path, weights=weights)
    return model.eval(), which


def load(path: str | Path, *, weights: str = "best") -> Any:
    """The model of a checkpoint of train.py, as its run built it, in eval mode.

    Args:
        path: The checkpoint.
        weights: "best" takes those that the run scored best with, "ema" the average, "raw" the
            weights themselves.

    Returns:
        The model; its attribute `run` is a `Run`.

    Raises:
        ConfigError: A ValueError: the file is of no run, or has no such weights.
        CheckpointError: A RuntimeError: the file cannot be read.
    """
    path = Path(path)
    settings = run_settings(path)
    if not settings:
        raise ConfigError(
            f"{path} is of no run of train.py, so that its model is not known: make it by "
            "timm.create_model(NAME, checkpoint_path=FILE)."
        )
    model, which = built(path, settings["model"], weights=weights)
    config = inherit(ValidateConfig(), set(), settings)
    data_config = input_config(config, model, use_test_size=True)
    model.run = Run(path, settings, class_names(path), data_config, which)
    return model
