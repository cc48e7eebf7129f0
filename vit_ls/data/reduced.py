"""Random crops of files that are not decoded yet, at a lower scale where the crop has pixels left.

A JPEG is made of frequencies of 8 x 8 pixels, and libjpeg decodes it at 1/2, 1/4 or 1/8 of its size
from the lower ones alone, which takes less time (`PIL.Image.Image.draft`).
"""

import random
from typing import Any

from PIL import Image
from timm.data.transforms import (
    RandomResizedCropAndInterpolation,
    interp_mode_to_str,
    str_to_pil_interp,
)
from torchvision.transforms import InterpolationMode, functional

from vit_ls.data.pictures import converted

SCALES = (8, 4, 2)


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
