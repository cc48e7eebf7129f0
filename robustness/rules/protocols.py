"""How an image is prepared for the model: the three protocols, or the caller's own transform."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from timm.data import create_transform
from torchvision.transforms import functional as TF

from robustness.data.images import probe_picture
from robustness.errors import UsageError

Transform = Callable[[Image.Image], torch.Tensor]
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation, by channel."""

_PAPER = {"crop_pct": 224 / 256, "interpolation": "bicubic"}
_PROBES = ((224, 224), (300, 400), (32, 32))


@dataclass(frozen=True)
class Protocol:
    """A transform and what it does.

    Attributes:
        apply: The transform.
        description: For people.
        identity: Digest of what it makes of fixed pictures.
        pixels: The transform but for the normalisation: to values in [0, 1].
        normalisation: What it ends with; None for none.
    """

    apply: Transform
    description: str
    identity: str
    pixels: Transform
    normalisation: Normalisation | None = None

    @classmethod
    def of(
        cls,
        apply: Transform,
        description: str,
        pixels: Transform | None = None,
        normalisation: Normalisation | None = None,
    ) -> "Protocol":
        """Make one, with its identity.

        Raises:
            UsageError: The transform draws random numbers.
        """
        first, second = _fingerprint(apply), _fingerprint(apply)
        if first != second:
            raise UsageError("transform must give the same for the same image, and gives another.")
        return cls(apply, description, first, pixels or apply, normalisation)


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
    normalisation = (tuple(config["mean"]), tuple(config["std"]))
    config |= {"mean": (0.0,) * len(config["mean"]), "std": (1.0,) * len(config["std"])}
    pixels = create_transform(is_training=False, **config)
    return Protocol.of(transform, f"{how}; {statistics}", pixels, normalisation)


def own_protocol(name: str, transform: Transform, image_size: int | None) -> Protocol:
    """The caller's transform under the protocol `name`; what it does to fixed images is said.

    Images of a corruption benchmark are cropped already: a second crop gives another number, so
    that a transform that crops or resizes them is named beside it.
    """
    description = "the caller's transform"
    side = image_size if name == "unchanged" else None
    if side is not None and not _feeds_unchanged(transform, side):
        description += f", which does not feed the {side}x{side} images unchanged"
    return Protocol.of(transform, description)


def _feeds_unchanged(transform: Transform, side: int) -> bool:
    """Whether each channel that comes out is a scaled and shifted channel of what went in."""
    picture = probe_picture(side, side)
    given = TF.to_tensor(picture).double()
    found = transform(picture).double()
    if found.shape != given.shape:
        return False
    given, found = (t.flatten(1) - t.flatten(1).mean(1, keepdim=True) for t in (given, found))
    slope = (given * found).sum(1, keepdim=True) / (given**2).sum(1, keepdim=True)
    return bool(torch.allclose(found, slope * given, atol=1e-4 * float(found.abs().max())))


def _fingerprint(transform: Transform) -> str:
    whole = hashlib.sha256()
    for height, width in _PROBES:
        for mode in ("RGB", "L"):
            whole.update(_answer(transform, probe_picture(height, width).convert(mode)))
    return whole.hexdigest()[:32]


def _answer(transform: Transform, picture: Image.Image) -> bytes:
    """The tensor's shape and bytes; a transform need not take every picture, but one of them."""
    try:
        found = transform(picture)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        return type(error).__name__.encode()
    return f"{tuple(found.shape)} {found.dtype}".encode() + found.contiguous().numpy().tobytes()


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4g}" for value in values)
