"""How an image is prepared for the model: the three protocols."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from timm.data import create_transform

_PAPER = {"crop_pct": 224 / 256, "interpolation": "bicubic"}


@dataclass(frozen=True)
class Protocol:
    """A transform and what it does, in words that are part of the cache's key."""

    apply: Callable[[Image.Image], torch.Tensor]
    description: str


def protocol_for(name: str, data_config: dict[str, Any], image_size: int | None) -> Protocol:
    """Build one protocol for a model.

    Args:
        name: "model" (the model's own resize and crop), "unchanged" (nothing but a resize to the
            model's input where that is not the image's size) or "paper" (resize 256 bicubic, crop).
        data_config: timm's data configuration of the model.
        image_size: Side of the benchmark's images, where it is fixed.
    """
    config = {
        "input_size": data_config["input_size"],
        "interpolation": data_config["interpolation"],
        "mean": data_config["mean"],
        "std": data_config["std"],
        "crop_pct": data_config["crop_pct"],
        "crop_mode": "center",
    }
    height, width = config["input_size"][-2:]
    size = f"{height}x{width}"
    if name == "unchanged":
        config["crop_pct"] = 1.0
        same = image_size is None or image_size == height == width
        how = f"fed unchanged at {size}" if same else (
            f"resized {image_size}x{image_size} -> {size} {config['interpolation']}, no crop"
        )  # fmt: skip
    else:
        config |= _PAPER if name == "paper" else {"crop_mode": data_config["crop_mode"]}
        how = (
            f"resize and crop to {size}, {config['crop_mode']}, "
            f"crop_pct {config['crop_pct']:.4g}, {config['interpolation']}"
        )
    statistics = f"mean {_numbers(config['mean'])}, std {_numbers(config['std'])}"
    transform = create_transform(is_training=False, **config)
    return Protocol(transform, f"{how}; {statistics}")


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4g}" for value in values)
