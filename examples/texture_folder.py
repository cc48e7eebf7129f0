"""Write a small folder of images to train on, from scikit-image's photos of three textures.

    python examples/texture_folder.py

Cuts brick, grass and gravel (512 x 512, grey, free of rights) into tiles of 64 x 64 pixels that do
not overlap: 48 of each for training, and 16 from the lowest quarter to hold out. Writes
train/CLASS/*.png and validation/CLASS/*.png into output/textures. Needs the extra `examples`.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from vit_ls import job
from vit_ls.data.pictures import read_picture
from vit_ls.errors import MissingPackageError, install

TEXTURES = ("brick", "grass", "gravel")
SIDE = 64
"""Of a tile, in pixels."""

HELD_OUT = 0.25
"""Share of each photo, from below, that is held out: no tile of it touches one for training."""


def write(folder: Path) -> dict[str, int]:
    """Write the tiles; returns how many each split has.

    Raises:
        MissingPackageError: scikit-image is not there.
    """
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        raise MissingPackageError(
            "texture_folder.py needs scikit-image: pip install scikit-image, or in the checkout "
            f"{install('examples')}."
        )
    counts = {"train": 0, "validation": 0}
    for texture in TEXTURES:
        photo = read_picture(Path(spec.origin).parent / "data" / f"{texture}.png")
        first_held_out = round(photo.height * (1 - HELD_OUT))
        for top in range(0, photo.height - SIDE + 1, SIDE):
            split = "train" if top + SIDE <= first_held_out else "validation"
            for left in range(0, photo.width - SIDE + 1, SIDE):
                file = folder / split / texture / f"{top:03}_{left:03}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                photo.crop((left, top, left + SIDE, top + SIDE)).save(file)
                counts[split] += 1
    return counts


def main(argv: Sequence[str] | None = None) -> None:
    """Write the folder and say what is in it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("output/textures"), help="a folder")
    args = parser.parse_args(argv)
    counts = ", ".join(f"{count} in {split}" for split, count in write(args.out).items())
    sys.stdout.write(f"{args.out}: {len(TEXTURES)} classes, {counts}\n")


if __name__ == "__main__":
    sys.exit(job.command_line("texture_folder.py", main))
