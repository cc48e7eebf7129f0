"""Digital: contrast, elastic transform, pixelate, JPEG, and the extra saturate."""

import io

import numpy as np
from matplotlib import colors
from PIL import Image
from scipy import ndimage

from robustness.corruptions import filters
from robustness.corruptions.filters import Array

Rng = np.random.RandomState

_CONTRAST_FACTOR = (0.4, 0.3, 0.2, 0.1, 0.05)
# The authors computed these with 244 for 224: alpha, sigma and jitter of the corners, in pixels.
_ELASTIC = (
    (488.0, 170.8, 24.4),
    (488.0, 19.52, 48.8),
    (12.2, 2.44, 4.88),
    (17.08, 2.44, 4.88),
    (29.28, 2.44, 4.88),
)
_PIXELATE_SCALE = (0.6, 0.5, 0.4, 0.3, 0.25)
_JPEG_QUALITY = (25, 18, 15, 10, 7)
_SATURATE_TIMES_PLUS = ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))


def contrast(image: Array, severity: int, _: Rng) -> Array:
    """Pull every channel towards its mean."""
    clean = image / 255
    means = clean.mean(axis=(0, 1), keepdims=True)
    return (clean - means) * _CONTRAST_FACTOR[severity - 1] + means


def elastic_transform(image: Array, severity: int, rng: Rng) -> Array:
    """Jitter three corners (an affine map), then move every pixel by a smooth random field."""
    alpha, sigma, jitter = _ELASTIC[severity - 1]
    scale = filters.relative_scale(image)
    clean = image.astype(np.float32) / np.float32(255)
    warped = _affine_jitter(clean, jitter * scale, rng)

    shape = filters.reference_shape(image)
    across, down = (
        filters.gaussian_reflect(rng.uniform(-1, 1, size=shape), sigma) * alpha for _ in range(2)
    )
    rows, columns = np.indices(image.shape[:2])
    places = (
        rows + filters.fit_overlay(down, image) * scale,
        columns + filters.fit_overlay(across, image) * scale,
    )
    moved = [
        ndimage.map_coordinates(warped[..., c], places, order=1, mode="reflect") for c in range(3)
    ]
    return np.stack(moved, axis=-1)


def _affine_jitter(image: Array, jitter: float, rng: Rng) -> Array:
    height, width = image.shape[:2]
    # (x, y) points; the published code takes the height for x, which differs only off the square.
    centre = np.array([width // 2, height // 2], np.float64)
    reach = min(height, width) // 3
    before = centre + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + rng.uniform(-jitter, jitter, size=before.shape)
    # affine_transform asks where each target comes from: solve [after, 1] @ back = before.
    back = np.linalg.solve(np.column_stack([after, np.ones(3)]), before)
    matrix = back[:2, ::-1][::-1].T
    offset = back[2, ::-1]
    warped = [
        ndimage.affine_transform(image[..., c], matrix, offset, order=1, mode="mirror")
        for c in range(3)
    ]
    return np.stack(warped, axis=-1)


def pixelate(image: Array, severity: int, _: Rng) -> Array:
    """Shrink and enlarge by boxes."""
    scale = _PIXELATE_SCALE[severity - 1]
    height, width = image.shape[:2]
    small = (max(1, int(width * scale)), max(1, int(height * scale)))
    boxes = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.asarray(boxes.resize((width, height), Image.Resampling.BOX)) / 255


def jpeg_compression(image: Array, severity: int, _: Rng) -> Array:
    """Compress as JPEG of low quality."""
    return np.asarray(jpeg_round_trip(Image.fromarray(image), _JPEG_QUALITY[severity - 1])) / 255


def jpeg_round_trip(image: Image.Image, quality: int) -> Image.Image:
    """What a JPEG file of this quality gives back."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    # Pillow's own file, of 8 bits for each channel: no picture of anyone's.
    with Image.open(buffer) as decoded:
        return decoded.convert("RGB")


def saturate(image: Array, severity: int, _: Rng) -> Array:
    """Change the saturation in HSV."""
    times, plus = _SATURATE_TIMES_PLUS[severity - 1]
    hsv = colors.rgb_to_hsv(image / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * times + plus, 0, 1)
    return colors.hsv_to_rgb(hsv)
