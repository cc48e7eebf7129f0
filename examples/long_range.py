"""Does the projection carry what is far away? Mark every digit of the class of the one in a corner.

    python examples/long_range.py

Digits stand in the cells of a canvas of 512 x 512 pixels. Small models that differ in nothing but
their attention learn to say of each whether it has the class of the digit at the top left. What is
reported, and drawn into docs/long_range.png, is the balanced accuracy (0.5 is a guess) on held-out
digits, of cells that the window alone can reach through all blocks and of those that it cannot.
Needs the extra `demo`.
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_ls.data.digits import Digits
from vit_ls.grid import num_windows
from vit_ls.layers import CompositeSliceAttention, Geometry
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.specs import (
    Attention,
    BackboneSpec,
    CompositeSlice,
    Embed,
    LongShort,
    StageSpec,
)

ROOT = Path(__file__).parents[1]
SIDE, CELL, PATCH = 512, 64, 16
"""Of the canvas, of a digit's cell and of a token, in pixels."""
CELLS, TOKENS = SIDE // CELL, CELL // PATCH
"""Cells on a side of the canvas, tokens on a side of a cell."""
DIM, HEADS, DEPTH = 48, 3, 3
WINDOW, RANK = 4, 8


class Arm(NamedTuple):
    """What attends, and whether composite slices have their attention among slices."""

    attention: Attention
    among_slices: bool = True


ARMS = {
    "window alone": Arm(LongShort(WINDOW, 0)),
    "projection alone": Arm(LongShort(0, RANK)),
    "window and projection": Arm(LongShort(WINDOW, RANK)),
    "slices alone": Arm(CompositeSlice(WINDOW, pos_embed="absolute"), among_slices=False),
    "slices and among slices": Arm(CompositeSlice(WINDOW, pos_embed="absolute")),
}


class Score(NamedTuple):
    """Balanced accuracies on held-out digits."""

    near: float
    """Of cells with a token that the window alone connects with the corner."""
    far: float
    """Of the others."""


class _WithinSlices(CompositeSliceAttention):
    """Composite slices without the attention among them."""

    def attend_among_slices(self, y: Tensor, geometry: Geometry) -> Tensor:  # noqa: ARG002
        return torch.zeros_like(y)


class Marker(nn.Module):
    """A backbone of one stage, and one logit for each cell of its map."""

    def __init__(self, arm: Arm) -> None:
        super().__init__()
        slices = isinstance(arm.attention, CompositeSlice)
        own_positions = slices and arm.attention.pos_embed == "ms_vipe"
        embed = Embed(PATCH, PATCH, position=None if own_positions else "grid")
        spec = BackboneSpec((StageSpec(embed, HEADS, DIM, DEPTH, arm.attention),), SIDE)
        self.body = StagedTransformer(spec, in_chans=1, num_classes=0, global_pool="")
        if not arm.among_slices:
            for module in self.body.modules():
                if isinstance(module, CompositeSliceAttention):
                    module.__class__ = _WithinSlices
        self.head = nn.Linear(DIM, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Canvases [B,1,512,512] -> logits [B,8,8]."""
        cells = F.avg_pool2d(self.body.forward_features(x), TOKENS)
        logits: Tensor = self.head(cells.permute(0, 2, 3, 1))
        return logits[..., 0]


class Canvases:
    """Draws canvases of the first `classes` digits, the same ones for the same seed."""

    def __init__(self, *, held_out: bool, seed: int, classes: int) -> None:
        digits = Digits(held_out=held_out, mode="L")
        images = torch.stack([torch.from_numpy(np.array(image)) for image, _ in digits])
        images = images[:, None].float() / 255 - 0.3
        self.images = F.interpolate(images, (CELL, CELL), mode="bilinear")[:, 0]
        labels = torch.tensor(digits.targets)
        self.of_class = [torch.where(labels == label)[0] for label in range(classes)]
        self.generator = torch.Generator().manual_seed(seed)

    def _below(self, n: int, *shape: int) -> Tensor:
        return torch.randint(n, shape, generator=self.generator)

    def draw(self, number: int) -> tuple[Tensor, Tensor]:
        """Canvases [number,1,512,512], and whether a cell is of the corner's class [number,8,8]."""
        classes = len(self.of_class)
        corner = self._below(classes, number, 1, 1)
        same = self._below(2, number, CELLS, CELLS).bool()
        same[:, 0, 0] = True
        other = (corner + 1 + self._below(classes - 1, number, CELLS, CELLS)) % classes
        labels = torch.where(same, corner, other)
        which = torch.empty_like(labels)
        for label, indices in enumerate(self.of_class):
            here = labels == label
            which[here] = indices[self._below(len(indices), int(here.sum()))]
        # [B,8,8,64,64] -> [B,8,64,8,64] -> [B,1,512,512]
        canvas = self.images[which].transpose(2, 3).flatten(3, 4).flatten(1, 2)[:, None]
        return canvas, same


def reach(window: int, depth: int) -> Tensor:
    """Which cells windows connect with the corner's cell through `depth` blocks, bool [8,8]."""
    side, halo = CELLS * TOKENS, max(1, window // 2)
    last = TOKENS - 1  # of the tokens along an axis, which cell 0 fills up to here
    for _ in range(depth):  # a window whose halo holds a token that knows takes it over
        last = min((num_windows(last + 1 + halo, window)) * window, side) - 1
    near = torch.arange(CELLS) * TOKENS <= last
    return near[:, None] & near[None, :]


def train(arm: Arm, seed: int, *, steps: int, classes: int, batch_size: int = 16) -> Marker:
    """AdamW at a rate that rises for a tenth of the steps and falls to zero."""
    torch.manual_seed(seed)
    model = Marker(arm).train()
    canvases = Canvases(held_out=False, seed=seed, classes=classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 2e-3, total_steps=steps, pct_start=0.1
    )
    for _ in range(steps):
        images, same = canvases.draw(batch_size)
        loss = F.binary_cross_entropy_with_logits(model(images), same.float())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


@torch.inference_mode()
def evaluate(model: nn.Module, *, number: int, classes: int) -> Score:
    """Balanced accuracies on `number` canvases of held-out digits, the corner left out."""
    canvases = Canvases(held_out=True, seed=10_000, classes=classes)
    right, truth = [], []
    for _ in range(0, number, 16):
        images, same = canvases.draw(16)
        right.append((model.eval()(images) > 0) == same)
        truth.append(same)
    hit, same = torch.cat(right), torch.cat(truth)
    near = reach(WINDOW, DEPTH)
    corner = torch.zeros(CELLS, CELLS, dtype=torch.bool)
    corner[0, 0] = True
    return Score(*(_balanced(hit[:, c], same[:, c]) for c in (near & ~corner, ~near)))


def _balanced(hit: Tensor, same: Tensor) -> float:
    return float((hit[same].double().mean() + hit[~same].double().mean()) / 2)


Scores = Mapping[str, Sequence[Score]]


def table(scores: Scores) -> str:
    """Mean and standard deviation over the seeds, as Markdown."""
    lines = ["| attention | near | far |", "| --- | ---: | ---: |"]
    for name, runs in scores.items():
        columns = np.array(runs)
        cells = (f"{c.mean():.3f} ± {c.std(ddof=1):.3f}" for c in columns.T)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(scores: Scores, models: Mapping[str, nn.Module], classes: int, path: Path) -> None:
    """One held-out canvas with what each model says of its cells, and the table as points."""
    from matplotlib.figure import Figure

    images, same = Canvases(held_out=True, seed=10_001, classes=classes).draw(1)
    figure = Figure(figsize=(3 * (len(models) + 1), 5.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(3, 2))
    axes = top.subplots(1, len(models) + 1)
    marks: dict[str, Tensor] = {"truth": same[0].float()}
    for name, model in models.items():
        with torch.inference_mode():
            marks[name] = model.eval()(images)[0].sigmoid()
    for axis, (name, mark) in zip(axes, marks.items(), strict=True):
        axis.imshow(images[0, 0], cmap="gray")
        extent = (0, SIDE, SIDE, 0)
        axis.imshow(mark, cmap="RdYlGn", vmin=0, vmax=1, alpha=0.45, extent=extent)
        axis.set(xticks=[], yticks=[], title=name)
    axis = bottom.subplots()
    for shift, part in ((-0.12, "near"), (0.12, "far")):
        for i, runs in enumerate(scores.values()):
            values = [getattr(run, part) for run in runs]
            color = "tab:blue" if part == "near" else "tab:orange"
            label = part if i == 0 else None
            axis.scatter([i + shift] * len(values), values, color=color, label=label, alpha=0.7)
    axis.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axis.set_xticks(range(len(scores)), labels=list(scores))
    axis.set(ylabel="balanced accuracy")
    axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=60)


def write(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """One line for each run."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Train each arm with each seed, print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--classes", type=int, default=4, help="digits 0 to this less one")
    parser.add_argument("--canvases", type=int, default=128, help="held-out ones to evaluate on")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "long_range.png")
    args = parser.parse_args(argv)
    scores: dict[str, list[Score]] = {name: [] for name in ARMS}
    models: dict[str, nn.Module] = {}
    rows = []
    for seed in range(args.seeds):
        for name, arm in ARMS.items():
            model = train(arm, seed, steps=args.steps, classes=args.classes)
            score = evaluate(model, number=args.canvases, classes=args.classes)
            scores[name].append(score)
            models.setdefault(name, model)
            rows.append({"attention": name, "seed": seed, **score._asdict()})
            sys.stdout.write(f"seed {seed}, {name}: near {score.near:.3f}, far {score.far:.3f}\n")
            sys.stdout.flush()
    write(rows, args.picture.with_suffix(".csv"))
    if args.seeds > 1:
        sys.stdout.write(f"\n{table(scores)}\n")
    draw(scores, models, args.classes, args.picture)


if __name__ == "__main__":
    main()
