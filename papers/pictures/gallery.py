"""Where one token of a photograph looks, stage by stage: docs/images/gallery.png.

    python -m papers.pictures.gallery
    python -m papers.pictures.gallery --image cat.jpg --picture cat.png

The window and the projected tokens are those of a CvT-LS-13, the slices those of a CST-ViL-Small:
the weights of a forward pass, of the mean of the heads. The models are untrained, so the picture
shows what a token can reach, not what a model has learnt. Needs the extra `demo`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timm import create_model

import vit_ls
from vit_ls import job
from vit_ls.recording import Attention, Part
from vit_ls.style import bare, picture
from vit_ls.visualize.images import as_input, cropped, photograph
from vit_ls.visualize.pictures import lay, ring

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "gallery.png"
SIZE = (224, 224)
AT = (0.4, 0.3)
"""Where the token is, from the top and from the left."""
COLUMNS: tuple[tuple[str, tuple[Part, ...]], ...] = (
    ("cvt_ls_13", ("window",)),
    ("cvt_ls_13", ("projected",)),
    ("cst_vil_small", ("window", "grid")),
    ("cst_vil_small", ("slices",)),
)
"""Of each column the model, and the part of its attention: the first that a layer has."""
WORDS: Mapping[str, Mapping[Part, str]] = {
    "cvt_ls_13": {"window": "window", "projected": "projected tokens"},
    "cst_vil_small": {"window": "its slice", "grid": "full attention", "slices": "all slices"},
}
STAGES = 3


def first_layers(name: str, image: Image.Image) -> list[Attention]:
    """What the first layer of each of the first stages of an untrained model attends to."""
    torch.manual_seed(0)
    model: Any = create_model(name).eval()
    with torch.inference_mode(), vit_ls.record(model) as records:
        model(as_input(image, model))
    return [records[f"stages.{stage}.blocks.0.attn"] for stage in range(STAGES)]


def place(layer: Attention) -> tuple[int, int]:
    """The token of a layer's grid that is looked from."""
    row, column = (int(at * n) for at, n in zip(AT, layer.grid, strict=True))
    return row, column


def draw(image: Image.Image, path: Path) -> None:
    """A row for each stage: the token, and a column for each part of attention."""
    layers = {name: first_layers(name, image) for name in WORDS}
    title = "A window is a part of the photo; projected tokens and slices reach all of it"
    note = (
        "Window and projected tokens: cvt_ls_13. Slices: cst_vil_small, whose stage 3 has full "
        "attention. Untrained, first layer of each stage, mean of the heads. The darker, the more; "
        "each map has a scale of its own. Ring: the token that looks. Percent: its share."
    )
    across = 1 + len(COLUMNS)
    with picture(
        *(path, title), across=across, down=STAGES, height=6.4, note=note, colours=96
    ) as panels:
        for stage in range(STAGES):
            row = panels[stage * across :]
            grid = layers["cvt_ls_13"][stage].grid
            row[0].imshow(image)
            ring(row[0], image, grid, place(layers["cvt_ls_13"][stage]))
            bare(row[0], f"stage {stage + 1}: {grid[0]} x {grid[1]}")
            for axes, (name, parts) in zip(row[1:], COLUMNS, strict=False):
                _panel(axes, layers[name][stage], parts, image, WORDS[name])


def _panel(
    axes: Any,
    layer: Attention,
    parts: Sequence[Part],
    image: Image.Image,
    words: Mapping[Part, str],
) -> None:
    at = place(layer)
    maps = layer.of_query(*at)
    part = next((part for part in parts if part in maps), None)
    if part is None:
        axes.set_axis_off()
        return
    share = float(layer.shares()[part][0].mean(0)[at])
    lay(axes, image, maps[part][0].mean(0))
    ring(axes, image, layer.grid, at)
    bare(axes, f"{words[part]}: {share:.0%}")


def main(argv: Sequence[str] | None = None) -> None:
    """Draw the gallery of one photograph."""
    parser = argparse.ArgumentParser(
        "papers.pictures.gallery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--image", type=Path, help="default: scikit-learn's picture of a temple")
    parser.add_argument("--picture", type=Path, default=PICTURE)
    args = parser.parse_args(argv)
    draw(cropped(photograph(args.image), SIZE), args.picture)
    sys.stdout.write(f"written: {args.picture}\n")


if __name__ == "__main__":
    sys.exit(job.command_line("papers.pictures.gallery", main))
