"""What one query sees, drawn from the attention functions themselves: docs/images/*.png.

    python -m papers.pictures.attention

Nothing of the pictures is drawn by hand: the weight of a key is the derivative of the query's
output by that key's value. Each file carries a digest of these weights, which a test computes
again, so that a picture cannot outlive a change of the code. Needs the extra `demo`.
"""

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vit_ls.ops import (
    Positions,
    Windows,
    add_to_tokens,
    attend_slices,
    dynamic_projection,
    long_short_attention,
    slice_attention,
    slice_embedding,
)
from vit_ls.style import COLOURS, QUIET, bare, picture, shades

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SHOWN = FOLDER / "attention.png"
"""All panels, in one picture."""
SIDE, WINDOW, HALO, RANK = 16, 4, 2, 4
QUERY = (5, 9)
"""Row and column of the token that looks."""

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """One picture: weights over the grid, [SIDE,SIDE] or several of them [R,SIDE,SIDE]."""

    name: str
    title: str
    """In few words, beside other panels."""
    finding: str
    """Of a picture of its own; `{seen}` is how many tokens have a weight."""
    weights: Weights
    query: bool = True
    """Whether to mark the query; a projection is the same for all."""

    @property
    def digest(self) -> str:
        """Of the weights, rounded so that another machine's last digits do not count."""
        rounded = np.round(self.weights, 5) + 0.0  # no negative zeros
        return hashlib.sha256(rounded.astype("<f8").tobytes()).hexdigest()


def panels() -> list[Panel]:
    """The weights, computed by the package's functions. Scores are all alike: the masks alone."""
    window, halo, slices = (_by_value(f) for f in (_window(0), _window(HALO), _slices))
    return [
        Panel("window", "a window", "A token sees the {seen} tokens of its window", window),
        Panel("halo", "with a halo", f"With a halo of {HALO} it sees {{seen}} tokens", halo),
        Panel(
            *(
                "projection",
                "a projection",
                f"{RANK} projected tokens summarise all {{seen}} tokens",
            ),
            *(_projection(), False),
        ),
        Panel("slices", "slices", "Its slice in detail, all {seen} tokens through means", slices),
    ]


def _by_value(attention: Callable[[Tensor], Tensor]) -> Weights:
    """D output(QUERY) / d value(token): [1,SIDE,SIDE,1] -> the same, to [SIDE,SIDE]."""
    values = torch.zeros(1, SIDE, SIDE, 1, dtype=torch.float64, requires_grad=True)
    (weights,) = torch.autograd.grad(attention(values)[0, QUERY[0], QUERY[1], 0], values)
    array: Weights = weights[0, :, :, 0].numpy()
    return array


def _window(halo: int) -> Callable[[Tensor], Tensor]:
    windows = Windows((WINDOW, WINDOW), (halo, halo))

    def attention(v: Tensor) -> Tensor:
        nothing = torch.zeros_like(v)
        kv = torch.stack((nothing, v))
        return long_short_attention(nothing, kv, None, None, Positions(), windows, num_heads=1)

    return attention


def _slices(v: Tensor) -> Tensor:
    """Y_l + Y_g, where Y_g is attention among the means of Y_l."""
    windows = Windows((WINDOW, WINDOW), (0, 0))
    nothing = torch.zeros_like(v)
    kv = torch.stack((nothing, v))
    y_l = slice_attention(nothing, kv, None, None, windows, num_heads=1)
    means = slice_embedding(y_l, windows, aggregation="mean")
    among = torch.stack((torch.zeros_like(means), means))
    y_g = attend_slices(torch.zeros_like(means), among, num_heads=1, slice_size=windows.window)
    return add_to_tokens(y_l, y_g, windows.window)


def _projection() -> Weights:
    """Rows of P for a drawn scene, whose projection is random: d K_bar(r) / d K(token)."""
    generator = torch.Generator().manual_seed(3)
    directions = torch.randn(3, RANK, generator=generator, dtype=torch.float64)
    scene = scene_of_two_things()
    logits = 3 * (scene - scene.mean((0, 1))) / scene.std((0, 1)) @ directions
    keys = torch.zeros(1, SIDE, SIDE, 1, dtype=torch.float64, requires_grad=True)
    kv = torch.stack((keys, torch.zeros_like(keys)))
    k_bar = dynamic_projection(logits[None], kv, num_heads=1)[0, 0, :, 0]
    rows = [torch.autograd.grad(row, keys, retain_graph=True)[0][0, :, :, 0] for row in k_bar]
    array: Weights = torch.stack(rows).numpy()
    return array


def scene_of_two_things() -> Tensor:
    """A disc and a bar before a sky, in three channels: [SIDE,SIDE,3]."""
    y, x = torch.meshgrid(
        *[torch.arange(SIDE, dtype=torch.float64) / (SIDE - 1)] * 2, indexing="ij"
    )
    disc = torch.sigmoid(40 * (0.2 - ((y - 0.35) ** 2 + (x - 0.3) ** 2).sqrt()))
    bar = torch.sigmoid(40 * (0.1 - (x - 0.75).abs())) * torch.sigmoid(40 * (y - 0.3))
    return torch.stack((disc, bar, y), dim=-1)


def main() -> None:
    """Draw each panel into a file of its own, and all into one."""
    FOLDER.mkdir(exist_ok=True)
    drawn = panels()
    for panel in drawn:
        seen = int((panel.weights.reshape(-1, SIDE, SIDE).max(0) > 0).sum())
        _draw([panel], panel.finding.format(seen=seen), FOLDER / f"{panel.name}.png")
    _draw(drawn, "Near tokens by a window, far ones by a projection or slices", SHOWN)
    sys.stdout.write(f"{len(drawn) + 1} pictures in {FOLDER}\n")


def digest_of(shown: list[Panel]) -> str:
    """What a file of these panels carries."""
    return " ".join(panel.digest[:16] for panel in shown)


def _draw(shown: list[Panel], title: str, path: Path) -> None:
    from matplotlib.patches import Rectangle

    note = f"{SIDE} x {SIDE} tokens. The darker, the more a token contributes."
    if any(panel.query for panel in shown):
        note += " Orange: the token that looks."
    height = 4.4 if len(shown) == 1 else 2.9
    says = {"weights": digest_of(shown)}
    with picture(path, title, across=len(shown), height=height, note=note, says=says) as panels:
        for axes, panel in zip(panels, shown, strict=True):
            image = panel.weights if panel.weights.ndim == 2 else _tiled(panel.weights)
            side = len(image)
            # the root, so that the small weights of far slices show beside the large ones
            axes.imshow(np.sqrt(image), cmap=shades(), vmin=0, extent=(0, side, side, 0))
            bare(axes, panel.title if len(shown) > 1 else "")
            # a token in the first three; a map of all tokens in the fourth
            step = 1 if panel.weights.ndim == 2 else SIDE
            how = {"color": "#C8C8C8" if step == 1 else QUIET, "linewidth": 0.5 if step == 1 else 2}
            for at in range(0, side + 1, step):
                axes.plot([0, side], [at, at], label="_", **how)
                axes.plot([at, at], [0, side], label="_", **how)
            if panel.query:
                corner = (QUERY[1], QUERY[0])
                mark: Any = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 3}
                axes.add_patch(Rectangle(corner, 1, 1, zorder=3, **mark))


def _tiled(rows: Weights) -> Weights:
    """[4,SIDE,SIDE] -> [2*SIDE,2*SIDE], each scaled to its own largest weight."""
    a, b, c, d = (row / row.max() for row in rows)
    tiled: Weights = np.block([[a, b], [c, d]])
    return tiled


if __name__ == "__main__":
    main()
