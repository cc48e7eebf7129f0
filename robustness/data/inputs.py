"""Images as a model takes them: a cell as a data set, its batches, and fixed pictures."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from robustness.data.gaps import Kind
from robustness.data.images import Picture, probe_picture
from robustness.data.listing import Sample
from vit_ls.config import ConfigError
from vit_ls.errors import one_line

_SIZES = ((300, 400), (500, 375), (224, 224))
"""Height and width of the fixed pictures for benchmarks whose images vary."""


def probe_pictures(side: int | None, mode: str = "RGB") -> list[Image.Image]:
    """Fixed pictures: what a transform or a model makes of them tells it from others.

    Args:
        side: Height and width; None for several sizes.
        mode: "RGB" or "L".
    """
    sizes = cycle(_SIZES if side is None else [(side, side)])
    return [paint(*next(sizes)).convert(mode) for paint in _PAINTERS]


def _noise(low: int, high: int) -> Callable[[int, int], Image.Image]:
    def paint(height: int, width: int) -> Image.Image:
        rng = np.random.Generator(np.random.PCG64(low))
        return Image.fromarray(rng.integers(low, high, (height, width, 3), dtype=np.uint8))

    return paint


def _slope(height: int, width: int) -> Image.Image:
    """From black at one corner to white at the other, a little more so in each channel."""
    rows, columns = np.indices((height, width))
    grey = (rows + columns) / max(1, height + width - 2)
    planes = [255 * grey**power for power in (1, 2, 3)]
    return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8))


def _upside_down(height: int, width: int) -> Image.Image:
    return probe_picture(height, width).transpose(Image.Transpose.ROTATE_180)


_PAINTERS = (probe_picture, _noise(0, 256), _slope, _noise(0, 48), _noise(200, 256), _upside_down)


def as_input(transform: Callable[[Image.Image], Any], picture: Image.Image) -> torch.Tensor:
    """What the transform makes of a picture: [C, H, W].

    Raises:
        ConfigError: It is something else.
    """
    found = transform(picture)
    if not isinstance(found, torch.Tensor):
        raise ConfigError(f"transform must give a tensor [C, H, W], got {type(found).__name__}.")
    if found.ndim != 3:
        shape = tuple(found.shape)
        raise ConfigError(f"transform must give a tensor [C, H, W], got one of shape {shape}.")
    return found


class Item(NamedTuple):
    """One image or video of a cell.

    Attributes:
        pixels: [C, H, W] or [frames, C, H, W]; None where there is nothing to judge.
        target: Its class.
        place: Of it within the cell.
        trouble: What is wrong with the data, "" where nothing is.
        failure: Why the transform could not be applied, "" where it was.
    """

    pixels: torch.Tensor | None
    target: int
    place: int
    trouble: str = ""
    failure: str = ""


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
        try:
            found = self.read(sample)
        except OSError:
            return Item(None, sample.target, index, str(Kind.UNREADABLE))
        images = found if isinstance(found, list) else [found]
        if len(images) != (self.frames or 1):
            return Item(None, sample.target, index, str(Kind.WRONG_LENGTH))
        if self.image_size and any(i.size != (self.image_size,) * 2 for i in images):
            return Item(None, sample.target, index, str(Kind.WRONG_SIZE))
        try:
            tensors = [as_input(self.transform, image.convert(self.mode)) for image in images]
            pixels = torch.stack(tensors) if self.frames else tensors[0]
        except ConfigError as error:
            return Item(None, sample.target, index, failure=str(error))
        # Whatever a foreign transform raises for an image that it does not take.
        except Exception as error:
            said = f"transform cannot take {sample.key}: {one_line(error)}"
            return Item(None, sample.target, index, failure=said)
        return Item(pixels, sample.target, index)


class Batch(NamedTuple):
    """Several items. Processes that read give what failed as data: an error would be a traceback.

    Attributes:
        pixels: Of those that can be judged: [judged, ...].
        targets: Of all: [B].
        indices: Of all: [B].
        judged: Which can be judged: [B].
        troubles: Of all.
        failure: Why the run cannot go on, "" where it can.
    """

    pixels: torch.Tensor
    targets: torch.Tensor
    indices: torch.Tensor
    judged: torch.Tensor
    troubles: list[str]
    failure: str


def collate(items: Sequence[Item]) -> Batch:
    """Put items together."""
    found = [item.pixels for item in items if item.pixels is not None]
    failure = next((item.failure for item in items if item.failure), "")
    shapes = list(dict.fromkeys(tuple(pixels.shape) for pixels in found))
    if len(shapes) > 1 and not failure:
        failure = (
            "transform must give tensors of one shape for all images of a benchmark, got "
            f"{shapes[0]} and {shapes[1]}."
        )
    whole = bool(found) and not failure
    return Batch(
        torch.stack(found) if whole else torch.zeros(0),
        torch.tensor([item.target for item in items]),
        torch.tensor([item.place for item in items]),
        torch.tensor([item.pixels is not None for item in items]),
        [item.trouble for item in items],
        failure,
    )
