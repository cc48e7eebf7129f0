"""Noise: gaussian, shot, impulse, and the extra speckle."""

import numpy as np

from robustness.corruptions.filters import Array

Rng = np.random.RandomState

_GAUSSIAN_STD = (0.08, 0.12, 0.18, 0.26, 0.38)
_SHOT_PHOTONS = (60, 25, 12, 5, 3)
_IMPULSE_AMOUNT = (0.03, 0.06, 0.09, 0.17, 0.27)
_SPECKLE_STD = (0.15, 0.2, 0.35, 0.45, 0.6)


def gaussian_noise(image: Array, severity: int, rng: Rng) -> Array:
    """Add normal noise."""
    return image / 255 + rng.normal(size=image.shape, scale=_GAUSSIAN_STD[severity - 1])


def shot_noise(image: Array, severity: int, rng: Rng) -> Array:
    """Count photons: Poisson noise."""
    photons = _SHOT_PHOTONS[severity - 1]
    counts: Array = rng.poisson(image / 255 * photons)
    return counts / photons


def impulse_noise(image: Array, severity: int, rng: Rng) -> Array:
    """Set elements, each channel by itself, to black or white."""
    hit = rng.uniform(size=image.shape) < _IMPULSE_AMOUNT[severity - 1]
    white = rng.uniform(size=image.shape) < 0.5
    return np.where(hit, white, image / 255)


def speckle_noise(image: Array, severity: int, rng: Rng) -> Array:
    """Multiply with normal noise."""
    clean = image / 255
    return clean + clean * rng.normal(size=image.shape, scale=_SPECKLE_STD[severity - 1])
