"""A cell as a data set: reads, corrupts where asked, checks and transforms its images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import functional as TF

from robustness.corruptions import as_released, corrupt, random_state
from robustness.data.layouts import Sample

Item = tuple[torch.Tensor, int, int, str]
"""Image, target, index within the cell, and what is wrong ("" where nothing is)."""

UNREADABLE, WRONG_SIZE = "unreadable", "of another size"


def read_file(sample: Sample) -> Image.Image:
    """Decode an image file.

    Raises:
        OSError: The file cannot be read or is cut short.
    """
    assert sample.path is not None
    try:
        with Image.open(sample.path) as image:
            return image.convert("RGB")
    # Pillow answers a broken file with one of several types.
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise OSError(str(error)) from error


def resize_and_crop(image: Image.Image) -> Image.Image:
    """Resize to 256, crop 224: what the released corruptions were made from."""
    short = TF.resize(image, 256, TF.InterpolationMode.BILINEAR)
    return TF.center_crop(short, 224)


@dataclass(frozen=True)
class Generator:
    """Corrupts on the fly.

    Attributes:
        seed: Another seed gives another draw.
        frost_dir: Photographs of frost; None for the procedural texture.
        as_files: Prepare and save like the released files: resize 256, crop 224, JPEG 85.
    """

    seed: int = 0
    frost_dir: Path | None = None
    as_files: bool = True

    def __call__(self, image: Image.Image, key: str, cell: str) -> Image.Image:
        """The image as `cell` ("corruption/severity") shows it."""
        corruption, severity = cell.split("/")
        if self.as_files:
            image = resize_and_crop(image)
        rng = random_state(key, corruption, int(severity), seed=self.seed)
        changed = corrupt(image, corruption, int(severity), rng, frost_dir=self.frost_dir)
        return as_released(changed) if self.as_files else changed

    @property
    def description(self) -> str:
        """What makes these images differ from the released ones."""
        frost = f"frost photographs of {self.frost_dir}" if self.frost_dir else "procedural frost"
        made = "resize 256, crop 224, JPEG 85" if self.as_files else "no resize, no JPEG"
        return f"generated, seed {self.seed}, {frost}, {made}"


class CellImages(Dataset[Item]):
    """The images of a cell.

    Args:
        samples: What to read.
        read: Gives the image of a sample, or raises OSError.
        transform: To the model's input.
        channels: 3 for RGB, 1 for grey.
        image_size: Side that every image must have, or None.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        read: Callable[[Sample], Image.Image],
        transform: Callable[[Image.Image], torch.Tensor],
        *,
        channels: int = 3,
        image_size: int | None = None,
    ) -> None:
        self.samples = samples
        self.read = read
        self.transform = transform
        self.mode = "L" if channels == 1 else "RGB"
        self.image_size = image_size

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Item:
        sample = self.samples[index]
        trouble = ""
        try:
            image = self.read(sample)
        except OSError:
            # A stand-in keeps the batch whole; the loop leaves it out of every count.
            side = self.image_size or 256
            image, trouble = Image.new(self.mode, (side, side)), UNREADABLE
        if not trouble and self.image_size and image.size != (self.image_size, self.image_size):
            trouble = WRONG_SIZE
        return self.transform(image.convert(self.mode)), sample.target, index, trouble
