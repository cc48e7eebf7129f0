"""How an image is prepared for the model: the three protocols, or the caller's own transform."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image
from timm.data import create_transform
from torchvision.transforms import functional as TF

from robustness.data.images import probe_picture
from robustness.data.inputs import as_input, probe_pictures
from robustness.rules.geometry import geometry
from robustness.rules.randomness import drawing
from vit_ls.config import ConfigError
from vit_ls.errors import one_line

Transform = Callable[[Image.Image], torch.Tensor]
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation, by channel."""

DRAWS = 8
"""How often the caller's transform is tried on the same pictures."""

_PAPER = {"crop_pct": 224 / 256, "interpolation": "bicubic"}


@dataclass(frozen=True)
class Protocol:
    """A transform and what it does.

    Attributes:
        apply: The transform.
        description: For people.
        identity: Digest of what it makes of fixed pictures; None where it refuses one of them, so
            that it cannot be told from another transform.
        pixels: The transform but for the normalisation: to values in [0, 1].
        normalisation: What it ends with; None for none.
        probes: What it makes of the fixed pictures that it takes.
        refusal: What it said to the first picture that it refuses; "" where it takes all.
    """

    apply: Transform
    description: str
    identity: str | None
    pixels: Transform
    normalisation: Normalisation | None = None
    probes: tuple[torch.Tensor, ...] = ()
    refusal: str = ""

    @classmethod
    def of(
        cls,
        apply: Transform,
        description: str,
        image_size: int | None,
        *,
        channels: int = 3,
        draws: int = 1,
        pixels: Transform | None = None,
        normalisation: Normalisation | None = None,
    ) -> "Protocol":
        """Make one, with its identity.

        Args:
            apply: The transform.
            description: For people.
            image_size: Side of the pictures that it is for; None where they vary.
            channels: 3 for RGB, 1 for grey.
            draws: How often it is tried, to find random numbers.
            pixels: The transform but for the normalisation.
            normalisation: What it ends with.

        Raises:
            ConfigError: The transform draws random numbers, or gives no tensors of images.
        """
        pictures = probe_pictures(image_size, "L" if channels == 1 else "RGB")
        (probes, refusal), drew = drawing(lambda: _try(apply, pictures), 0)
        if drew:
            raise ConfigError(
                "transform must give the same for the same image, and draws random numbers."
            )
        identity = _digest(probes)
        for seed in range(1, draws):
            (again, _), _ = drawing(lambda: _try(apply, pictures), seed)
            if _digest(again) != identity:
                raise ConfigError(
                    "transform must give the same for the same image, and gives another."
                )
        known = None if refusal else identity
        return cls(apply, description, known, pixels or apply, normalisation, probes, refusal)


def protocol_for(name: str, data_config: dict[str, Any], image_size: int | None) -> Protocol:
    """Build one protocol for a model.

    Args:
        name: "model" (the model's own resize and crop), "unchanged" (nothing but a resize to the
            model's input where that is not the image's size; images of other proportions lose what
            is beside the centre) or "paper" (resize 256 bicubic, crop).
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
    channels = config["input_size"][0]
    if name == "unchanged":
        config["crop_pct"] = 1.0
    else:
        config |= _PAPER if name == "paper" else {"crop_mode": data_config["crop_mode"]}
    statistics = f"mean {_numbers(config['mean'])}, std {_numbers(config['std'])}"
    transform = create_transform(is_training=False, **config)
    how = geometry(transform, image_size, channels=channels)
    normalisation = (tuple(config["mean"]), tuple(config["std"]))
    config |= {"mean": (0.0,) * len(config["mean"]), "std": (1.0,) * len(config["std"])}
    pixels = create_transform(is_training=False, **config)
    return Protocol.of(
        transform,
        f"{how}; {statistics}",
        image_size,
        channels=channels,
        pixels=pixels,
        normalisation=normalisation,
    )


def own_protocol(
    name: str, transform: Transform, image_size: int | None, *, channels: int = 3
) -> Protocol:
    """The caller's transform under the protocol `name`; what it does to fixed images is said.

    Images of a corruption benchmark are cropped already: a second crop gives another number, so
    that a transform that crops or resizes them is named beside it.
    """
    found = Protocol.of(
        transform, "the caller's transform", image_size, channels=channels, draws=DRAWS
    )
    side = image_size if name == "unchanged" and not found.refusal else None
    if side is None or _feeds_unchanged(transform, side):
        return found
    more = f", which does not feed the {side}x{side} images unchanged"
    return replace(found, description=found.description + more)


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


Tried = tuple[tuple[torch.Tensor, ...], str]
"""What a transform makes of the pictures that it takes, and what it said to the first other one."""


def _try(transform: Transform, pictures: Sequence[Image.Image]) -> Tried:
    found, refusal = [], ""
    for picture in pictures:
        try:
            found.append(as_input(transform, picture.copy()).detach().clone())
        except ConfigError:
            raise
        # Whatever a foreign transform raises for a picture that it does not take.
        except Exception as error:
            refusal = refusal or (
                f"{type(error).__name__} for a picture of {picture.height}x{picture.width}: "
                f"{one_line(error)}"
            )
    return tuple(found), refusal


def _digest(tensors: Sequence[torch.Tensor]) -> str:
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        whole.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()[:32]


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4g}" for value in values)
