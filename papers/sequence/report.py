"""What a run came to, beside what the papers print: report.json, report.md, and a picture."""

import csv
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from papers.sequence.data import Task
from papers.sequence.settings import SequenceConfig
from vit_ls.evaluate import Evaluation
from vit_ls.job.machine import machine
from vit_ls.paper import COMPOSITE_SLICE_LRA, LANGUAGE_MODELS, LONG_SHORT_LRA
from vit_ls.style import QUIET, look, markdown_table, picture

PLACES, LEVELS = "place in the block", "levels of the formula"
"""What bits and accuracies are told apart by."""

# What two runs must have in common to be set side by side.
_COMPARED = (
    *("epochs", "epoch_updates", "batch_size", "grad_accum_steps", "lr", "opt", "weight_decay"),
    *("dim", "depth", "num_heads", "hidden", "length", "memory", "drop", "attn_drop"),
)
_PRINTED = ("listops", "text", "retrieval", "image", "pathfinder")


class Findings(NamedTuple):
    """What came out of a test split."""

    values: dict[str, float]
    """The main numbers; accuracies in percent."""
    by: str = ""
    """What they are told apart by, if anything."""
    points: Sequence[tuple[str, float, int]] = ()
    """Name, value, and number of samples or bytes of each part."""
    counted: str = ""
    """Of how much of the test split the main numbers are, where that is not all of it."""


def write_report(
    folder: Path,
    config: SequenceConfig,
    task: Task,
    findings: Findings,
    *,
    parameters: int,
    device: torch.device,
) -> str:
    """Write the report of the test split into a run's folder.

    Returns:
        Its main numbers in one line.
    """
    epochs = _epochs(folder)
    report = {
        **findings.values,
        "task": config.task,
        "attention": attention_of(config),
        "seed": config.seed,
        "data": task.source,
        "parameters": parameters,
        **{name.lstrip("# "): value for name, value in machine(device.type)},
        "epochs": epochs,
        "counted": findings.counted,
        "by": findings.by,
        "points": findings.points,
        "settings": {name: getattr(config, name) for name in _COMPARED},
    }
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(_markdown(config, report, findings), encoding="utf-8")
    plot(folder / "report.png", [report])
    kept = ("bits_per_byte", "accuracy", "floor", "majority")
    said = [f"{k}={findings.values[k]:.3f}" for k in kept if k in findings.values]
    if findings.counted:
        said.append(f"({findings.counted})")
    return f"test {' '.join(said)}"


def attention_of(config: SequenceConfig) -> str:
    """An attention and its numbers, as a person names them."""
    causal = config.task == "bytes"
    if config.attention == "cst":
        return f"composite slices, L {config.slice_size}, alpha {config.alpha:g}"
    if config.attention == "full":
        return "full"
    if config.attention == "window":
        return f"window {config.window} alone"
    segment = f", l {config.segment}" if causal else ""
    return f"long-short, w {config.window}{segment}, r {config.rank}"


def bits(by_place: Tensor, tokens: int) -> Findings:
    """Bits per byte, of all and by place in a block (powers of two).

    Args:
        by_place: Sums of losses and their number, of `nats_by_place` [2,N+1].
        tokens: Bytes of the text.
    """
    length = by_place.shape[1] - 1
    edges = [0, *(2**i for i in range(1, 20) if 2**i < length), length]
    parts = [(f"{a}-{b - 1}", by_place[:, a:b]) for a, b in itertools.pairwise(edges)]
    parts.insert(0, ("beginning", by_place[:, -1:]))
    points = [(name, *_mean_bits(part)) for name, part in parts if part[1].sum() > 0]
    value, counted = _mean_bits(by_place)
    return Findings(
        {"bits_per_byte": value},
        PLACES,
        points,
        f"{counted} of {tokens} bytes; nothing stands before the first",
    )


def _mean_bits(part: Tensor) -> tuple[float, int]:
    nats, count = part.sum(1).tolist()
    return nats / count / math.log(2), int(count)


def accuracies(task: Task, result: Evaluation) -> Findings:
    """Accuracy in percent beside the floors, and by group."""
    labels = task.test.labels
    assert labels is not None
    assert task.train.labels is not None
    assert result.per_image is not None
    right = result.per_image.predictions[:, 0] == result.per_image.targets
    commonest = task.train.labels.mode().values
    values = {"accuracy": result.metrics["top1"], "majority": _percent(labels == commonest)}
    if task.test.floor is not None:
        values["floor"] = _percent(task.test.floor == labels)
    if task.test.groups is None:
        return Findings(values)
    points = []
    for group in task.test.groups.unique().tolist():
        here = task.test.groups == group
        points.append((str(group), _percent(right[here]), int(here.sum())))
    return Findings(values, LEVELS, points)


def _epochs(folder: Path) -> list[tuple[int, float, float]]:
    """Epoch, training loss and loss of the validation split of each epoch of a run."""
    with (folder / "summary.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("eval_loss")]
    return [(int(r["epoch"]), float(r["train_loss"]), float(r["eval_loss"])) for r in rows]


def _percent(right: Tensor) -> float:
    return 100 * float(right.double().mean())


def _markdown(config: SequenceConfig, report: dict[str, Any], findings: Findings) -> str:
    lines = [
        f"# {config.task}: {report['attention']}",
        "",
        f"Data: {report['data']}. Trained here for {len(report['epochs'])} epochs on "
        f"{report['machine']}, "
        f"seed {config.seed}, dim {config.dim}, depth {config.depth}, {config.length} tokens at "
        f"most, {report['parameters']} parameters.",
        "",
        *(f"- {name}: {value:.3f}" for name, value in findings.values.items()),
        *([f"- of {findings.counted}"] if findings.counted else []),
    ]
    if findings.points:
        bits = "bits_per_byte" in findings.values
        what, counted = ("bits per byte", "bytes") if bits else ("accuracy (%)", "samples")
        rows = [
            (name, f"{value:.{2 if bits else 1}f}", str(count))
            for name, value, count in findings.points
        ]
        lines += ["", markdown_table((findings.by, what, counted), rows, numbers=(1, 2))]
    printed = _printed(config.task)
    if printed:
        lines += ["", "The papers print, of their data, sizes and machines:", "", printed]
    return "\n".join(lines) + "\n"


def _printed(task: str) -> str:
    """The papers' rows; a run here is never put among them."""
    rows: list[tuple[str, ...]] = []
    if task in _PRINTED:
        for paper, table in (("LS", LONG_SHORT_LRA), ("CST", COMPOSITE_SLICE_LRA)):
            for row in table:
                value = getattr(row, task)
                rows.append((paper, row.system, "-" if value is None else f"{value:.2f}"))
        return markdown_table(("paper", "system", "accuracy (%)"), rows)
    if task == "bytes":
        rows = [
            tuple("-" if cell is None else str(cell) for cell in astuple(row)[:4])
            for row in LANGUAGE_MODELS
            if row.unit == "bits"
        ]
        return markdown_table(("system", "data", "valid (bits)", "test (bits)"), rows)
    return ""


def plot(path: Path, reports: Sequence[dict[str, Any]], title: str | None = None) -> None:
    """Loss by epoch, and accuracy or bits by part, of one run or several of one task.

    Args:
        path: A PNG file.
        reports: Of runs; without "epochs" nothing is drawn of the loss.
        title: What the picture shows; by default which run is best, and by how much.
    """
    trained, parted = "epochs" in reports[0], bool(reports[0]["points"])
    down = trained + parted
    with picture(path, title or _best(reports), down=down, height=0.8 + 3.2 * down) as panels:
        if trained:
            _draw_loss(panels[0], reports)
        if parted:
            _draw_parts(panels[-1], reports)


def _draw_loss(axes: Any, reports: Sequence[dict[str, Any]]) -> None:
    for number, report in enumerate(reports):
        epochs, trained, held_out = zip(*report["epochs"], strict=True)
        style = look(number, len(reports))
        axes.plot(epochs, held_out, label=report["attention"], **style)
        axes.plot(epochs, trained, **style | {"linestyle": ":", "linewidth": 1.2, "marker": ""})
    axes.set(xlabel="epoch", ylabel="loss (nats); dotted: training")


def _draw_parts(axes: Any, reports: Sequence[dict[str, Any]]) -> None:
    for number, report in enumerate(reports):
        values = [point[1] for point in report["points"]]
        axes.plot(values, label=report["attention"], **look(number, len(reports)))
    floor = reports[0].get("floor")
    places = [point[0] for point in reports[0]["points"]]
    if floor is not None:
        ends = (0, len(places) - 1)
        axes.plot(ends, (floor, floor), color=QUIET, linestyle=":", label="root operator alone")
    axes.set(xlabel=reports[0]["by"], ylabel=_value(reports[0])[1])
    axes.set_xticks(range(len(places)), places)


def _value(report: dict[str, Any]) -> tuple[str, str]:
    """The number that a run is judged by, and its unit."""
    bits = "bits_per_byte" in report
    return ("bits_per_byte", "bits per byte") if bits else ("accuracy", "accuracy (%)")


def _best(reports: Sequence[dict[str, Any]]) -> str:
    key, unit = _value(reports[0])
    known = [report for report in reports if key in report]
    task = str(reports[0]["task"])
    if not known:
        return task
    best = (min if key == "bits_per_byte" else max)(known, key=lambda report: float(report[key]))
    return f"{task}: best with {best['attention']}, {unit} {float(best[key]):.3g}"
