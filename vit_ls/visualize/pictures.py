"""Maps laid over an image, as PNG files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image
from torch import Tensor

from vit_ls.recording import Attention, Part

_COLUMNS = 8
TITLES: dict[Part, str] = {
    "window": "window",
    "projected": "projected tokens",
    "global": "global tokens",
    "grid": "whole grid",
    "slices": "slices",
}


def projection(layer: Attention, image: Image.Image, path: Path, head: int | None) -> None:
    """Where each projected token looks: its row of P, by head and token (the first eight)."""
    assert layer.projection is not None
    P = layer.projection[0].unflatten(2, layer.grid)
    heads = range(P.shape[0]) if head is None else [head]
    columns = min(P.shape[1], _COLUMNS)
    figure = Figure(figsize=(1.6 * columns, 1.7 * len(heads) + 0.4), layout="constrained")
    axes = figure.subplots(len(heads), columns, squeeze=False)
    for row, h in zip(axes, heads, strict=True):
        for r, axis in enumerate(row):
            _overlay(axis, image, P[h, r])
            axis.set_title(f"head {h}, token {r}", fontsize=7)
    figure.suptitle(f"{layer.name}: {P.shape[1]} projected tokens", fontsize=9)
    figure.savefig(path, dpi=70)


def query(
    layer: Attention, image: Image.Image, place: tuple[int, int], path: Path, head: int | None
) -> dict[Part, float]:
    """Where one token looks, part by part; returns the share of each."""
    row, column = place
    maps = layer.of_query(row, column)
    shares = {
        part: float(_of_head(share, head)[row, column]) for part, share in layer.shares().items()
    }
    figure = Figure(figsize=(2.8 * (len(maps) + 1), 3), layout="constrained")
    axes = figure.subplots(1, len(maps) + 1)
    side_y, side_x = image.height / layer.grid[0], image.width / layer.grid[1]
    center = ((column + 0.5) * side_x, (row + 0.5) * side_y)
    axes[0].imshow(image)
    axes[0].set_title(f"{layer.name}\nquery {row},{column}", fontsize=8)
    for axis, (part, grid) in zip(axes[1:], maps.items(), strict=True):
        _overlay(axis, image, _of_head(grid, head))
        axis.set_title(f"{TITLES[part]}: {shares[part]:.1%}", fontsize=8)
    for axis in axes:
        axis.plot(*center, marker="+", color="cyan", markersize=10, markeredgewidth=2)
        axis.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=70)
    return shares


def slices(layer: Attention, path: Path, head: int | None) -> None:
    """The attention of each slice to each slice, in row-major order."""
    weights = _of_head(layer.tokens[0], head)
    figure = Figure(figsize=(4, 3.6), layout="constrained")
    axis = figure.subplots()
    # from zero, so that small differences of an untrained model look small
    figure.colorbar(axis.imshow(weights.numpy(), cmap="magma", vmin=0), ax=axis)
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="slice looked at", ylabel="slice", title=layer.name)
    figure.savefig(path, dpi=70)


def overlay(grid: Tensor, image: Image.Image, title: str, path: Path) -> None:
    """One map [H,W] over the image, beside the image."""
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    axes[0].imshow(image)
    _overlay(axes[1], image, grid)
    axes[1].set_title(title, fontsize=8)
    axes[0].set(xticks=[], yticks=[])
    figure.savefig(path, dpi=70)


def _of_head(x: Tensor, head: int | None) -> Tensor:
    """[1,h,...] -> [...], of one head or the mean of all."""
    return x[0].mean(0) if head is None else x[0, head]


def _overlay(axis: Any, image: Image.Image, grid: Tensor) -> None:
    values = grid.double().numpy()
    size = (0, image.width, image.height, 0)
    axis.imshow(np.asarray(image.convert("L")), cmap="gray", extent=size)
    top = max(float(values.max()), 1e-12)
    axis.imshow(values, cmap="inferno", alpha=0.6, extent=size, vmin=0, vmax=top)
    axis.set(xticks=[], yticks=[])


def parts_of_all_queries(layer: Attention) -> Mapping[Part, "np.ndarray[Any, Any]"]:
    """By part, of every token the map of where it looks, mean of the heads [H*W,H*W]."""
    H, W = layer.grid
    found: dict[Part, list[Any]] = {}
    for row in range(H):
        for column in range(W):
            for part, grid in layer.of_query(row, column).items():
                found.setdefault(part, []).append(grid[0].mean(0).flatten().numpy())
    return {part: np.stack(rows) for part, rows in found.items()}
