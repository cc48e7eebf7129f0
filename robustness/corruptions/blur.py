"""Blur: defocus, glass, motion, zoom, and the extra gaussian. Lengths scale with the image."""

import numpy as np
from scipy import ndimage

from robustness.corruptions import filters
from robustness.corruptions.filters import Array

Rng = np.random.RandomState

_DEFOCUS_RADIUS_ALIAS = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))
_GLASS_SIGMA_REACH_ROUNDS = ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))
_MOTION_RADIUS_SIGMA = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))
_ZOOM_STOP_STEP = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
_GAUSSIAN_SIGMA = (1, 2, 3, 4, 6)


def defocus_blur(image: Array, severity: int, _: Rng) -> Array:
    """Average over a disk whose rim is smoothed."""
    radius, alias = _DEFOCUS_RADIUS_ALIAS[severity - 1]
    return filters.correlate_mirror(
        image / 255, _disk(radius * filters.relative_scale(image), alias, smooth=radius > 8)
    )


def _disk(radius: float, alias: float, *, smooth: bool) -> Array:
    # The published kernel has 17 x 17 taps up to radius 8, so that the rim has room to be smoothed.
    half = max(8, int(np.ceil(radius)))
    axis = np.arange(-half, half + 1)
    disk = (axis[:, None] ** 2 + axis[None, :] ** 2 <= radius**2).astype(np.float32)
    taps = np.arange(-2, 3) if smooth else np.arange(-1, 2)
    weights = np.exp(-(taps**2) / (2 * alias**2))
    weights = (weights / weights.sum()).astype(np.float32)
    disk /= disk.sum()
    for axis_index in (0, 1):
        disk = ndimage.correlate1d(disk, weights, axis_index, mode="mirror")
    return disk


def glass_blur(image: Array, severity: int, rng: Rng) -> Array:
    """Blur, let every pixel take the colour of a near one, blur again."""
    sigma, reach, rounds = _GLASS_SIGMA_REACH_ROUNDS[severity - 1]
    scale = filters.relative_scale(image)
    sigma, reach = sigma * scale, max(1, round(reach * scale))
    shuffled = (filters.gaussian(image / 255, sigma) * 255).astype(np.uint8)
    for _ in range(rounds):
        shuffled = shuffle_locally(shuffled, reach, rng)
    return filters.gaussian(shuffled / 255, sigma)


def shuffle_locally(image: Array, reach: int, rng: Rng) -> Array:
    """Walk over the pixels from the last to the first; each takes the value of a near pixel.

    The published loop means to swap two pixels, but overwrites only the one it stands on. A source
    that the walk has already passed gives its new value, so a value is found by following sources
    until one that is not passed: here for all pixels at once, by doubling the length of the path.
    """
    height, width = image.shape[:2]
    rows = np.arange(height - reach, reach, -1)
    columns = np.arange(width - reach, reach, -1)
    offsets = rng.randint(-reach, reach, size=(len(rows), len(columns), 2))
    source_row = rows[:, None] + offsets[..., 1]
    source_column = columns[None, :] + offsets[..., 0]
    place = rows[:, None] * width + columns[None, :]
    source = source_row * width + source_column

    walked = np.zeros((height, width), bool)
    walked[np.ix_(rows, columns)] = True
    passed = walked.ravel()[source] & (source > place)
    origin = np.arange(height * width)
    follow = origin.copy()
    origin[place] = np.where(passed, place, source)
    follow[place] = np.where(passed, source, place)
    while True:
        further = follow[follow]
        if np.array_equal(further, follow):
            break
        follow = further
    return image.reshape(height * width, -1)[origin[follow]].reshape(image.shape)


def motion_blur(image: Array, severity: int, rng: Rng) -> Array:
    """Streak in a random direction within 45 degrees of the horizontal."""
    radius, sigma = _MOTION_RADIUS_SIGMA[severity - 1]
    scale = filters.relative_scale(image)
    angle = rng.uniform(-45, 45)
    radius = max(1, round(radius * scale))
    return filters.motion_blur(image, radius=radius, sigma=sigma * scale, angle=angle) / 255


def zoom_blur(image: Array, severity: int, _: Rng) -> Array:
    """Average over enlargements of the centre."""
    factors = tuple(np.arange(1, *_ZOOM_STOP_STEP[severity - 1]).tolist())
    clean = (image / 255).astype(np.float32)
    return (clean + filters.sum_of_zooms(clean, factors)) / (len(factors) + 1)


def gaussian_blur(image: Array, severity: int, _: Rng) -> Array:
    """Gaussian blur."""
    sigma = _GAUSSIAN_SIGMA[severity - 1] * filters.relative_scale(image)
    return filters.gaussian(image / 255, sigma)
