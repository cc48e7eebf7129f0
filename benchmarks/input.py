"""Images per second and core of the training loader, beside timm's own with the same transform.

    python -m benchmarks.input --out FILE.csv

Reads JPEGs that it makes, of ImageNet's usual size, in this process (no workers), and counts
the processor's time, so that other load counts less. The rounds of all rows go in turn, each
from another row on. Times are the least, ratios the median of those of each round:

- "vit_ls": `vit_ls.data.train_batches`, each image on seeds of its own;
- "vit_ls, reduced": the same with `--reduced-decoding`;
- "timm": `timm.data.create_loader` over the same files with the same transform;
- "seeds": what the seeds of one image take, as a share of "vit_ls";
- "decode": opening, decoding, one random crop and its resizing, nothing else;
- "decode, reduced": the same with Pillow's draft mode, which decodes a JPEG at 1/2, 1/4 or 1/8 of
  its size, wherever the crop then still has as many pixels as it is resized to.

The loaders draw different augmentations, whose costs differ by more than the loaders do. With
`--fixed` each image is taken whole and only resized: both do the same work, and what is left is the
loaders' own.
"""

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, create_loader
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.functional import resized_crop

from benchmarks.speed.measure import Times, in_turn
from vit_ls.config import TrainConfig
from vit_ls.data import open_splits, train_batches
from vit_ls.data.augment import train_transform
from vit_ls.data.pictures import converted, opened, reduction
from vit_ls.data.pictures import decode as reduced_decode
from vit_ls.job import Ranks
from vit_ls.job.machine import machine
from vit_ls.job.rng import seed, seeded

COLUMNS = ("row", "images", "ms_per_image", "images_per_s_and_core", "note")
CPU = torch.device("cpu")
BATCH = 64
"""Images; fewer where there are fewer."""


def main() -> None:
    """Write the table, and the file of `--out` if there is one."""
    parser = argparse.ArgumentParser("benchmarks.input", description="Images/s of the loader.")
    add = parser.add_argument
    add("--images", type=int, default=256)
    add("--image-size", type=int, nargs=2, default=(500, 375), metavar=("W", "H"))
    add("--size", type=int, default=224, help="of the crops")
    add("--rounds", type=int, default=4)
    add("--fixed", action="store_true", help="no augmentation: the whole image, resized")
    add("--aa", default="rand-m9-mstd0.5-inc1", help="policy of augmentation, or an empty string")
    add("--out", type=Path, help="a CSV file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        files = make_images(Path(folder), args.images, tuple(args.image_size))
        rows = measure(Path(folder), files, args)
    for row in (COLUMNS, *rows):
        sys.stdout.write(" | ".join(row) + "\n")
    if args.out:
        size = ("# image, crop", f"{args.image_size[0]} x {args.image_size[1]}, {args.size}")
        with args.out.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [*machine("cpu"), size, ("# augmentation", _policy(args)), COLUMNS, *rows]
            )


def make_images(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """JPEGs with large and small structure in a class folder for training and one for validation.

    Returns:
        The files for training.
    """
    rng = np.random.default_rng(0)
    files = []
    for split, number in (("train", count), ("val", 1)):
        place = folder / split / "class"
        place.mkdir(parents=True)
        for i in range(number):
            coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
            smooth = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC))
            noise = rng.normal(0, 12, smooth.shape)  # so that there is something to decode
            pixels = (smooth + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{i}.jpg", quality=90)
            if split == "train":
                files.append(place / f"{i}.jpg")
    return files


def measure(folder: Path, files: list[Path], args: argparse.Namespace) -> list[tuple[str, ...]]:
    """The rows of the table."""
    config = TrainConfig(
        data_dir=str(folder),
        batch_size=min(BATCH, len(files)),
        workers=0,
        num_classes=1,
        aa=_policy(args),
    )
    if args.fixed:
        ratio = args.image_size[0] / args.image_size[1]
        config = replace(
            config,
            scale=[1.0, 1.0],
            ratio=[ratio, ratio],
            hflip=0.0,
            color_jitter=0.0,
            train_interpolation="bicubic",
        )
    data = {
        "input_size": (3, args.size, args.size),
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "crop_pct": 0.9,
        "crop_mode": "center",
    }
    ours, reduced = (
        train_batches(open_splits(one)[0], one, data, Ranks(CPU))
        for one in (config, replace(config, reduced_decoding=True))
    )
    theirs = _timm_loader(config, data)
    crops = _crops(files, args.size)
    runs: dict[str, Callable[[], Any]] = {
        "vit_ls": lambda: list(ours.epoch(0)),
        "vit_ls, reduced": lambda: list(reduced.epoch(0)),
        "timm": lambda: _seeded_epoch(theirs),
        "seeds": lambda: _seeds(len(files)),
        "decode": lambda: [decode(f, c, args.size) for f, c in zip(files, crops, strict=True)],
        "decode, reduced": lambda: [
            decode(f, c, args.size, reduced=True) for f, c in zip(files, crops, strict=True)
        ],
    }
    found = in_turn(runs, args.rounds, "cpu", processor=True)
    seconds = {name: times.least for name, times in found.items()}
    notes = {
        "vit_ls": f"{_ratio(found['vit_ls'], found['timm'])} times timm's time",
        "vit_ls, reduced": f"{_ratio(found['vit_ls, reduced'], found['vit_ls'])} times vit_ls",
        "timm": "",
        "seeds": f"{100 * seconds['seeds'] / seconds['vit_ls']:.1f} % of vit_ls",
        "decode": f"{np.mean([f.stat().st_size for f in files]) / 1e3:.0f} kB a file",
        "decode, reduced": _difference(files, crops, args.size, seconds),
    }
    return [
        (name, str(len(files)), f"{1e3 * s / len(files):.3f}", f"{len(files) / s:.1f}", notes[name])
        for name, s in seconds.items()
    ]


def decode(
    file: Path, crop: tuple[int, int, int, int], size: int, *, reduced: bool = False
) -> Image.Image:
    """One crop of a file, resized to size x size pixels.

    Args:
        file: A JPEG.
        crop: Top, left, height, width in pixels of the whole image.
        size: In pixels.
        reduced: Decode at a reduced scale where the crop keeps at least `size` pixels a side.
    """
    with opened(file) as image:
        if reduced:
            return reduced_decode(image, crop, (size, size), "RGB", InterpolationMode.BICUBIC)
        cut: Image.Image = resized_crop(
            converted(image, "RGB"), *crop, [size, size], InterpolationMode.BICUBIC
        )
        return cut


def _policy(args: argparse.Namespace) -> str:
    return "" if args.fixed else str(args.aa)


def _scale(crop: tuple[int, int, int, int], size: int) -> int:
    return reduction(crop[2:], (size, size))


def _crops(files: list[Path], size: int) -> list[tuple[int, int, int, int]]:
    """As timm draws them: 8 to 100 % of the area."""
    torch.manual_seed(0)
    random.seed(0)
    draw = RandomResizedCrop(size)
    crops = []
    for file in files:
        with opened(file) as image:
            crops.append(draw.get_params(image, list(draw.scale), list(draw.ratio)))
    return crops


def _difference(
    files: list[Path], crops: list[tuple[int, int, int, int]], size: int, seconds: dict[str, float]
) -> str:
    fewer = [(f, c) for f, c in zip(files, crops, strict=True) if _scale(c, size) > 1]
    share = f"allowed for {len(fewer)} of {len(files)} crops"
    if not fewer:
        return share
    gaps = [
        np.abs(
            np.asarray(decode(f, c, size, reduced=True), dtype=np.float32)
            - np.asarray(decode(f, c, size), dtype=np.float32)
        ).mean()
        for f, c in fewer
    ]
    times = seconds["decode, reduced"] / seconds["decode"]
    return f"{share}, {times:.2f} times the time, mean difference of those {np.mean(gaps):.2f}/255"


def _timm_loader(config: TrainConfig, data: dict[str, Any]) -> Any:
    """The loader of timm of the same files, its transform replaced by the same one."""
    dataset = open_splits(config)[0].dataset
    loader = create_loader(
        dataset,
        input_size=data["input_size"],
        batch_size=config.batch_size,
        is_training=True,
        re_prob=config.reprob,
        re_mode=config.remode,
        re_count=config.recount,
        mean=data["mean"],
        std=data["std"],
        num_workers=0,
        persistent_workers=False,
        pin_memory=False,
        device=CPU,
    )
    dataset.transform = train_transform(config, data)
    return loader


def _seeded_epoch(loader: Any) -> None:
    """The same draws in each round, of which the least counts."""
    with seeded(0):
        for _ in loader:
            pass


def _seeds(images: int) -> None:
    """What `vit_ls.data.seeded.SeededImages` does for the seeds of a batch."""
    with seeded(0):
        for position in range(images):
            seed(0, 0, position, 1)


def _ratio(some: Times, others: Times) -> str:
    """The median ratio of a round, and its quartiles."""
    ratios = [a / b for a, b in zip(some.rounds, others.rounds, strict=True)]
    low, middle, high = np.percentile(ratios, (25, 50, 75))
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
