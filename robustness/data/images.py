"""A cell as a data set: reads, corrupts where asked, checks and transforms its images."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import functional as TF

from robustness.corruptions import RELEASE_QUALITY, as_released, corrupt, random_state
from robustness.corruptions.weather import frost_photographs
from robustness.data.gaps import Kind
from robustness.data.listing import Sample
from vit_ls.data.pictures import read_picture

Item = tuple[torch.Tensor, int, int, str]
"""Image [C, H, W] or video [frames, C, H, W], target, index within the cell, and what is wrong
("" where nothing is)."""

Picture = Image.Image | list[Image.Image]
"""An image, or the frames of a video."""

CROP = 224
"""Side of the released files."""


def read_file(sample: Sample) -> Image.Image:
    """Decode an image file as 8-bit RGB.

    Raises:
        OSError: The file cannot be read or is cut short.
    """
    assert sample.path is not None
    return read_picture(sample.path)


def resize_and_crop(image: Image.Image) -> Image.Image:
    """Resize to 256, crop 224: what the released corruptions were made from."""
    short = TF.resize(image, 256, TF.InterpolationMode.BILINEAR)
    return TF.center_crop(short, CROP)


def probe_picture(height: int, width: int) -> Image.Image:
    """A fixed picture with edges, plains and colours: what something does to it identifies it."""
    rows, columns = np.indices((height, width))
    planes = [(rows * a + columns * b + rows * columns // 61) % 256 for a, b in ((1, 2), (3, 1))]
    planes.append(np.where((rows // 16 + columns // 16) % 2, 224, 40))
    return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8))


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

    def prepare(self, image: Image.Image) -> Image.Image:
        """What is corrupted, the same for all cells."""
        return resize_and_crop(image) if self.as_files else image

    def corrupted(self, prepared: Image.Image, key: str, cell: str) -> Image.Image:
        """A prepared image as `cell` ("corruption/severity") shows it."""
        corruption, severity = cell.split("/")
        rng = random_state(key, corruption, int(severity), seed=self.seed)
        changed = corrupt(prepared, corruption, int(severity), rng, frost_dir=self.frost_dir)
        return as_released(changed) if self.as_files else changed

    @cached_property
    def frost(self) -> str:
        """Digest of the photographs, or "procedural"."""
        if self.frost_dir is None:
            return "procedural"
        photographs = frost_photographs(self.frost_dir)
        return hashlib.sha256(b"".join(p.read_bytes() for p in photographs)).hexdigest()[:16]

    @property
    def identity(self) -> dict[str, Any]:
        """What makes these images differ from others."""
        quality = RELEASE_QUALITY if self.as_files else None
        return {"seed": self.seed, "frost": self.frost, "crop": self.as_files, "quality": quality}

    def fingerprint(self, cell: str) -> str:
        """What the cell's corruption, as it is written today, does to a fixed picture."""
        return _fingerprint(self, self.frost, cell)


@lru_cache(maxsize=256)
def _fingerprint(generator: Generator, frost: str, cell: str) -> str:
    del frost  # Photographs may change under one name.
    changed = generator.corrupted(generator.prepare(probe_picture(64, 72)), "", cell)
    return hashlib.sha256(changed.tobytes()).hexdigest()[:16]


def described(made: dict[str, Any]) -> str:
    """In words, what an identity of a generator (or of what it wrote) says."""
    frost = made["frost"]
    photographs = "procedural frost" if frost == "procedural" else f"frost photographs {frost}"
    size = "resize 256, crop 224" if made["crop"] else "size kept"
    saved = f"JPEG {made['quality']}" if made["quality"] else "no JPEG"
    return f"generated, seed {made['seed']}, {photographs}, {size}, {saved}"


class CellImages(Dataset[Item]):
    """The images or videos of a cell.

    Args:
        samples: What to read.
        read: Gives the image of a sample, or its frames, or raises OSError.
        transform: To the model's input.
        channels: 3 for RGB, 1 for grey.
        image_size: Side that every image must have, or None.
        frames: Frames that every video must have; 0 for images.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        read: Callable[[Sample], Picture],
        transform: Callable[[Image.Image], torch.Tensor],
        *,
        channels: int = 3,
        image_size: int | None = None,
        frames: int = 0,
    ) -> None:
        self.samples = samples
        self.read = read
        self.transform = transform
        self.mode = "L" if channels == 1 else "RGB"
        self.image_size = image_size
        self.frames = frames

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Item:
        sample = self.samples[index]
        trouble = ""
        try:
            found = self.read(sample)
        except OSError:
            found, trouble = [], str(Kind.UNREADABLE)
        images = found if isinstance(found, list) else [found]
        if not trouble and len(images) != (self.frames or 1):
            images, trouble = [], str(Kind.WRONG_LENGTH)
        if not images:
            # A stand-in keeps the batch whole; the loop leaves it out of every count.
            side = self.image_size or 256
            images = [Image.new(self.mode, (side, side))] * (self.frames or 1)
        elif self.image_size and any(i.size != (self.image_size,) * 2 for i in images):
            trouble = str(Kind.WRONG_SIZE)
        tensors = [self.transform(image.convert(self.mode)) for image in images]
        whole = torch.stack(tensors) if self.frames else tensors[0]
        return whole, sample.target, index, trouble
