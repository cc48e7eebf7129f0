"""The papers' ablations in miniature, on scikit-learn's digits: each option against the default.

    python -m papers.ablations --csv FILE            # trains what FILE lacks, then the table
    python -m papers.ablations --csv FILE --report   # the table alone

DualLN on and off (appendix E of arXiv:2107.02192), rank and window; composition, aggregation, local
mixer and position embeddings of composite slices (tables 7 and 8 of the Composite Slice
Transformer). Every option is trained with every seed, a seed draws the same first weights, batches
and shifts for all; a row is written as soon as its run ends, and a file is continued. Needs the
extra `demo`.
"""

import argparse
import csv
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_ls import job
from vit_ls.attention import CompositeSlice, Convolutions, LongShort
from vit_ls.blocks import Embed, StageSpec
from vit_ls.config import ConfigError
from vit_ls.data.digits import SIZE, Digits
from vit_ls.job.machine import machine
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.spec import BackboneSpec
from vit_ls.style import markdown_table

DIM, HEADS, DEPTH, PATCH = 48, 3, 2, 4
"""One stage of two blocks on 8 x 8 tokens, the same for every attention."""

Options = Mapping[str, Any]

ABLATIONS: Mapping[str, tuple[LongShort | CompositeSlice, Sequence[Options]]] = {
    "long-short": (
        LongShort(window=2, rank=4),
        (
            {"dual_ln": False},
            {"rank": 0},
            {"rank": 1},
            {"rank": 16},
            {"window": 0},
            {"window": 4},
        ),
    ),
    "long-short, convolutional": (LongShort(window=2, rank=4), ({"dual_ln": False},)),
    "composite slice": (
        CompositeSlice(slice_size=2),
        (
            {"composition": "parallel"},
            {"composition": "slices_first"},
            {"aggregation": "max"},
            {"aggregation": "linear"},
            {"local_mixer": "mlp", "mixer_hidden": 16},
            {"local_mixer": "mlp", "mixer_hidden": 32},
            {"pos_embed": "absolute"},
        ),
    ),
}
"""By attention: the default, and what is changed of it, one thing at a time."""

COLUMNS = ("attention", "change", "seed", "epochs", "top1", "loss", "cpu_s")
SHIFT = 2
"""Pixels by which a training image is moved at most."""


class Run(NamedTuple):
    """What one training is made of; its row in the file has the same words."""

    attention: str
    """Of `ABLATIONS`."""
    change: str
    """Options that differ from its default, as JSON."""
    seed: int
    epochs: int


class Result(NamedTuple):
    """On the held-out digits."""

    top1: float
    """In percent."""
    loss: float
    """Mean cross-entropy, in nats."""


class Comparison(NamedTuple):
    """One option over its seeds, against the default of its model."""

    mean: float
    deviation: float
    """Of one run over the seeds."""
    difference: float
    """Of the means; NaN for the default itself."""
    t: float
    """Welch's: the difference over its standard error."""
    beyond_spread: bool
    """Whether the difference is more than the larger of the two deviations."""


def runs(seeds: int, epochs: int) -> Iterator[Run]:
    """All runs, seed by seed, so that a file that is not complete compares like with like."""
    for seed in range(seeds):
        for attention, (_, changes) in ABLATIONS.items():
            for change in ({}, *changes):
                yield Run(attention, json.dumps(change), seed, epochs)


def build(run: Run) -> nn.Module:
    """The model of a run, with weights that its seed draws."""
    torch.manual_seed(run.seed)
    attention = replace(ABLATIONS[run.attention][0], **json.loads(run.change))
    own_positions = isinstance(attention, CompositeSlice) and attention.pos_embed == "ms_vipe"
    embed = Embed(PATCH, PATCH, position=None if own_positions else "grid")
    spec = BackboneSpec(
        (StageSpec(embed, HEADS, DIM, DEPTH, attention),),
        SIZE,
        conv_projection=Convolutions() if "convolutional" in run.attention else None,
    )
    return StagedTransformer(spec, num_classes=10, weight_init="skip")


def read_digits(*, held_out: bool) -> tuple[Tensor, Tensor]:
    """Images [N,3,32,32] about zero, and labels [N]."""
    digits = Digits(held_out=held_out)
    images = torch.stack([torch.from_numpy(np.array(digits[i][0])) for i in range(len(digits))])
    return images.permute(0, 3, 1, 2).float() / 127.5 - 1, torch.tensor(digits.targets)


def train(run: Run, images: Tensor, labels: Tensor, batch_size: int = 32) -> nn.Module:
    """AdamW at a rate that rises for a tenth of the steps and falls to zero."""
    model = build(run).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    steps = len(images) // batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=run.epochs * steps, pct_start=0.1
    )
    generator = torch.Generator().manual_seed(run.seed)
    for _ in range(run.epochs):
        order = torch.randperm(len(images), generator=generator)
        for chosen in order[: steps * batch_size].view(steps, batch_size):
            logits = model(_shifted(images[chosen], generator))
            loss = F.cross_entropy(logits, labels[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval()


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """The images, each moved by up to `SHIFT` pixels; what comes in is background."""
    padded = F.pad(images, (SHIFT,) * 4, value=-1.0)
    places = torch.randint(2 * SHIFT + 1, (len(images), 2), generator=generator).tolist()
    moved = [x[:, i : i + SIZE, j : j + SIZE] for x, (i, j) in zip(padded, places, strict=True)]
    return torch.stack(moved)


@torch.inference_mode()
def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> Result:
    """Of all held-out digits, each once."""
    logits = model(images)
    right = (logits.argmax(1) == labels).double().mean()
    return Result(100 * float(right), float(F.cross_entropy(logits, labels)))


def read_results(path: Path) -> dict[Run, Result]:
    """What a file holds; nothing where there is none.

    Raises:
        ConfigError: it is not one that this program wrote.
    """
    found: dict[Run, Result] = {}
    if not path.exists():
        return found
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("#")]
        for row in csv.DictReader(lines):
            run = Run(row["attention"], row["change"], int(row["seed"]), int(row["epochs"]))
            found[run] = Result(float(row["top1"]), float(row["loss"]))
    except (csv.Error, KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"--csv must be a file of papers.ablations, got {path}.") from error
    return found


def complete(path: Path, wanted: Sequence[Run]) -> dict[Run, Result]:
    """Train what the file lacks of the wanted runs; each ends with its row in the file."""
    found = read_results(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([*machine("cpu"), COLUMNS])
    images, labels = read_digits(held_out=False)
    held_out = read_digits(held_out=True)
    for run in wanted:
        if run in found:
            continue
        start = time.process_time()
        result = evaluate(train(run, images, labels), *held_out)
        row = (
            *run,
            f"{result.top1:.3f}",
            f"{result.loss:.5f}",
            f"{time.process_time() - start:.1f}",
        )
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(row)
        found[run] = result
        sys.stdout.write(f"{run.attention} {run.change} seed {run.seed}: {result.top1:.2f}\n")
        sys.stdout.flush()
    return found


def compare(ours: Sequence[float], default: Sequence[float] | None) -> Comparison:
    """Values of the seeds of an option and of the default, at least two each."""
    mean, deviation = statistics.mean(ours), statistics.stdev(ours)
    if default is None:
        return Comparison(mean, deviation, math.nan, math.nan, beyond_spread=False)
    difference = mean - statistics.mean(default)
    other = statistics.stdev(default)
    error = math.sqrt(deviation**2 / len(ours) + other**2 / len(default))
    t = difference / error if error else math.copysign(math.inf if difference else 0, difference)
    return Comparison(mean, deviation, difference, t, abs(difference) > max(deviation, other))


def table(results: Mapping[Run, Result]) -> str:
    """Markdown: mean and deviation of each option, and its difference from the default."""
    against = ("difference", "Welch's t", "beyond the spread")
    head = ("attention", "change", "seeds", "top-1 (%)", *against, "loss", *against)
    rows = []
    groups: dict[tuple[str, str, int], list[Result]] = {}
    for run, result in sorted(results.items(), key=lambda item: item[0].seed):
        groups.setdefault((run.attention, run.change, run.epochs), []).append(result)
    for (attention, change, epochs), found in groups.items():
        if len(found) < 2:
            continue
        default = None if change == "{}" else groups.get((attention, "{}", epochs))
        cells: list[str] = []
        for i, digits in ((0, 2), (1, 3)):
            of_default = None if default is None else [result[i] for result in default]
            cells += _cells(compare([result[i] for result in found], of_default), digits)
        options = ", ".join(f"{k}={v}" for k, v in json.loads(change).items()) or "default"
        rows.append((attention, options, str(len(found)), *cells))
    return markdown_table(head, rows, numbers=(2, 3, 4, 5, 7, 8, 9))


def _cells(found: Comparison, digits: int) -> list[str]:
    value = f"{found.mean:.{digits}f} ± {found.deviation:.{digits}f}"
    if math.isnan(found.difference):
        return [value, "", "", ""]
    beyond = "yes" if found.beyond_spread else "no"
    return [value, f"{found.difference:+.{digits}f}", f"{found.t:+.1f}", beyond]


def main(argv: Sequence[str] | None = None) -> None:
    """Train what is missing, print the table."""
    parser = argparse.ArgumentParser(
        "papers.ablations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--csv", type=Path, default=Path("output/ablations.csv"), help="rows; continued if there")
    add("--seeds", type=int, default=8)
    add("--epochs", type=int, default=6)
    add("--report", action="store_true", help="train nothing")
    args = parser.parse_args(argv)
    for name in ("seeds", "epochs"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} must be positive, got {getattr(args, name)}.")
    if args.report and not args.csv.exists():
        raise ConfigError(f"--report needs a file of rows, got {args.csv}.")
    wanted = list(runs(args.seeds, args.epochs))
    found = read_results(args.csv) if args.report else complete(args.csv, wanted)
    sys.stdout.write(f"{table(found)}\n")


if __name__ == "__main__":
    sys.exit(job.command_line("papers.ablations", main))
