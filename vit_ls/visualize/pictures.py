"""Maps laid over an image, as PNG files: the darker a place, the more it is looked at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor

from vit_ls.recording import Attention, Part
from vit_ls.style import COLOURS, bare, picture, shades

_COLUMNS = 4
_LEAST = 448
"""Pixels on the longer side of an image as it is drawn."""
TITLES: dict[Part, str] = {
    "window": "window",
    "projected": "projected tokens",
    "global": "global tokens",
    "grid": "whole grid",
    "slices": "slices",
}


def projection(layer: Attention, image: Image.Image, path: Path, head: int | None) -> None:
    """Where each projected token looks: its row of P, by head and token (the first four)."""
    assert layer.projection is not None
    P = layer.projection[0].unflatten(2, layer.grid)
    heads = range(P.shape[0]) if head is None else [head]
    columns = min(P.shape[1], _COLUMNS)
    H, W = layer.grid
    title = f"{P.shape[1]} projected tokens of a head stand for {H} x {W} tokens"
    drawn = f" The first {columns} are drawn." if columns < P.shape[1] else ""
    note = f"{layer.name}. The darker, the more a projected token takes from there.{drawn}"
    height = 0.9 + 7.6 / columns * len(heads) * image.height / image.width
    with picture(
        *(path, title), across=columns, down=len(heads), height=height, note=note
    ) as panels:
        for axes, (h, r) in zip(panels, np.ndindex(len(heads), columns), strict=True):
            lay(axes, image, P[heads[h], r])
            bare(axes, f"head {heads[h]}, token {r}")


def query(
    layer: Attention, image: Image.Image, place: tuple[int, int], path: Path, head: int | None
) -> dict[Part, float]:
    """Where one token looks, part by part; returns the share of each."""
    row, column = place
    maps = layer.of_query(row, column)
    shares = {
        part: float(_of_head(share, head)[row, column]) for part, share in layer.shares().items()
    }
    said = ", ".join(f"{shares[part]:.0%} at {TITLES[part]}" for part in maps)
    title = f"The token at row {row}, column {column} looks {said}"
    note = f"{layer.name}. The darker, the more; each map has a scale of its own. Ring: the token."
    height = 0.9 + 7.6 / (len(maps) + 1) * image.height / image.width
    with picture(path, title, across=len(maps) + 1, height=height, note=note) as panels:
        panels[0].imshow(image)
        bare(panels[0], "image")
        for axes, (part, grid) in zip(panels[1:], maps.items(), strict=True):
            lay(axes, image, _of_head(grid, head))
            bare(axes, f"{TITLES[part]}: {shares[part]:.1%}")
        for axes in panels:
            ring(axes, image, layer.grid, place)
    return shares


def slices(layer: Attention, path: Path, head: int | None) -> None:
    """The attention of each slice to each slice, in row-major order."""
    weights = _of_head(layer.tokens[0], head)
    low, high = float(weights.min()), float(weights.max())
    title = f"{layer.name}: a slice gives another {low:.1%} to {high:.1%} of its attention"
    with picture(path, title, height=5, note="Slices row by row of the image.") as (axes,):
        # from zero, so that small differences of an untrained model look small
        shown = axes.imshow(100 * weights.numpy(), cmap=shades(), vmin=0)
        axes.figure.colorbar(shown, ax=axes, label="share (%)")
        axes.grid(visible=False)
        for ticks in (axes.xaxis, axes.yaxis):
            ticks.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="slice looked at", ylabel="slice that looks")


def relevance(grid: Tensor, image: Image.Image, path: Path) -> None:
    """How much each token [H,W] counts for the classifier, over the image and beside it."""
    times = float(grid.max() / grid.mean())
    title = f"Through all layers, one token counts up to {times:.1f} times the mean"
    note = "Rollout. The darker, the more a token counts for what the classifier reads."
    height = 0.9 + 3.8 * image.height / image.width
    with picture(path, title, across=2, height=height, note=note) as (left, right):
        left.imshow(image)
        bare(left, "image")
        lay(right, image, grid)
        bare(right, "what counts")


def lay(axes: Any, image: Image.Image, grid: Tensor) -> None:
    """Draw an image in light grey, darker where a map [H,W] is large.

    The darkest is the map's largest number, or twice its mean: a map of equal numbers is not dark.
    Behind it a dark image is drawn as its negative, which hides less.
    """
    scale = max(1, -(-_LEAST // max(image.size)))
    size = (image.width * scale, image.height * scale)
    grey = np.asarray(image.convert("L").resize(size, Image.Resampling.NEAREST)) / 255
    grey = 1 - grey if grey.mean() < 0.4 else grey
    values = grid.double().numpy()
    values = values / max(float(values.max()), 2 * float(values.mean()), 1e-12)
    rows = np.arange(size[1]) * values.shape[0] // size[1]
    columns = np.arange(size[0]) * values.shape[1] // size[0]
    tint = shades()(values)[..., :3][rows[:, None], columns[None]]
    # light as paper, so that the tint alone is dark
    axes.imshow(tint * (0.62 + 0.38 * grey)[..., None], extent=(0, image.width, image.height, 0))


def ring(axes: Any, image: Image.Image, grid: tuple[int, int], place: tuple[int, int]) -> None:
    """Mark a token, seen on dark and on bright."""
    y, x = ((at + 0.5) * side / n for at, side, n in
            zip(place, (image.height, image.width), grid, strict=True))  # fmt: skip
    for colour, width in (("white", 4.5), (COLOURS[1], 2.2)):
        axes.plot(x, y, "o", mfc="none", mec=colour, mew=width, ms=10, label="_")


def _of_head(x: Tensor, head: int | None) -> Tensor:
    """[1,h,...] -> [...], of one head or the mean of all."""
    return x[0].mean(0) if head is None else x[0, head]


def parts_of_all_queries(layer: Attention) -> Mapping[Part, "np.ndarray[Any, Any]"]:
    """By part, of every token the map of where it looks, mean of the heads [H*W,H*W]."""
    H, W = layer.grid
    found: dict[Part, list[Any]] = {}
    for row in range(H):
        for column in range(W):
            for part, grid in layer.of_query(row, column).items():
                found.setdefault(part, []).append(grid[0].mean(0).flatten().numpy())
    return {part: np.stack(rows) for part, rows in found.items()}
