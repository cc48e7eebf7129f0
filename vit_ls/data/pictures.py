"""Pictures in files, as 8-bit RGB or grey: the one reader of every program here.

It gives what timm gives, `convert(mode)` of what Pillow opens, except for grey of more than 8 bits:
Pillow clips that instead of scaling it, so that a 16-bit picture becomes a white one.
"""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps

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
