"""Does a long-short model learn faster from the weights of its full-attention relative?

    python examples/warm_start.py

On the digits: `test_cvt` is trained first, then `test_cvt_ls` is started from its weights and from
nothing, for each seed, with the same settings. Writes the held-out accuracy after each epoch as a
table and into docs/warm_start.png, and the loss before the first step. Needs the extra `demo`.
"""

import argparse
import csv
import logging
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor
from torchvision.transforms.functional import normalize, to_tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

import train
from vit_ls.data.digits import Digits
from vit_ls.run import built_from
from vit_ls.style import look, markdown_table, picture

ROOT = Path(__file__).parents[1]
BEST = "model_best.pth.tar"
SOURCE, TARGET = "test_cvt", "test_cvt_ls"

Curve = list[float]
"""Held-out top-1 after each epoch, percent."""


def compare(folder: Path, seed: int, source_epochs: int, epochs: int) -> tuple[Curve, Curve]:
    """The target's curves from the source's weights and from nothing."""
    _train(folder / "source", SOURCE, seed, source_epochs)
    start = ("--pretrained-path", str(folder / "source" / BEST))
    warm = _train(folder / "warm", TARGET, seed, epochs, *start)
    return warm, _train(folder / "cold", TARGET, seed, epochs)


def _train(run: Path, model: str, seed: int, epochs: int, *flags: str) -> Curve:
    """Run train.py on the digits with these flags."""
    where = ("--output", str(run.parent), "--experiment", run.name)
    how = ("--epochs", str(epochs), "--warmup-epochs", "1", "--seed", str(seed))
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        train.main(["--model", model, *how, *where, *flags])
    with (run / "summary.csv").open(newline="") as file:
        return [float(row["eval_top1"]) for row in csv.DictReader(file)]


def first_losses(path: str) -> dict[str, float]:
    """Cross-entropy on the training digits before the first step, by what the model starts from."""
    digits = Digits(held_out=False)
    cfg: Any = timm.get_pretrained_cfg(TARGET)
    images = torch.stack([normalize(to_tensor(x), cfg.mean, cfg.std) for x, _ in digits])
    labels = torch.tensor(digits.targets)

    def warm(name: str, **options: Any) -> Any:
        make = partial(timm.create_model, name, num_classes=10, **options)
        return built_from(make, Path(path), {"num_classes": 10})

    torch.manual_seed(0)
    silent = warm(TARGET)
    for name, parameter in silent.named_parameters():
        if ".norm_projected." in name:
            torch.nn.init.zeros_(parameter)
    models = {
        f"{SOURCE} itself": warm(SOURCE),
        f"{TARGET} from it": warm(TARGET),
        "the same, projected keys and values zero": silent,
        "the same, no projection (rank 0)": warm(TARGET, rank=0),
        "the same, neither projection nor DualLN": warm(TARGET, rank=0, dual_ln=False),
        f"{TARGET} from nothing": timm.create_model(TARGET, num_classes=10),
    }
    return {name: _loss(model, images, labels) for name, model in models.items()}


@torch.no_grad()
def _loss(model: Any, images: Tensor, labels: Tensor) -> float:
    logits = torch.cat([model.eval()(part) for part in images.split(128)])
    return torch.nn.functional.cross_entropy(logits, labels).item()


def draw(curves: dict[str, list[Curve]], path: Path) -> None:
    """The mean over the seeds, and all seeds between the least and the largest."""
    means = {name: float(np.mean([run[-1] for run in runs])) for name, runs in curves.items()}
    said = ", ".join(f"{value:.1f} % {name}" for name, value in means.items())
    note = f"{TARGET} on the digits. Line: mean of the seeds. Band: from the least to the largest."
    with picture(path, f"At the end {said}", note=note) as (axes,):
        for number, (name, runs) in enumerate(curves.items()):
            values = np.array(runs)
            epochs = range(1, values.shape[1] + 1)
            style = look(number)
            axes.plot(epochs, values.mean(0), label=name, **style)
            low, high = values.min(0), values.max(0)
            axes.fill_between(epochs, low, high, alpha=0.2, color=style["color"], linewidth=0)
        axes.set(xlabel="epoch", ylabel="held-out top-1 (%)", xticks=list(epochs))


def table(curves: dict[str, list[Curve]]) -> str:
    """Mean and standard deviation over the seeds, as Markdown."""
    epochs = len(next(iter(curves.values()))[0])
    head = ("start", *(f"epoch {epoch + 1}" for epoch in range(epochs)))
    rows = []
    for name, runs in curves.items():
        values = np.array(runs)
        spread = zip(values.mean(0), values.std(0, ddof=1), strict=True)
        rows.append((name, *(f"{mean:.1f} ± {std:.1f}" for mean, std in spread)))
    return markdown_table(head, rows, numbers=range(1, len(head)))


def main(argv: Sequence[str] | None = None) -> None:
    """Train, write the tables and draw the picture."""
    parser = argparse.ArgumentParser(description="Warm start against a start from nothing.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--source-epochs", type=int, default=30, help="of the source")
    parser.add_argument("--epochs", type=int, default=5, help="of each run of the target")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "warm_start.png")
    args = parser.parse_args(argv)
    logging.getLogger("vit_ls").setLevel(logging.ERROR)
    warm, cold = f"from {SOURCE}", "from nothing"
    curves: dict[str, list[Curve]] = {warm: [], cold: []}
    context = multiprocessing.get_context("fork")  # what is imported is so for all
    with (
        tempfile.TemporaryDirectory() as name,
        ProcessPoolExecutor(args.seeds, context) as processes,
    ):
        folders = [Path(name, str(seed)) for seed in range(args.seeds)]
        runs = [
            processes.submit(compare, folder, seed, args.source_epochs, args.epochs)
            for seed, folder in enumerate(folders)
        ]
        for run in runs:
            for curve, of_start in zip(run.result(), (warm, cold), strict=True):
                curves[of_start].append(curve)
        losses = first_losses(str(folders[0] / "source" / BEST))
    draw(curves, args.picture)
    rows = [(name, f"{loss:.2f}") for name, loss in losses.items()]
    loss_table = markdown_table(("before the first step", "loss"), rows, numbers=(1,))
    sys.stdout.write(f"{table(curves)}\n\n{loss_table}\n")


if __name__ == "__main__":
    main()
