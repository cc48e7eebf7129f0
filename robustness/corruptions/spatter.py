"""The extra corruption spatter: drops of water or mud, and the edge tools it needs."""

import numpy as np
from scipy import ndimage

from robustness.corruptions import filters
from robustness.corruptions.filters import Array

Rng = np.random.RandomState

_WATER = (  # loc, scale, sigma, threshold, intensity
    (0.65, 0.3, 4, 0.69, 0.6),
    (0.65, 0.3, 3, 0.68, 0.6),
    (0.65, 0.3, 2, 0.68, 0.5),
)
_MUD = ((0.65, 0.3, 1, 0.65, 1.5), (0.67, 0.4, 1, 0.65, 1.5))  # the last is a second sigma
_TURQUOISE = np.array([175, 238, 238]) / 255
_BROWN = np.array([63, 42, 20]) / 255
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_CANNY_LOW, _CANNY_HIGH = 50, 150
_FARTHEST = 20
# OpenCV's 5 x 5 chamfer steps: straight, diagonal, knight's move.
_STRAIGHT, _DIAGONAL, _KNIGHT = 1.0, 1.4, 2.1969


def spatter(image: Array, severity: int, rng: Rng) -> Array:
    """Let drops fall on the lens: water (severities 1 to 3) or mud (4 and 5)."""
    mud = severity > len(_WATER)
    loc, scale, sigma, threshold, last = (_WATER + _MUD)[severity - 1]
    liquid = rng.normal(size=filters.reference_shape(image), loc=loc, scale=scale)
    liquid = filters.gaussian(liquid, sigma)
    liquid[liquid < threshold] = 0
    clean = image.astype(np.float32) / 255
    if mud:
        cover = filters.gaussian((liquid > threshold).astype(np.float32), last)
        cover[cover < 0.8] = 0
        cover = filters.fit_overlay(cover, image)[..., None]
        return clean * (1 - cover) + _BROWN * cover
    shine = _shine((liquid * 255).astype(np.uint8)) * last
    return clean + filters.fit_overlay(shine, image)[..., None] * _TURQUOISE


def _shine(liquid: Array) -> Array:
    """Drops in relief: brightness by distance from their edges, at most 1."""
    distance = np.minimum(distance_from(canny(liquid)), _FARTHEST).astype(np.float32)
    relief = _equalize(_box3(distance).astype(np.uint8))
    carved = ndimage.correlate(relief.astype(int), _RELIEF, mode="mirror")
    lit = liquid * np.round(_box3(np.clip(carved, 0, 255).astype(np.float32)))
    return lit / max(lit.max(), 1)


def _box3(image: Array) -> Array:
    padded = np.pad(image.astype(np.float64), 1, mode="reflect")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    # Back to float32: what is 20 on a plain must stay 20 when it is cut to 8 bits.
    return ((rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) * (1 / 9)).astype(np.float32)


def _equalize(image: Array) -> Array:
    """Histogram equalisation of 8-bit values; the lowest one present goes to 0."""
    histogram = np.bincount(image.ravel(), minlength=256)
    lowest = int(np.flatnonzero(histogram)[0])
    rest = image.size - histogram[lowest]
    if rest == 0:
        return image
    histogram[: lowest + 1] = 0
    table = np.clip(np.round(histogram.cumsum() * (255 / rest)), 0, 255).astype(np.uint8)
    return table[image]


def canny(image: Array) -> Array:
    """Mask of the Canny edges of an 8-bit plane: Sobel 3 x 3, |dx| + |dy|, thresholds 50, 150."""
    plane = image.astype(int)
    dx = ndimage.sobel(plane, axis=1, mode="nearest")
    dy = ndimage.sobel(plane, axis=0, mode="nearest")
    size = np.pad(np.abs(dx) + np.abs(dy), 1)

    def neighbour(down: int, right: int) -> Array:
        height, width = image.shape
        return size[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    here = neighbour(0, 0)
    steep = np.abs(dy) / np.maximum(np.abs(dx), 1e-9)
    flat, upright = steep < np.tan(np.pi / 8), steep > np.tan(3 * np.pi / 8)
    falling = (dx < 0) == (dy < 0)
    before = np.select(
        [flat, upright, falling], [neighbour(0, -1), neighbour(-1, 0), neighbour(-1, -1)],
        neighbour(-1, 1),
    )  # fmt: skip
    after = np.select(
        [flat, upright, falling], [neighbour(0, 1), neighbour(1, 0), neighbour(1, 1)],
        neighbour(1, -1),
    )  # fmt: skip
    # Ties go to the second pixel along a row or column, and to none along a diagonal.
    ridge = (here > before) & np.where(flat | upright, here >= after, here > after)
    candidates = ridge & (here > _CANNY_LOW)
    labels, _ = ndimage.label(candidates, structure=np.ones((3, 3)))
    strong = np.unique(labels[candidates & (here > _CANNY_HIGH)])
    return np.isin(labels, strong[strong > 0])


def distance_from(mask: Array) -> Array:
    """5 x 5 chamfer distance of every pixel from the nearest pixel of `mask`."""
    far = float(sum(mask.shape) * 2)
    distance = np.where(mask, 0.0, far)
    for _ in range(2):
        distance = _sweep_down(distance, far)[::-1, ::-1]
    return distance


def _sweep_down(distance: Array, far: float) -> Array:
    height, width = distance.shape
    padded = np.full((height + 2, width + 4), far)
    padded[2:, 2:-2] = distance
    walk = np.arange(width) * _STRAIGHT
    for y in range(2, height + 2):
        above, higher = padded[y - 1], padded[y - 2]
        row = np.minimum.reduce(
            [
                padded[y, 2:-2],
                above[2:-2] + _STRAIGHT,
                np.minimum(above[1:-3], above[3:-1]) + _DIAGONAL,
                np.minimum(above[:-4], above[4:]) + _KNIGHT,
                np.minimum(higher[1:-3], higher[3:-1]) + _KNIGHT,
            ]
        )
        # A walk along the row from the left: the least of row[k] + (x - k).
        padded[y, 2:-2] = np.minimum.accumulate(row - walk) + walk
    return padded[2:, 2:-2]
