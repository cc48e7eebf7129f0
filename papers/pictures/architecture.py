"""One picture of the architecture of each family: docs/images/architecture_*.png.

    python -m papers.pictures.architecture

Each stage is drawn to scale, one cell a token, as a forward pass of the model itself records it:
its grid, its windows with their halo, its projected and global tokens. A file carries the lines
that it was drawn from, which a test reads from the models again. Needs the extra `demo`.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch

import vit_ls
from vit_ls.style import COLOURS, INK, QUIET, picture

FOLDER = Path(__file__).parents[2] / "docs" / "images"
MODELS = {
    "vil_ls": "vil_ls_small",
    "cvt_ls": "cvt_ls_13",
    "cst_vit": "cst_vit_small_patch16_224",
    "cst_vil": "cst_vil_small",
}
"""Of each family the model that is drawn."""

_WORDS = {
    "LongShort": "long-short attention",
    "CompositeSlice": "composite slices",
    "Full": "full attention",
}


class Drawn(NamedTuple):
    """A stage, as its first block's attention is recorded."""

    attention: str
    grid: tuple[int, int]
    window: tuple[int, int]
    halo: tuple[int, int]
    projected: int
    tokens: int
    """Global ones."""
    blocks: int
    heads: int
    dim: int
    stride: int


def stages(model: Any) -> list[Drawn]:
    """The stages of a model, from a forward pass at its own size."""
    side = model.pretrained_cfg["input_size"][1:]
    with torch.no_grad(), vit_ls.record(model) as records:
        model(torch.zeros(1, 3, *side))
    found = []
    for number, spec in enumerate(model.spec.stages):
        record = records[f"stages.{number}.blocks.0.attn"]
        found.append(
            Drawn(
                _WORDS[type(spec.attention).__name__],
                *(record.grid, record.window, record.halo, record.rank, record.num_global),
                *(spec.depth, spec.num_heads, spec.dim, round(side[0] / record.grid[0])),
            )
        )
    return found


def lines(stage: Drawn) -> list[str]:
    """What stands below a stage."""
    said = [
        f"{stage.grid[0]} x {stage.grid[1]} tokens, stride {stage.stride}",
        f"{stage.dim} channels, heads: {stage.heads}",
        stage.attention,
    ]
    if stage.attention == "composite slices":
        count = [-(-side // a) for side, a in zip(stage.grid, stage.window, strict=True)]
        said.append(f"{count[0]} x {count[1]} slices of {stage.window[0]} x {stage.window[1]}")
    elif stage.window[0]:
        keys = [a + 2 * s for a, s in zip(stage.window, stage.halo, strict=True)]
        said.append(f"{stage.window[0]} x {stage.window[1]} see {keys[0]} x {keys[1]} tokens")
    if stage.projected:
        said.append(f"and {stage.projected} projected tokens")
    if stage.tokens:
        said.append(f"and {stage.tokens} global token{'s' * (stage.tokens > 1)}")
    return said


def finding(found: Sequence[Drawn]) -> str:
    """What a picture says: where windows end and full attention begins."""
    local = [stage.attention != _WORDS["Full"] for stage in found]
    kind = found[0].attention
    if all(local):
        where = f"in all {len(found)} stages" if len(found) > 1 else f"in {found[0].blocks} blocks"
        return f"{kind} {where}"
    full = found[local.index(False)]
    return f"{kind} in {sum(local)} stages, full from {full.grid[0]} x {full.grid[1]} tokens on"


def draw(model: str, found: Sequence[Drawn], path: Path) -> None:
    """The stages of a model side by side; of a model of one stage, the steps of its attention."""
    note = (
        "A square is the whole image, a cell a token. Orange: tokens that look, with a ring around "
        "what else they see. Beside it: blue, projected tokens; green, a global token."
    )
    title = f"{model}: {finding(found)}"
    with picture(path, title, height=3.6, note=note, says={"stages": repr(found)}) as (axes,):
        for number, stage in enumerate(found):
            head = f"stage {number + 1}" if len(found) > 1 else "a token sees its slice"
            blocks = f": {stage.blocks} block{'s' * (stage.blocks > 1)}" if len(found) > 1 else ""
            _head(axes, number, head + blocks, lines(stage))
            _stage(axes, stage, 1.42 * number)
        if len(found) == 1:
            _steps(axes, found[0])
        axes.set(xlim=(-0.02, 4 * 1.42), ylim=(-0.85, 1.2), aspect="equal")
        axes.set_axis_off()


def _head(axes: Any, number: int, above: str, below: Sequence[str]) -> None:
    left = 1.42 * number
    axes.text(left, 1.08, above, fontsize=10.5, fontweight="bold", color=INK)
    axes.text(left, -0.06, "\n".join(below), va="top", fontsize=9, color=QUIET)


def _stage(axes: Any, stage: Drawn, left: float) -> None:
    """The grid, one window and what it sees, and the tokens beside it."""
    (H, W), (a, b), (sa, sb) = stage.grid, stage.window, stage.halo
    a, b = (a, b) if a else stage.grid
    row, column = a * max((H // a - 1) // 2, 0), b * max((W // b - 1) // 2, 0)
    _cells(axes, stage.grid, left, {(row, column, min(a, H), min(b, W)): (COLOURS[4], 1.0)})
    for i in range(0, H + 1, a):
        axes.plot([left, left + 1], [1 - i / H] * 2, color=QUIET, linewidth=0.9)
    for i in range(0, W + 1, b):
        axes.plot([left + i / W] * 2, [0, 1], color=QUIET, linewidth=0.9)
    if sa:
        y, x = (max(row - sa, 0), min(row + a + sa, H)), (max(column - sb, 0), column + b + sb)
        across = [left + min(side, W) / W for side in (x[0], x[1], x[1], x[0], x[0])]
        down = [1 - side / H for side in (y[0], y[0], y[1], y[1], y[0])]
        axes.plot(across, down, color=COLOURS[1], linewidth=2.4)
    size = 1 / 17
    for i in range(stage.projected + stage.tokens):
        colour, mark = (COLOURS[0], "s") if i < stage.projected else (COLOURS[2], "D")
        at = (left + 1.03 + size * (i // 16 + 0.5), 1 - size * (i % 16 + 0.5))
        axes.plot(*at, mark, color=colour, ms=3.4)


def _steps(axes: Any, stage: Drawn) -> None:
    """What follows inside a block of composite slices: the means look at each other, both add."""
    slices = [-(-side // a) for side, a in zip(stage.grid, stage.window, strict=True)]
    a, b = stage.window
    among = [f"{slices[0]} x {slices[1]} means of slices,", "each sees all of them"]
    _head(axes, 1, "slices see each other", among)
    _cells(axes, (slices[0], slices[1]), 1.42, {(0, 0, *slices): (COLOURS[4], 0.55)})
    both = [
        "its slice in detail,",
        "the others by their means",
        f"in each of {stage.blocks} blocks",
    ]
    _head(axes, 2, "the sum sees all", both)
    spots = {(0, 0, *stage.grid): (COLOURS[4], 0.3), (0, 0, a, b): (COLOURS[4], 1.0)}
    _cells(axes, stage.grid, 2.84, spots)


def _cells(
    axes: Any,
    grid: tuple[int, int],
    left: float,
    spots: Mapping[Any, tuple[str, float]],
) -> None:
    """A grid in a square of side 1; spots are (row, column, height, width), coloured."""
    from matplotlib.patches import Rectangle

    H, W = grid
    for (row, column, height, width), (colour, alpha) in spots.items():
        corner = (left + column / W, 1 - (row + height) / H)
        axes.add_patch(
            Rectangle(corner, width / W, height / H, facecolor=colour, alpha=alpha, linewidth=0)
        )
    for i in range(H + 1):
        axes.plot([left, left + 1], [i / H] * 2, color="#AAAAAA", linewidth=0.4)
    for i in range(W + 1):
        axes.plot([left + i / W] * 2, [0, 1], color="#AAAAAA", linewidth=0.4)


def main() -> None:
    """Draw a model of each family."""
    for family, name in MODELS.items():
        draw(name, stages(timm.create_model(name).eval()), FOLDER / f"architecture_{family}.png")
    sys.stdout.write(f"{len(MODELS)} pictures in {FOLDER}\n")


if __name__ == "__main__":
    main()
