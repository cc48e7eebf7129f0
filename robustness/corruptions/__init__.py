"""The nineteen ImageNet-C corruptions, written with numpy, scipy and Pillow.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations" (arXiv:1903.12261), with the severities of the released data. Images of any size:
lengths in pixels are given for a shorter side of 224 and scale with it, overlays (snow, frost, fog,
spatter, the elastic field) are drawn at that size and fitted to the image; at 224 nothing scales.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from robustness.corruptions import blur, digital, noise, spatter, weather
from robustness.corruptions.filters import Array

SEVERITIES = (1, 2, 3, 4, 5)
RELEASE_QUALITY = 85
"""JPEG quality of the released files."""

Function = Callable[[Array, int, np.random.RandomState], Array]


@dataclass(frozen=True)
class Corruption:
    """One row of the table.

    Attributes:
        group: Folder of the released archive; "extra" never enters mCE.
        apply: Takes 8-bit RGB, severity and random state; returns RGB around [0, 1], not clipped.
    """

    group: str
    apply: Function


CORRUPTIONS = {
    "gaussian_noise": Corruption("noise", noise.gaussian_noise),
    "shot_noise": Corruption("noise", noise.shot_noise),
    "impulse_noise": Corruption("noise", noise.impulse_noise),
    "defocus_blur": Corruption("blur", blur.defocus_blur),
    "glass_blur": Corruption("blur", blur.glass_blur),
    "motion_blur": Corruption("blur", blur.motion_blur),
    "zoom_blur": Corruption("blur", blur.zoom_blur),
    "snow": Corruption("weather", weather.snow),
    "frost": Corruption("weather", weather.frost),
    "fog": Corruption("weather", weather.fog),
    "brightness": Corruption("weather", weather.brightness),
    "contrast": Corruption("digital", digital.contrast),
    "elastic_transform": Corruption("digital", digital.elastic_transform),
    "pixelate": Corruption("digital", digital.pixelate),
    "jpeg_compression": Corruption("digital", digital.jpeg_compression),
    "speckle_noise": Corruption("extra", noise.speckle_noise),
    "gaussian_blur": Corruption("extra", blur.gaussian_blur),
    "spatter": Corruption("extra", spatter.spatter),
    "saturate": Corruption("extra", digital.saturate),
}


def random_state(
    key: str, corruption: str, severity: int, *, seed: int = 0
) -> np.random.RandomState:
    """The random numbers of one image under one corruption at one severity.

    RandomState rather than Generator: numpy promises that its stream never changes.

    Args:
        key: Name of the image within its data set, "n01440764/ILSVRC2012_val_00000293.JPEG".
        corruption: Name of the corruption.
        severity: 1 to 5.
        seed: Another seed gives another draw of the whole data set.
    """
    digest = hashlib.sha256(f"{seed}/{corruption}/{severity}/{key}".encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, "<u4"))


def corrupt(
    image: Image.Image,
    corruption: str,
    severity: int,
    rng: np.random.RandomState,
    *,
    frost_dir: Path | None = None,
) -> Image.Image:
    """Corrupt one RGB image of any size, truncating to 8 bits as the released data does.

    Raises:
        ValueError: The corruption or severity does not exist, or `frost_dir` has no photographs.
    """
    if corruption not in CORRUPTIONS:
        raise ValueError(f"corruption must be one of {', '.join(CORRUPTIONS)}, got {corruption}.")
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be 1 to 5, got {severity}.")
    apply: Function = CORRUPTIONS[corruption].apply
    if corruption == "frost":
        apply = partial(weather.frost, frost_dir=frost_dir)
    changed = apply(np.asarray(image.convert("RGB")), severity, rng)
    return Image.fromarray((np.clip(changed, 0, 1) * 255).astype(np.uint8))


def as_released(image: Image.Image) -> Image.Image:
    """The image as it comes back from a file saved the way the released ones were."""
    return digital.jpeg_round_trip(image, RELEASE_QUALITY)
