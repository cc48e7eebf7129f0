"""What a model takes: size, channels and normalisation, held against the images' colour mode."""

from dataclasses import asdict
from typing import Any

from timm.data import resolve_data_config
from torch import nn

from vit_ls.config import ConfigError, DataConfig

_CHANNELS = {"L": 1, "RGB": 3}


def image_mode(config: DataConfig) -> str:
    """Pillow's colour mode of the images: as asked for, or by the number of channels.

    Raises:
        ConfigError: No colour mode has as many channels.
    """
    channels = config.input_size[0] if config.input_size is not None else config.in_chans
    if None not in (config.input_size, config.in_chans) and channels != config.in_chans:
        raise ConfigError(
            f"--in-chans must be the first of --input-size, got {config.in_chans} and {channels}."
        )
    mode = config.input_img_mode or ("L" if channels == 1 else "RGB")
    _check_channels(mode, channels or 3)
    return mode


def input_config(
    config: DataConfig, model: nn.Module, *, use_test_size: bool = False
) -> dict[str, Any]:
    """Timm's `resolve_data_config`, with the channels that the model was built for.

    timm takes them from the model's published config where no size is given.

    Raises:
        ConfigError: Channels, colour mode or normalisation do not fit together.
    """
    try:
        found: dict[str, Any] = resolve_data_config(
            asdict(config), model=model, use_test_size=use_test_size
        )
    except AssertionError as error:
        raise ConfigError(
            "--mean and --std must have one value, or one for each channel; got "
            f"{config.mean}, {config.std}."
        ) from error
    if config.in_chans is not None:
        found["input_size"] = (config.in_chans, *found["input_size"][1:])
    _check_channels(image_mode(config), found["input_size"][0])
    return found


def _check_channels(mode: str, channels: int) -> None:
    if _CHANNELS[mode] != channels:
        raise ConfigError(
            f"the model must take the {_CHANNELS[mode]} channels of {mode} images, got {channels}: "
            "set --in-chans 1 with --input-img-mode L, or 3 with RGB."
        )
