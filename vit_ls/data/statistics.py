"""Mean and standard deviation of images: `python -m vit_ls.data.statistics FOLDER`.

Prints them as flags of train.py, from 0 to 1 for each channel. Each image counts alike, whatever
its size, and is taken whole; the standard deviation is that of a pixel about the mean of all.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from vit_ls import job
from vit_ls.config import ConfigError, DataConfig
from vit_ls.data.datasets import Images, open_images
from vit_ls.data.errors import DataError, UnreadableImageError
from vit_ls.data.processes import Supervised

_logger = logging.getLogger(__name__)
_VALUES = np.arange(256) / 255
_LIMIT = 600.0  # seconds to wait for an image


class Statistics(NamedTuple):
    """Of a split.

    Attributes:
        mean: Of each channel, from 0 to 1.
        std: As well.
        images: How many there were.
        unreadable: Of these, how many were left out.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: int
    unreadable: int


def statistics(images: Images, *, workers: int = 0, max_unreadable: int = 0) -> Statistics:
    """The mean and the standard deviation of the images of a split.

    Args:
        images: A split that was opened for training, so that a damaged image is an error.
        workers: Loading processes; they do not change the result.
        max_unreadable: How many images may be left out because they cannot be read.

    Raises:
        ConfigError: The data is streamed, or a channel has one value everywhere.
        DataError: No image can be read, or too many cannot.
    """
    if images.streamed:
        raise ConfigError("statistics need a data set that is not streamed.")
    loader = DataLoader(_Moments(images.dataset), None, num_workers=workers, collate_fn=_as_it_is)
    total: NDArray[np.float64] | float = 0.0
    unreadable = 0
    for moments in Supervised(loader, _LIMIT):
        if isinstance(moments, str):
            unreadable += 1
            _logger.warning("unreadable image, left out: %s", moments)
            if unreadable > max_unreadable:
                raise DataError(f"--max-unreadable {max_unreadable} is exceeded: {moments}")
        else:
            total = total + moments
    count = len(images.dataset)
    if count == unreadable:
        raise DataError(f"none of the {count} images can be read.")
    mean, square = np.asarray(total) / (count - unreadable)
    # Of one value everywhere, rounding may leave something on either side of 0.
    variance = np.where(square - mean**2 > 1e-12, square - mean**2, 0)
    if not variance.all():
        raise ConfigError(
            "each channel must have more than one value to be normalised, got the mean "
            f"{' '.join(f'{x:.6f}' for x in mean)} with standard deviation 0."
        )
    return Statistics(tuple(mean.tolist()), tuple(np.sqrt(variance).tolist()), count, unreadable)


class _Moments(Dataset[Any]):
    """Mean and mean square of each image's channels [2,C]; what is wrong where it is unreadable."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> "NDArray[np.float64] | str":
        try:
            image, _ = self.dataset[index]
        except UnreadableImageError as error:
            return str(error)
        # Counts of each value: exact in any order, and quicker than the pixels.
        counts = np.array(image.histogram()).reshape(-1, 256)
        pixels = image.width * image.height
        return np.stack([counts @ _VALUES, counts @ _VALUES**2]) / pixels


def _as_it_is(value: Any) -> Any:
    return value


def main(argv: Sequence[str] | None = None) -> None:
    """Print the flags."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(
        "vit_ls.data.statistics",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data_dir", type=Path, metavar="FOLDER", help="as --data-dir of train.py")
    add("--dataset", default="", help="kind, as of train.py; default: folder or tar")
    add("--split", default="train", help="default: train; '' is the whole folder or tar")
    add("--input-img-mode", choices=("RGB", "L"), default="RGB", help="default: RGB")
    add("--workers", type=int, default=4, help="loading processes; default: 4")
    add("--max-unreadable", type=int, default=10, help="images to leave out at most; default: 10")
    args = parser.parse_args(argv)
    for name in ("workers", "max_unreadable"):
        if getattr(args, name) < 0:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} must not be negative, got {getattr(args, name)}.")
    config = DataConfig(
        data_dir=str(args.data_dir), dataset=args.dataset, input_img_mode=args.input_img_mode
    )
    if args.input_img_mode == "L":
        config = DataConfig(**{**vars(config), "in_chans": 1})
    images = open_images(config, args.split, training=True)
    found = statistics(images, workers=args.workers, max_unreadable=args.max_unreadable)
    _logger.info("of %d images, %d of them unreadable:", found.images, found.unreadable)
    mean, std = (" ".join(f"{value:.4f}" for value in one) for one in (found.mean, found.std))
    sys.stdout.write(f"--mean {mean} --std {std}\n")


if __name__ == "__main__":
    sys.exit(job.command_line("vit_ls.data.statistics", main))
