"""Does a ViT keep what it knows when its attention is replaced? Small ones, trained here.

    python -m papers.replaced --csv FILE            # trains what FILE lacks, then table and picture
    python -m papers.replaced --csv FILE --report   # table and picture alone

A ViT of six blocks of timm's learns the digits, or to mark on a canvas of 6 x 6 digits those of the
class of the dark one in the corner (balanced accuracy, 50 % is a guess). Then its attention is
replaced, and it learns its own old features of the same images, without a label: accuracy at once
and after 1, 5 and 20 epochs; beside it the same model from random weights, trained on the labels
for as many. An epoch is 8 batches of 64 digits, or 10 of 32 canvases. A row is written as soon as
it is known, and a file is continued by whole trainings. Needs the extra `demo`.
"""

import argparse
import copy
import csv
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm import create_model
from torch import nn

from papers.replaced_tasks import TASKS, Task
from vit_ls import job
from vit_ls.config import ConfigError
from vit_ls.job.machine import machine
from vit_ls.replace import CompositeSlice, LongShort, replace_attention
from vit_ls.style import look, markdown_table, name_lines, picture

EPOCHS = (0, 1, 5, 20)
RATE = 3e-3
WINDOW, RANK = 2, 4


class Arm(NamedTuple):
    """What takes the place of full attention."""

    options: LongShort | CompositeSlice
    keep: tuple[int, ...] = ()
    of_scratch: bool = True
    """Whether it is trained from random weights too."""


ARMS: Mapping[str, Arm] = {
    "windows": Arm(LongShort(WINDOW, 0)),
    "windows, every third block kept": Arm(LongShort(WINDOW, 0), (2, 5)),
    "windows and projection": Arm(LongShort(WINDOW, RANK)),
    "windows and projection, no DualLN": Arm(
        LongShort(WINDOW, RANK, dual_ln=False), of_scratch=False
    ),
    "slices": Arm(CompositeSlice(WINDOW)),
    "slices with their own projections": Arm(
        CompositeSlice(WINDOW, shared_qkv=False), of_scratch=False
    ),
}

COLUMNS = ("task", "seed", "arm", "start", "epoch", "accuracy")
Row = tuple[str, int, str, str, int]
"""`COLUMNS` less the last."""
Found = dict[Row, float]


def make(task: Task, seed: int) -> Any:
    """A ViT of timm's with full attention, as its seed draws it.

    Its linear layers start by Glorot: timm's deviation of 0.02 is too small for 32 channels.
    """
    torch.manual_seed(seed)
    model = create_model(
        "vit_tiny_patch16_224", img_size=task.side, patch_size=task.patch, in_chans=1,
        embed_dim=32, depth=6, num_heads=2, num_classes=task.outputs, global_pool=task.pool,
    )  # fmt: skip
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
    return model


def train(
    model: Any, task: Task, seed: int, epochs: int, teacher: Any = None
) -> Iterator[tuple[int, float]]:
    """AdamW; accuracy after each of `EPOCHS` that there is, the first before any.

    With a teacher the loss is the mean square between the features of all tokens.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    generator = torch.Generator().manual_seed(seed)
    images, labels = task.held_out()
    for epoch in range(epochs + 1):
        if epoch in (*EPOCHS, epochs):
            with torch.inference_mode():
                yield epoch, task.accuracy(model.eval()(images), labels)
        if epoch == epochs:
            return
        _one_epoch(model.train(), task, optimizer, generator, teacher)
        falls = 1 - (epoch + 1) / epochs
        optimizer.param_groups[0]["lr"] = RATE * max(falls, 0.02)


def _one_epoch(
    model: Any, task: Task, optimizer: Any, generator: torch.Generator, teacher: Any
) -> None:
    for images, labels in task.batches(generator):
        if teacher is None:
            loss = task.loss(model(images), labels)
        else:
            with torch.no_grad():
                wanted = teacher.forward_features(images)
            loss = F.mse_loss(model.forward_features(images), wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def of_seed(name: str, seed: int, arms: Sequence[str], found: Found) -> Iterator[tuple[Row, float]]:
    """All rows of a seed and of these arms whose training is not found yet."""
    task = TASKS[name]
    done = {row[:4] for row in found if row[4] in (EPOCHS[-1], task.epochs)}
    original = None
    for arm in arms:
        options, keep, of_scratch = ARMS[arm]
        for start in ("distilled", "scratch") if of_scratch else ("distilled",):
            if (name, seed, arm, start) in done:
                continue
            if original is None:
                original = make(task, seed)
                every = list(train(original, task, seed, task.epochs))
                yield (name, seed, "original", "labels", task.epochs), every[-1][1]
                original.eval()
            model = copy.deepcopy(original) if start == "distilled" else make(task, seed)
            torch.manual_seed(seed)
            replace_attention(model, options, keep=keep)
            teacher = original if start == "distilled" else None
            for epoch, value in train(model, task, seed, EPOCHS[-1], teacher):
                yield (name, seed, arm, start, epoch), value


def read(path: Path) -> Found:
    """Rows of an earlier command; none where there is no file.

    Raises:
        ConfigError: It is not one that this program wrote.
    """
    if not path.exists():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
        return {
            (r["task"], int(r["seed"]), r["arm"], r["start"], int(r["epoch"])): float(r["accuracy"])
            for r in rows
        }
    except (csv.Error, KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"--csv must be a file of papers.replaced, got {path}.") from error


def complete(path: Path, tasks: Sequence[str], seeds: int, arms: Sequence[str]) -> Found:
    """Train what the file lacks."""
    found = read(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([*machine("cpu"), COLUMNS])
    for name in tasks:
        for seed in range(seeds):
            for row, value in of_seed(name, seed, arms, found):
                if row not in found:
                    with path.open("a", newline="", encoding="utf-8") as file:
                        csv.writer(file).writerow((*row, f"{value:.2f}"))
                found[row] = value
    return found


def over_seeds(found: Found, task: str, arm: str, start: str, epoch: int) -> list[float]:
    """The accuracy of each seed."""
    return [
        value for row, value in found.items() if row[0] == task and row[2:] == (arm, start, epoch)
    ]


def _cell(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "not run"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def table(found: Found, task: str) -> str:
    """Mean and deviation over the seeds, as Markdown."""
    of_original = over_seeds(found, task, "original", "labels", TASKS[task].epochs)
    rows: list[tuple[str, ...]] = [("original", _cell(of_original), "", "", "", "")]
    for arm in ARMS:
        distilled = [_cell(over_seeds(found, task, arm, "distilled", epoch)) for epoch in EPOCHS]
        scratch = _cell(over_seeds(found, task, arm, "scratch", EPOCHS[-1]))
        rows.append((arm, *distilled, scratch))
    head = ("attention", "at once", *(str(n) for n in EPOCHS[1:]), f"scratch, {EPOCHS[-1]}")
    return markdown_table(head, rows, numbers=range(1, len(head)))


def draw(found: Found, tasks: Sequence[str], path: Path) -> None:
    """Accuracy by epochs of distillation, and the original's as a line."""
    title = _finding(found, tasks)
    note = "Mean of the seeds by epochs of distillation. Dotted: the original."
    with picture(path, title, across=len(tasks), height=4.6, note=note) as panels:
        for axes, task in zip(panels, tasks, strict=True):
            for number, arm in enumerate(ARMS):
                points = [over_seeds(found, task, arm, "distilled", epoch) for epoch in EPOCHS]
                if all(points):
                    values = [statistics.mean(one) for one in points]
                    axes.plot(range(len(EPOCHS)), values, label=arm, **look(number))
            original = over_seeds(found, task, "original", "labels", TASKS[task].epochs)
            if original:
                axes.axhline(statistics.mean(original), linestyle=":", color="black")
            axes.set_xticks(range(len(EPOCHS)), labels=[str(n) for n in EPOCHS])
            axes.set(xlabel=f"{task}: epochs", ylabel="accuracy (%)")
            name_lines(axes)


def _finding(found: Found, tasks: Sequence[str]) -> str:
    """How good the best is at once, and the worst after five epochs."""
    at_once, back = (
        [
            statistics.mean(values)
            for task in tasks
            for arm in ARMS
            if (values := over_seeds(found, task, arm, "distilled", epoch))
        ]
        for epoch in (0, 5)
    )
    if not at_once or not back:
        return "A replaced ViT: not all runs have ended"
    return (
        f"A replaced ViT: at most {max(at_once):.1f} % at once, "
        f"at least {min(back):.1f} % after 5 epochs"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Train what is missing, print the tables, draw the picture."""
    parser = argparse.ArgumentParser(
        "papers.replaced", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--csv", type=Path, default=Path("output/replaced.csv"), help="rows; continued if there")
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    add("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    add("--seeds", type=int, default=5, help="of each task")
    add("--report", action="store_true", help="train nothing")
    add("--picture", type=Path, default=Path(__file__).parents[1] / "docs" / "replaced.png")
    args = parser.parse_args(argv)
    if args.seeds < 1:
        raise ConfigError(f"--seeds must be positive, got {args.seeds}.")
    if args.report and not args.csv.exists():
        raise ConfigError(f"--report needs a file of rows, got {args.csv}.")
    found = read(args.csv) if args.report else complete(args.csv, args.tasks, args.seeds, args.arms)
    for task in args.tasks:
        sys.stdout.write(f"{task}\n\n{table(found, task)}\n\n")
    draw(found, args.tasks, args.picture)


if __name__ == "__main__":
    sys.exit(job.command_line("papers.replaced", main))
