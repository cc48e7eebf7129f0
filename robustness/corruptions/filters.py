"""Image operations that several corruptions share, on arrays [H, W] or [H, W, 3].

Borders are named as scipy names them: "nearest" repeats the edge pixel, "mirror" reflects about its
centre, "reflect" about its outer side.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import fft, ndimage, sparse

Array = NDArray[Any]

REFERENCE_SIDE = 224
"""Length of the shorter side for which the benchmark's authors gave their numbers."""


def relative_scale(image: Array) -> float:
    """How many pixels of `image` one pixel of a 224-pixel image stands for."""
    return min(image.shape[:2]) / REFERENCE_SIDE


def reference_shape(image: Array) -> tuple[int, int]:
    """Height and width of `image` scaled to a shorter side of 224."""
    scale = relative_scale(image)
    return round(image.shape[0] / scale), round(image.shape[1] / scale)


def fit_overlay(overlay: Array, image: Array) -> Array:
    """Resize an overlay drawn at the reference size to `image`; at 224 it comes back unchanged.

    Drawing at one size keeps flakes, drops and crystals the same share of the picture.
    """
    height, width = image.shape[:2]
    if overlay.shape[:2] == (height, width):
        return overlay
    planes = overlay[..., None] if overlay.ndim == 2 else overlay
    resized = [
        np.asarray(
            Image.fromarray(planes[..., c].astype(np.float32)).resize(
                (width, height), Image.Resampling.BILINEAR
            )
        )
        for c in range(planes.shape[2])
    ]
    return resized[0] if overlay.ndim == 2 else np.stack(resized, axis=-1)


def gaussian(image: Array, sigma: float) -> Array:
    """Gaussian blur over height and width, edge repeated, cut at four sigmas."""
    sigmas = (sigma, sigma) + (0,) * (image.ndim - 2)
    blurred: Array = ndimage.gaussian_filter(image, sigmas, mode="nearest", truncate=4.0)
    return blurred


def gaussian_reflect(field: Array, sigma: float, *, truncate: float = 3.0) -> Array:
    """Gaussian blur of a plane with "reflect" borders, at a cost that does not grow with sigma.

    The cosine transform turns convolution under this border into a product, also for a kernel that
    is wider than the plane.
    """
    rows, columns = (_gain(length, sigma, truncate) for length in field.shape)
    blurred: Array = fft.idctn(fft.dctn(field) * rows[:, None] * columns[None, :])
    return blurred


@lru_cache(maxsize=16)
def _gain(length: int, sigma: float, truncate: float) -> Array:
    """Factor of each cosine of a line of `length` under the Gaussian."""
    offsets = np.arange(1, int(truncate * sigma + 0.5) + 1)
    taps = np.exp(-0.5 * (offsets / sigma) ** 2)
    waves = np.cos(np.pi / length * np.outer(np.arange(length), offsets))
    gain: Array = (1 + 2 * waves @ taps) / (1 + 2 * taps.sum())
    return gain


def correlate_mirror(image: Array, kernel: Array) -> Array:
    """2-D correlation of each channel with an odd kernel, "mirror" borders, by FFT."""
    ry, rx = kernel.shape[0] // 2, kernel.shape[1] // 2
    padded = np.pad(image, ((ry, ry), (rx, rx), (0, 0)), mode="reflect")
    shape = [fft.next_fast_len(n, real=True) for n in padded.shape[:2]]
    spectrum = fft.rfft2(padded, shape, axes=(0, 1))
    response = fft.rfft2(kernel[::-1, ::-1], shape, axes=(0, 1))
    full = fft.irfft2(spectrum * response[..., None], shape, axes=(0, 1))
    height, width = image.shape[:2]
    result: Array = full[2 * ry : 2 * ry + height, 2 * rx : 2 * rx + width]
    return result


def zoom_centre(image: Array, factor: float) -> Array:
    """Enlarge the centre of `image` by `factor` (linear) and cut it to the size of the image."""
    return sum_of_zooms(image, (factor,))


def sum_of_zooms(image: Array, factors: tuple[float, ...]) -> Array:
    """The sum of enlargements of the centre, each as `zoom_centre` gives it, in one pass.

    Linear interpolation is a matrix with two entries in each row: those of all factors below one
    another read the image once, and side by side they add up.
    """
    height, width = image.shape[:2]
    rows = sparse.vstack([_zoom_matrix(height, factor) for factor in factors], "csr")
    columns = sparse.hstack([_zoom_matrix(width, factor) for factor in factors], "csr")
    tall = (rows @ image.reshape(height, -1)).reshape(len(factors), height, width, -1)
    # [factors, H, W, C] -> [factors * W, H * C]
    turned = tall.transpose(0, 2, 1, 3).reshape(len(factors) * width, -1)
    summed: Array = (columns @ turned).reshape(width, height, -1).transpose(1, 0, 2)
    return summed.reshape(image.shape)


@lru_cache(maxsize=256)
def _zoom_matrix(length: int, factor: float) -> sparse.csr_array:
    """What enlarges the centre of a line of `length` and cuts it to `length`: [length, length]."""
    kept = math.ceil(length / factor)
    stretched = round(kept * factor)
    position = np.arange(stretched) * ((kept - 1) / max(stretched - 1, 1))
    position = position[(stretched - length) // 2 :][:length]
    low = np.minimum(position.astype(int), max(kept - 2, 0))
    high = np.minimum(low + 1, kept - 1)
    entries = np.stack([1 - (position - low), position - low], axis=1).ravel()
    places = np.stack([low, high], axis=1).ravel() + (length - kept) // 2
    starts = np.arange(0, 2 * length + 1, 2)
    return sparse.csr_array((entries, places, starts), shape=(length, length))


def motion_blur(image: Array, *, radius: int, sigma: float, angle: float) -> Array:
    """One-sided Gaussian streak of 2 radius + 1 pixels towards `angle` (degrees), edge repeated.

    As ImageMagick 6 does it: positions are rounded to whole pixels, values to 16 bits, and the
    8-bit picture that comes back is cut, not rounded.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    down = np.ceil(steps * math.sin(math.radians(angle)) - 0.5).astype(int)
    right = np.ceil(steps * math.cos(math.radians(angle)) - 0.5).astype(int)
    (top, bottom), (left, rest) = (
        (max(0, -int(d.min())), max(0, int(d.max()))) for d in (down, right)
    )
    borders = ((top, bottom), (left, rest)) + ((0, 0),) * (image.ndim - 2)
    padded = np.pad(image.astype(np.float32), borders, mode="edge")
    height, width = image.shape[:2]
    blurred = np.zeros(image.shape, np.float32)
    for weight, dy, dx in zip(weights.astype(np.float32), down + top, right + left, strict=True):
        blurred += weight * padded[dy : dy + height, dx : dx + width]
    cut: Array = (np.round(blurred * np.float32(257)) // 257).astype(np.uint8)
    return cut


def plasma(side: int, decay: float, rng: np.random.RandomState) -> Array:
    """Diamond-square height map of `side` (a power of two) squared, on a torus, in [0, 1].

    Args:
        side: Length of the map.
        decay: Factor by which the random part shrinks from one scale to the next.
        rng: Source of the random part.
    """
    heights = np.zeros((side, side), np.float32)
    step, wibble = side, 100.0

    def jittered(neighbours: Array) -> Array:
        noise: Array = wibble * rng.uniform(-wibble, wibble, neighbours.shape)
        return neighbours / 4 + noise

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=0)
        heights[half::step, half::step] = jittered(pairs + np.roll(pairs, -1, axis=1))
        centres = heights[half::step, half::step]
        vertical = centres + np.roll(centres, 1, axis=0)
        heights[::step, half::step] = jittered(vertical + corners + np.roll(corners, -1, axis=1))
        horizontal = centres + np.roll(centres, 1, axis=1)
        heights[half::step, ::step] = jittered(horizontal + corners + np.roll(corners, -1, axis=0))
        step, wibble = half, wibble / decay
    heights -= heights.min()
    return heights / heights.max()
