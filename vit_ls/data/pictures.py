"""Pictures in files, as 8-bit RGB or grey: the one reader of every program here.

It gives what timm gives, `convert(mode)` of what Pillow opens, except for grey of more than 8 bits:
Pillow clips that instead of scaling it, so that a 16-bit picture becomes a white one.

Crops may be taken at a lower scale where they have pixels left: a JPEG is made of frequencies of
8 x 8 pixels, and libjpeg decodes it at 1/2, 1/4 or 1/8 of its size from the lower ones alone, which
takes less time (`PIL.Image.Image.draft`).
"""

import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps
from timm.data.transforms import (
    RandomResizedCropAndInterpolation,
    interp_mode_to_str,
    str_to_pil_interp,
)
from torchvision.transforms import InterpolationMode, functional

SCALES = (8, 4, 2)
_INTEGERS = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_MOST = 65535  # of 16 bits; Pillow opens some files of 16 bits with 32


class PictureError(OSError):
    """A file that gives no picture; the message says why in one line."""


def read_picture(
    file: Path | str | BinaryIO, mode: str = "RGB", *, turn: bool = False
) -> Image.Image:
    """Decode a picture.

    Args:
        file: A path, or an open file.
        mode: Of the result: "RGB", or "L" for grey.
        turn: Turn the picture as its EXIF entry says. timm does so for `hfids/` data sets alone.

    Raises:
        PictureError: The file cannot be read, is damaged, or has no known scale of values.
    """
    with opened(file) as image:
        return converted(ImageOps.exif_transpose(image) if turn else image, mode)


@contextmanager
def opened(file: Path | str | BinaryIO) -> Iterator[Image.Image]:
    """An opened picture, for who wants to look before it is decoded, or decodes a part of it.

    Raises:
        PictureError: For whatever fails inside; Pillow decodes a file when its pixels are used.
    """
    try:
        if isinstance(file, Path | str) and not stat.S_ISREG(Path(file).stat().st_mode):
            # Opening a pipe waits for its writer, and a device may never end.
            raise PictureError("not a regular file")
        with Image.open(file) as image:
            yield image
    except PictureError:
        raise
    # What Pillow raises for a damaged or hostile file has no common type: OSError, SyntaxError,
    # ValueError, struct.error, DecompressionBombError and more.
    except Exception as error:
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        raise PictureError(" ".join(f"{kind}{error}".split())) from error


def converted(image: Image.Image, mode: str) -> Image.Image:
    """A picture with 8 bits for each channel; deeper grey is scaled.

    Integers are taken as 16 bits, floats as 0 to 1, or as 0 to 255 where one is above 1.

    Raises:
        PictureError: The values are in none of these ranges, so that their scale is not known.
    """
    if image.mode in _INTEGERS:
        image = _eight_bits(np.asarray(image), _MOST)
    elif image.mode == "F":
        values = np.asarray(image)
        image = _eight_bits(values, 1 if values.max() <= 1 else 255)
    return image.convert(mode)


def _eight_bits(values: "np.ndarray[Any, Any]", most: int) -> Image.Image:
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= most):  # also where one is not a number
        raise PictureError(
            f"grey values must be of 16 bits or floats from 0 to 1 or 255, got {low:g} to {high:g}."
        )
    scaled = np.round(values.astype(np.float64) * (255 / most))
    return Image.fromarray(scaled.astype(np.uint8))


class ReducedCrop:
    """timm's random resized crop, with the same draws, of an image whose file is only opened.

    Where it cannot be reduced (another format, or a crop without pixels to spare), the result is
    timm's to the bit.

    Args:
        crop: The first step of timm's training transform.
        mode: Of the result, as Pillow names it.
    """

    def __init__(self, crop: RandomResizedCropAndInterpolation, mode: str) -> None:
        self.crop, self.mode = crop, mode

    def __call__(self, image: Image.Image) -> Image.Image:
        """The crop, decoded and resized."""
        box = self.crop.get_params(image, self.crop.scale, self.crop.ratio)
        resampling: Any = self.crop.interpolation
        if isinstance(resampling, tuple | list):
            resampling = random.choice(resampling)
        return decode(image, box, self.crop.size, self.mode, resampling)


def decode(
    image: Image.Image,
    crop: tuple[int, int, int, int],
    size: tuple[int, int],
    mode: str,
    resampling: InterpolationMode,
) -> Image.Image:
    """Decode an opened file, at a reduced scale if the crop allows it, and resize the crop.

    Args:
        image: Opened and not decoded.
        crop: Top, left, height, width in pixels of the whole image.
        size: Height and width of the result, in pixels.
        mode: Of the result, as Pillow names it.
        resampling: Of the resizing.
    """
    top, left, height, width = crop
    whole = image.size
    scale = reduction((height, width), size)
    image.draft(None, (whole[0] // scale, whole[1] // scale))
    if image.size == whole:
        cut: Image.Image = functional.resized_crop(
            converted(image, mode), *crop, list(size), resampling
        )
        return cut
    x, y = image.size[0] / whole[0], image.size[1] / whole[1]
    return converted(image, mode).resize(
        (size[1], size[0]),
        str_to_pil_interp(interp_mode_to_str(resampling)),
        (left * x, top * y, (left + width) * x, (top + height) * y),
    )


def reduction(crop: tuple[int, int], size: tuple[int, int]) -> int:
    """The largest part of its scale, of 1, 2, 4 and 8, at which a crop keeps `size` pixels.

    Args:
        crop: Height and width in pixels of the image.
        size: Height and width that it is resized to.
    """
    return next((s for s in SCALES if crop[0] >= s * size[0] and crop[1] >= s * size[1]), 1)
