"""Does the projection carry what is far away? Mark every digit of the class of the one in a corner.

    python examples/long_range.py    # trains what --csv lacks, then table and picture

Digits stand in the cells of a canvas of 512 x 512 pixels, a token each; the one at the top left is
dark on bright. Small models that differ in nothing but their attention learn to say of each digit
whether it has that one's class. What is reported, and drawn into docs/long_range.png, is the
balanced accuracy (0.5 is a guess) on held-out digits, of cells that the window alone can reach
through all blocks and of those that it cannot. In training, though not in what is reported, each
cell also names its own class and the corner's: the marks, which depend on the two together, teach
neither for long.
A row is written as soon as its run ends, and a file is continued. Needs the extra `demo`.
"""

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_ls import job
from vit_ls.attention import CompositeSlice, CompositeSliceAttention, LongShort, Options
from vit_ls.attention.composite_slice import SliceGrid
from vit_ls.blocks import Embed, StageSpec
from vit_ls.config import ConfigError
from vit_ls.data.digits import Digits
from vit_ls.grid import num_windows
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.spec import BackboneSpec
from vit_ls.style import QUIET, look, markdown_table, picture, shades

ROOT = Path(__file__).parents[1]
SIDE, CELL = 512, 64
"""Of the canvas and of a digit's cell, which is a token, in pixels."""
CELLS = SIDE // CELL
"""On a side of the canvas."""
DIM, HEADS, DEPTH = 48, 3, 2
WINDOW, RANK = 2, 8


class Arm(NamedTuple):
    """What attends, and whether composite slices have their attention among slices."""

    attention: Options
    among_slices: bool = True


ARMS = {
    "window alone": Arm(LongShort(WINDOW, 0)),
    "projection alone": Arm(LongShort(0, RANK)),
    "window and projection": Arm(LongShort(WINDOW, RANK)),
    "slices alone": Arm(CompositeSlice(WINDOW, pos_embed="absolute"), among_slices=False),
    "slices and among slices": Arm(CompositeSlice(WINDOW, pos_embed="absolute")),
}


class Run(NamedTuple):
    """What one training is made of; its row in the file has the same words."""

    attention: str
    """Of `ARMS`."""
    seed: int
    steps: int
    classes: int
    canvases: int
    """Held-out ones, to evaluate on."""


class Score(NamedTuple):
    """Balanced accuracies on held-out digits."""

    near: float
    """Of cells that the window alone connects with the corner."""
    far: float
    """Of the others."""


class _WithinSlices(CompositeSliceAttention):
    """Composite slices without the attention among them."""

    def attend_among_slices(self, y: Tensor, shared: SliceGrid) -> Tensor:
        return torch.zeros_like(super().attend_among_slices(y, shared))


class Marker(nn.Module):
    """A backbone of one stage; of each cell logits of the mark, its class and the corner's."""

    def __init__(self, arm: Arm, classes: int) -> None:
        super().__init__()
        embed = Embed(CELL, CELL, position="grid")
        spec = BackboneSpec((StageSpec(embed, HEADS, DIM, DEPTH, arm.attention),), SIDE)
        self.body = StagedTransformer(
            spec, in_chans=1, num_classes=0, global_pool="", weight_init="skip"
        )
        if not arm.among_slices:
            for module in self.body.modules():
                if isinstance(module, CompositeSliceAttention):
                    module.__class__ = _WithinSlices
        self.head = nn.Linear(DIM, 1 + 2 * classes)

    def forward(self, x: Tensor) -> Tensor:
        """Canvases [B,1,512,512] -> logits [B,8,8,1+2*classes]."""
        cells = self.body.forward_features(x)  # [B,C,8,8]
        logits: Tensor = self.head(cells.permute(0, 2, 3, 1))
        return logits


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
        """Canvases [number,1,512,512], and the class of each cell [number,8,8].

        Each cell has any class as likely, so that nothing but the corner tells the corner's: were
        that one more frequent, a window could count.
        """
        labels = self._below(len(self.of_class), number, CELLS, CELLS)
        which = torch.empty_like(labels)
        for label, indices in enumerate(self.of_class):
            here = labels == label
            which[here] = indices[self._below(len(indices), int(here.sum()))]
        cells = self.images[which]
        cells[:, 0, 0] *= -1
        # [B,8,8,64,64] -> [B,8,64,8,64] -> [B,1,512,512]
        canvas = cells.transpose(2, 3).flatten(3, 4).flatten(1, 2)[:, None]
        return canvas, labels


def same_as_corner(labels: Tensor) -> Tensor:
    """Which cells are to be marked, bool [B,8,8]."""
    return labels == labels[:, :1, :1]


def reach(window: int, depth: int) -> Tensor:
    """Which cells windows connect with the corner's cell through `depth` blocks, bool [8,8]."""
    halo = max(1, window // 2)
    last = 0  # cell along an axis that knows of cell 0
    for _ in range(depth):  # a window whose halo holds a cell that knows takes it over
        last = min((num_windows(last + 1 + halo, window)) * window, CELLS) - 1
    near = torch.arange(CELLS) <= last
    return near[:, None] & near[None, :]


def train(run: Run, batch_size: int = 16) -> Marker:
    """AdamW at a rate that rises for a tenth of the steps and falls to zero."""
    torch.manual_seed(run.seed)
    model = Marker(ARMS[run.attention], run.classes).train()
    canvases = Canvases(held_out=False, seed=run.seed, classes=run.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=run.steps, pct_start=0.1
    )
    for _ in range(run.steps):
        images, labels = canvases.draw(batch_size)
        loss = loss_of(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Of the marks, both kinds as heavy, and of the class of each cell and of the corner."""
    classes = logits.shape[-1] // 2
    mark, own, corner = logits.split((1, classes, classes), -1)
    loss = F.binary_cross_entropy_with_logits(
        mark[..., 0], same_as_corner(labels).float(), pos_weight=logits.new_tensor(classes - 1)
    )
    for part, truth in ((own, labels), (corner, labels[:, :1, :1].expand_as(labels))):
        loss = loss + F.cross_entropy(part.flatten(0, 2), truth.flatten())
    return loss


@torch.inference_mode()
def evaluate(model: nn.Module, *, number: int, classes: int) -> Score:
    """Balanced accuracies on `number` canvases of held-out digits, the corner left out."""
    canvases = Canvases(held_out=True, seed=10_000, classes=classes)
    right, truth = [], []
    for _ in range(0, number, 16):
        images, labels = canvases.draw(16)
        truth.append(same_as_corner(labels))
        right.append((model(images)[..., 0] > 0) == truth[-1])
    hit, same = torch.cat(right), torch.cat(truth)
    near = reach(WINDOW, DEPTH)
    corner = torch.zeros(CELLS, CELLS, dtype=torch.bool)
    corner[0, 0] = True
    return Score(*(_balanced(hit[:, c], same[:, c]) for c in (near & ~corner, ~near)))


def _balanced(hit: Tensor, same: Tensor) -> float:
    return float((hit[same].double().mean() + hit[~same].double().mean()) / 2)


Scores = Mapping[str, Sequence[Score]]
Marks = dict[str, list[list[float]]]
"""By attention, the probability of each cell of one canvas, 8 x 8."""


def table(scores: Scores) -> str:
    """Mean and standard deviation over the seeds, as Markdown."""
    rows = []
    for name, runs in scores.items():
        if len(runs) < 2:
            continue
        cells = (f"{c.mean():.3f} ± {c.std(ddof=1):.3f}" for c in np.array(runs).T)
        rows.append((name, str(len(runs)), *cells))
    return markdown_table(("attention", "seeds", "near", "far"), rows, numbers=(1, 2, 3))


def one_canvas(classes: int) -> tuple[Tensor, Tensor]:
    """The held-out canvas of the picture [1,1,512,512], and its classes [1,8,8]."""
    return Canvases(held_out=True, seed=10_001, classes=classes).draw(1)


def draw(scores: Scores, marks: Marks, classes: int, path: Path) -> None:
    """A canvas with what is to be marked and what each model marks, above all runs' scores."""
    images, labels = one_canvas(classes)
    shown = {"to be marked": same_as_corner(labels)[0].float().tolist(), **marks}
    note = "Dark cells: said to be of the corner's class. Dotted: a guess. A point is a run."
    across = max(len(shown), 3)
    height = 2.6 + 0.42 * len(scores) + 1.4
    with picture(path, _finding(scores), down=2, across=across, height=height, note=note) as panels:
        grid = panels[0].get_gridspec()
        grid.set_height_ratios((5, 1.2 * len(scores) + 1))
        for axis, (name, mark) in zip(panels, shown.items(), strict=False):
            axis.imshow(images[0, 0].numpy(), cmap="gray_r")
            extent = (0, SIDE, SIDE, 0)
            axis.imshow(mark, cmap=shades(), vmin=0, vmax=1, alpha=0.6, extent=extent)
            axis.set(xticks=[], yticks=[])
            axis.set_title(fill(name, 14), fontsize=9)
        for axis in panels[len(shown) :]:
            axis.remove()
        if not marks:
            task = "Task: say of each digit\nwhether it has the class\nof the one in the corner."
            words = panels[0].text(1.1, 0.5, task, transform=panels[0].transAxes, va="center")
            words.set_in_layout(False)
        del panels[len(shown) :]
        _draw_scores(panels[0].figure.add_subplot(grid[1, :]), scores)


def _draw_scores(axes: Any, scores: Scores) -> None:
    """Balanced accuracy of each run, near above far."""
    for number, (part, shift) in enumerate((("near", 0.17), ("far", -0.17))):
        style = look(number)
        for i, runs in enumerate(scores.values()):
            values = [100 * getattr(run, part) for run in runs]
            height = [len(scores) - 1 - i + shift] * len(values)
            axes.plot(values, height, color=style["color"], marker=style["marker"], linestyle="")
            axes.annotate(
                part, (max(values), height[0]), (8, 0), textcoords="offset points", va="center",
                fontsize=9, color=style["color"],
            )  # fmt: skip
    axes.axvline(50, color=QUIET, linestyle=":")
    axes.set_yticks(range(len(scores)), labels=list(scores)[::-1])
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="balanced accuracy (%)", xlim=(45, 105), xticks=range(50, 101, 10))


def _finding(scores: Scores) -> str:
    """Which attentions get fewer than 75 % of the far digits right."""
    far = {name: np.mean([run.far for run in runs]) for name, runs in scores.items()}
    lose = [name for name, value in far.items() if value < 0.75]
    if not lose:
        return "The corner's class reaches far digits with every attention"
    if len(lose) == len(scores):
        return "The corner's class reaches far digits with none of the attentions"
    return f"Far digits do not learn of the corner by {' or '.join(lose)}"


def read(path: Path) -> dict[Run, Score]:
    """Rows of an earlier command; none where there is no file.

    Raises:
        ConfigError: it is not one that this program wrote.
    """
    if not path.exists():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {
                Run(row["attention"], *(int(row[name]) for name in Run._fields[1:])): Score(
                    float(row["near"]), float(row["far"])
                )
                for row in csv.DictReader(file)
            }
    except (csv.Error, KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"--csv must be a file of examples/long_range.py, got {path}.") from error


def complete(path: Path, wanted: Sequence[Run]) -> dict[Run, Score]:
    """Train what the file lacks; each run ends with its row, and seed 0 with its marks beside."""
    found = read(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(Run._fields + Score._fields)
    for run in wanted:
        if run in found:
            continue
        model = train(run)
        found[run] = score = evaluate(model, number=run.canvases, classes=run.classes)
        if run.seed == 0:
            _keep_marks(path, run, model)
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow((*run, f"{score.near:.4f}", f"{score.far:.4f}"))
        sys.stdout.write(
            f"seed {run.seed}, {run.attention}: near {score.near:.3f}, far {score.far:.3f}\n"
        )
        sys.stdout.flush()
    return found


def _keep_marks(path: Path, run: Run, model: nn.Module) -> None:
    with torch.inference_mode():
        mark = model(one_canvas(run.classes)[0])[0, ..., 0].sigmoid()
    kept = {**_kept_marks(path), str(run): mark.tolist()}
    path.with_suffix(".json").write_text(json.dumps(kept), encoding="utf-8")


def _kept_marks(path: Path) -> Marks:
    kept = path.with_suffix(".json")
    try:
        marks: Marks = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    except ValueError as error:  # of the encoding too
        raise ConfigError(
            f"{kept} must be what examples/long_range.py wrote; move it away."
        ) from error
    return marks


def read_marks(path: Path, runs: Sequence[Run]) -> Marks:
    """What the models of these runs said, by attention, as far as it was kept beside the rows."""
    kept = _kept_marks(path)
    return {run.attention: kept[str(run)] for run in runs if str(run) in kept}


def main(argv: Sequence[str] | None = None) -> None:
    """Train each arm with each seed, print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--classes", type=int, default=3, help="digits 0 to this less one")
    parser.add_argument("--canvases", type=int, default=256, help="held-out ones to evaluate on")
    parser.add_argument("--csv", type=Path, default=Path("output/long_range.csv"))
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "long_range.png")
    args = parser.parse_args(argv)
    for name, least, most in (("steps", 20, 10**6), ("seeds", 1, 1000), ("canvases", 1, 10**5),
                              ("classes", 2, 10)):  # fmt: skip
        if not least <= getattr(args, name) <= most:
            raise ConfigError(
                f"--{name} must be from {least} to {most}, got {getattr(args, name)}."
            )
    settings = args.steps, args.classes, args.canvases
    wanted = [Run(a, seed, *settings) for seed in range(args.seeds) for a in ARMS]
    found = complete(args.csv, wanted)
    scores = {name: [found[run] for run in wanted if run.attention == name] for name in ARMS}
    sys.stdout.write(f"\n{table(scores)}\n")
    draw(scores, read_marks(args.csv, wanted), args.classes, args.picture)


if __name__ == "__main__":
    sys.exit(job.command_line("long_range.py", main))
