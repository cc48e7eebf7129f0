"""Images: read as 8-bit RGB, corrupted where asked, and a fixed one."""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torchvision.transforms import functional as TF

from robustness.corruptions import RELEASE_QUALITY, as_released, corrupt, random_state
from robustness.corruptions.weather import frost_photographs
from robustness.data.listing import Sample
from vit_ls.data.pictures import read_picture

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
