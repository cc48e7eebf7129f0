"""Weather: snow, frost, fog, brightness. Overlays are drawn for 224 pixels and fitted."""

from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from matplotlib import colors
from PIL import Image

from robustness.corruptions import filters
from robustness.corruptions.filters import Array
from vit_ls.config import ConfigError
from vit_ls.data.pictures import read_picture

Rng = np.random.RandomState

_SNOW = (  # loc, scale, zoom, threshold, streak radius, streak sigma, weight of the image
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)
_FROST_WEIGHTS = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))  # image, frost
_FOG_STRENGTH_DECAY = ((1.5, 2), (2.0, 2), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))
_BRIGHTNESS_ADDED = (0.1, 0.2, 0.3, 0.4, 0.5)
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_CRYSTAL_SIDE, _CRYSTAL_TEXTURES = 512, 5
_RELEASED_FROST = [f"frost{number}" for number in range(1, 7)]
_PHOTO_TYPES = (".jpg", ".jpeg", ".png")


def snow(image: Array, severity: int, rng: Rng) -> Array:
    """Whiten the picture and let flakes fall in streaks, as drawn and turned by 180 degrees."""
    loc, scale, zoom, threshold, radius, sigma, weight = _SNOW[severity - 1]
    shape = filters.reference_shape(image)
    flakes = filters.zoom_centre(rng.normal(size=shape, loc=loc, scale=scale), zoom)
    flakes[flakes < threshold] = 0
    # The release draws the layer as an 8-bit picture, and reads one back from the blur.
    drawn = (np.clip(flakes, 0, 1) * 255).astype(np.uint8)
    angle = rng.uniform(-135, -45)
    flakes = filters.motion_blur(drawn, radius=int(radius), sigma=sigma, angle=angle) / 255
    flakes = flakes + np.rot90(flakes, k=2)

    clean = image.astype(np.float32) / 255
    grey = (clean @ _LUMA)[..., None]
    whitened = weight * clean + (1 - weight) * np.maximum(clean, grey * 1.5 + 0.5)
    return whitened + filters.fit_overlay(flakes, image)[..., None]


def frost(image: Array, severity: int, rng: Rng, *, frost_dir: Path | None = None) -> Array:
    """Lay a random crop of a frost photograph over the picture.

    Args:
        image: The picture.
        severity: 1 to 5.
        rng: Chooses the photograph and the crop.
        frost_dir: Folder of the photographs, see `frost_photographs`. Without it a procedural
            texture stands in, which is another corruption than the published one: results must
            name it.
    """
    ours, theirs = _FROST_WEIGHTS[severity - 1]
    photos = frost_photographs(frost_dir) if frost_dir else ()
    crystals = () if photos else procedural_frost()
    choice = rng.randint(len(photos or crystals))
    texture = _photograph(photos[choice]) if photos else crystals[choice]
    height, width = filters.reference_shape(image)
    texture = _at_least(texture, height + 1, width + 1)
    top = rng.randint(0, texture.shape[0] - height)
    left = rng.randint(0, texture.shape[1] - width)
    crop = filters.fit_overlay(texture[top : top + height, left : left + width], image)
    return (ours * image + theirs * crop) / 255


@lru_cache(maxsize=4)
def frost_photographs(folder: Path) -> tuple[Path, ...]:
    """The photographs of a folder, by name; of the release's own six the five that it draws from.

    The release lists frost1 to frost6 and draws a number below five.

    Raises:
        ConfigError: There are none.
    """
    files = folder.iterdir() if folder.is_dir() else ()
    photos = tuple(sorted(p for p in files if p.suffix.lower() in _PHOTO_TYPES))
    if not photos:
        raise ConfigError(f"--frost-dir must hold .jpg or .png photographs of frost, got {folder}.")
    return photos[:-1] if [p.stem for p in photos] == _RELEASED_FROST else photos


@lru_cache(maxsize=8)
def _photograph(file: Path) -> Array:
    return np.asarray(read_picture(file))


@cache
def procedural_frost() -> tuple[Array, ...]:
    """Textures that stand in for photographs: bluish ridges, height maps folded at their middle."""
    return tuple(_crystals(np.random.RandomState(number)) for number in range(_CRYSTAL_TEXTURES))


def _crystals(rng: Rng) -> Array:
    maps = [filters.plasma(_CRYSTAL_SIDE, decay, rng) for decay in (1.6, 1.7, 1.8, 1.9, 2.0)]
    ridges = np.maximum.reduce([(1 - np.abs(2 * height - 1)) ** 12 for height in maps])
    shade = (0.25 * maps[-1] + 0.75 * ridges)[..., None]
    colour: Array = 255 * shade * np.array([0.86, 0.94, 1.0])
    return colour.astype(np.uint8)


def _at_least(texture: Array, height: int, width: int) -> Array:
    factor = max(height / texture.shape[0], width / texture.shape[1])
    if factor <= 1:
        return texture
    size = (int(np.ceil(texture.shape[1] * factor)), int(np.ceil(texture.shape[0] * factor)))
    return np.asarray(Image.fromarray(texture).resize(size, Image.Resampling.BICUBIC))


def fog(image: Array, severity: int, rng: Rng) -> Array:
    """Mix with a plasma cloud; the darkest to brightest range is kept."""
    strength, decay = _FOG_STRENGTH_DECAY[severity - 1]
    shape = filters.reference_shape(image)
    side = 1 << (max(shape) - 1).bit_length()
    cloud = filters.plasma(side, decay, rng)[: shape[0], : shape[1]]
    clean = image / 255
    brightest = clean.max()
    misty = clean + strength * filters.fit_overlay(cloud, image)[..., None]
    return misty * brightest / (brightest + strength)


def brightness(image: Array, severity: int, _: Rng) -> Array:
    """Raise the value in HSV."""
    hsv = colors.rgb_to_hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + _BRIGHTNESS_ADDED[severity - 1], 0, 1)
    return colors.hsv_to_rgb(hsv)
