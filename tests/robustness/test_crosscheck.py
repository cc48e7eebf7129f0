"""Comparison with the package imagecorruptions-imaug (extra "crosscheck"), same random numbers."""

import numpy as np
import pytest
from PIL import Image

from robustness.corruptions import SEVERITIES, corrupt

imagecorruptions = pytest.importorskip(
    "imagecorruptions", reason="needs the extra: pip install -e '.[crosscheck]'"
)

# Equal but for the last bit of sums that both sides order as they like, before the cut to 8 bits.
# impulse, glass, frost, elastic and snow differ in the package: other random numbers, constants or
# order of steps. What the release itself does is tested in test_released_corruptions.
SAME = (
    "gaussian_noise",
    "shot_noise",
    "speckle_noise",
    "gaussian_blur",
    "defocus_blur",
    "zoom_blur",
    "motion_blur",
    "fog",
    "brightness",
    "contrast",
    "saturate",
    "jpeg_compression",
    "pixelate",
    "spatter",
)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", SAME)
def test_pixels_are_those_of_the_package(name: str, severity: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((224, 224), Image.Resampling.BICUBIC)
    np.random.seed(severity)  # noqa: NPY002 - the package draws from the global stream
    theirs = imagecorruptions.corrupt(np.asarray(image), severity, name).astype(int)
    ours = np.asarray(corrupt(image, name, severity, np.random.RandomState(severity))).astype(int)
    difference = np.abs(ours - theirs)
    assert difference.max() <= 1
    assert np.mean(difference > 0) < 0.03
