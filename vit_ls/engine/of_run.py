"""A model as the run that wrote a checkpoint built it, for the programs that only use the model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vit_ls.config import ConfigError, ValidateConfig, inherit
from vit_ls.engine.models import model_kwargs
from vit_ls.engine.weights import run_settings


def as_trained(
    path: Path | None, name: str, *, file_flag: str = "--checkpoint", flag: str = "--model"
) -> dict[str, Any]:
    """Arguments for timm's `create_model` that make the model of the run which wrote a file.

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
