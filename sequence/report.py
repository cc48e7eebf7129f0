"""What a run came to, beside what the papers print: report.json, report.md, and a picture."""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sequence.data import Task
from sequence.settings import SequenceConfig
from vit_ls.engine import Evaluation
from vit_ls.paper import COMPOSITE_SLICE_LRA, LANGUAGE_MODELS, LONG_SHORT_LRA

_PRINTED = ("listops", "text", "retrieval", "image", "pathfinder")


def write_report(folder: Path, config: SequenceConfig, task: Task, result: Evaluation) -> str:
    """Write the report of the test split into a run's folder.

    Returns:
        Its main numbers in one line.
    """
    if config.task == "bytes":
        values, points = _bits(config, result)
    else:
        values, points = _accuracies(task, result)
    values |= {"task": config.task, "attention": config.attention, "data": task.source}
    (folder / "report.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(_markdown(config, values, points), encoding="utf-8")
    if points:
        _plot(folder / "report.png", points, values)
    kept = ("bits_per_byte", "accuracy", "floor", "majority")
    return "test " + " ".join(f"{k}={values[k]:.3f}" for k in kept if k in values)


def _bits(config: SequenceConfig, result: Evaluation) -> tuple[dict[str, Any], list[Any]]:
    """Bits per byte, and the share of right bytes by place in a block (powers of two)."""
    assert result.per_image is not None
    right = result.per_image.predictions[:, 0] == result.per_image.targets
    by_place = right.view(-1, config.length).double().mean(0)
    edges = [0, *(2**i for i in range(1, 20) if 2**i < config.length), config.length]
    points = [
        (f"{a}-{b - 1}", 100 * float(by_place[a:b].mean()), (b - a) * len(right) // config.length)
        for a, b in itertools.pairwise(edges)
    ]
    values = {
        "bits_per_byte": result.metrics["loss"] / math.log(2),
        "accuracy": result.metrics["top1"],
        "by": "place in the block",
    }
    return values, points


def _accuracies(task: Task, result: Evaluation) -> tuple[dict[str, Any], list[Any]]:
    """Accuracy in percent beside the floors, and by group."""
    labels = task.test.labels
    assert labels is not None
    assert task.train.labels is not None
    assert result.per_image is not None
    right = result.per_image.predictions[:, 0] == result.per_image.targets
    commonest = task.train.labels.mode().values
    values: dict[str, Any] = {
        "accuracy": result.metrics["top1"],
        "majority": _percent(labels == commonest),
        "samples": len(labels),
    }
    if task.test.floor is not None:
        values["floor"] = _percent(task.test.floor == labels)
    points = []
    if task.test.groups is not None:
        values["by"] = "levels of the formula"
        for group in task.test.groups.unique().tolist():
            here = task.test.groups == group
            points.append((str(group), _percent(right[here]), int(here.sum())))
    return values, points


def _percent(right: Tensor) -> float:
    return 100 * float(right.double().mean())


def _markdown(config: SequenceConfig, values: dict[str, Any], points: Sequence[Any]) -> str:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    lines = [
        f"# {config.task}, {config.attention}",
        "",
        f"Data: {values['data']}. Trained here for {config.epochs} epochs on {device}, seed "
        f"{config.seed}, dim {config.dim}, depth {config.depth}, {config.length} tokens at most.",
        "",
        *(f"- {k}: {v:.3f}" for k, v in values.items() if isinstance(v, float)),
    ]
    if points:
        lines += ["", f"| {values['by']} | accuracy (%) | samples |", "| --- | ---: | ---: |"]
        lines += [f"| {name} | {share:.1f} | {count} |" for name, share, count in points]
    printed = _printed(config.task)
    if printed:
        lines += ["", "The papers print, of their data, sizes and machines:", "", *printed]
    return "\n".join(lines) + "\n"


def _printed(task: str) -> list[str]:
    """The papers' rows; a run here is never put among them."""
    rows: list[tuple[str, ...]] = []
    if task in _PRINTED:
        for paper, table in (("LS", LONG_SHORT_LRA), ("CST", COMPOSITE_SLICE_LRA)):
            for row in table:
                value = getattr(row, task)
                rows.append((paper, row.system, "-" if value is None else f"{value:.2f}"))
        return _table(("paper", "system", "accuracy (%)"), rows)
    if task == "bytes":
        rows = [tuple(map(str, astuple(r)[:4])) for r in LANGUAGE_MODELS if r.unit == "bits"]
        return _table(("system", "data", "valid (bits)", "test (bits)"), rows)
    return []


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _plot(path: Path, points: Sequence[Any], values: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
    places = range(len(points))
    axis.bar(places, [p[1] for p in points])
    axis.set_xticks(places, [p[0] for p in points])
    if "floor" in values:
        axis.axhline(values["floor"], color="black", linestyle=":", label="root operator alone")
        axis.legend()
    axis.set(xlabel=values["by"], ylabel="accuracy (%)")
    axis.tick_params(axis="x", rotation=45)
    figure.savefig(path, dpi=110)
    plt.close(figure)
