"""Rows of measurements: the CSV file of a machine, a Markdown table, targets and plots."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.speed import measure
from vit_ls.style import log_axis, look, markdown_table, picture

COLUMNS = (
    *("date", "machine", "versions", "threads", "run", "setting", "mode", "model", "size"),
    *("batch", "rounds", "median_s", "least_s", "images_per_s", "peak_mb", "saved_mb"),
    *("gflops", "floor_s"),
)

Row = dict[str, str]


class Target(NamedTuple):
    """`model` takes at most `times` the time of `other`, or of its own floor, in one run."""

    model: str
    other: str
    times: float
    settings: tuple[str, ...]
    mode: str = "forward"
    size: str = "224"


_EAGER = ("float32", "medium", "bf16")
TARGETS = (
    Target("vil_ls_medium", "swin_small", 1.0, (*_EAGER, "openvino")),
    Target("vil_ls_medium", "swin_base", 0.55, (*_EAGER, "openvino")),
    Target("cvt_ls_21", "cvt_21", 0.8, (*_EAGER, "openvino")),
    Target("vil_ls_medium fused", "swin_small fused", 1.0, _EAGER),
    Target("cvt_ls_21 fused", "cvt_21 fused", 0.8, _EAGER),
    Target("vil_ls_medium", "swin_small", 1.05, ("float32",), "step"),
    Target("cvt_ls_21", "cvt_21", 0.85, ("float32",), "step"),
    Target("cst_vit_small_patch16", "deit_small", 1.0, _EAGER),
    Target("cst_vit_small_patch16", "deit_small", 0.7, _EAGER, size="448"),
    Target("vil_ls_medium", "floor", 1.35, ("medium", "bf16")),
    Target("cvt_ls_21", "floor", 1.35, ("medium", "bf16")),
)


def read(path: Path) -> list[Row]:
    """The rows of a file; none where there is no file.

    Raises:
        ValueError: a file with other columns.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != list(COLUMNS):
            raise ValueError(f"{path} must have the columns {','.join(COLUMNS)}.")
        return list(reader)


def append(path: Path, rows: Sequence[Row]) -> None:
    """Write rows behind those that are there."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def newest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each model in each setting, mode and size."""
    keys = ("setting", "mode", "size", "batch", "model", "threads")
    return list({tuple(row[key] for key in keys): row for row in rows}.values())


def markdown(rows: Sequence[Row]) -> str:
    """A table for each setting, mode and size, then the targets, then the exponents."""
    rows = newest(rows)
    parts = []
    columns = ("setting", "mode", "size", "batch", "threads")
    for group in dict.fromkeys(tuple(r[c] for c in columns) for r in rows):
        some = [r for r in rows if tuple(r[c] for c in columns) == group]
        setting, mode, size, batch, threads = group
        where = f"{setting}, {mode}, {size} x {size}, batch {batch}, threads: {threads}"
        parts.append(f"### {where}\n\n{_table(some)}")
    for threads in dict.fromkeys(r["threads"] for r in rows):
        found = _targets([r for r in rows if r["threads"] == threads])
        if found:
            table = markdown_table(_HEAD, found, numbers=(3, 4, 5))
            parts.append(f"### Targets, threads: {threads}\n\n{table}")
    parts.append(f"### Exponents of the number of tokens, from 448 on\n\n{_exponents(rows)}")
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row]) -> str:
    head = ("model", "GFLOPs", "images/s", "median (s)", "least (s)", "times the floor")
    columns = ("model", "gflops", "images_per_s", "median_s", "least_s")
    shown = []
    for r in rows:
        floor = f"{float(r['median_s']) / float(r['floor_s']):.2f}" if r["floor_s"] else ""
        shown.append((*(r[c] for c in columns), floor, r["peak_mb"], r["saved_mb"]))
    return markdown_table((*head, "peak (MB)", "saved (MB)"), shown, numbers=range(1, 8))


def _targets(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """A row for each target whose models were measured in one run."""
    found = []
    for target in TARGETS:
        for setting in target.settings:
            ratios = ratio(rows, target, setting)
            if ratios is None:
                continue
            where = f"{setting}, {target.mode}, {target.size}"
            reached = "yes" if ratios[0] <= target.times else "no"
            times = (str(target.times), *(f"{value:.2f}" for value in ratios))
            found.append((target.model, target.other, where, *times, reached))
    return found


_HEAD = ("model", "against", "where", "wanted", "median", "least", "reached")


def ratio(rows: Sequence[Row], target: Target, setting: str) -> tuple[float, float] | None:
    """Of the medians and of the least times, of two rows of one run; None where there are none."""
    wanted = (setting, target.mode, target.size)
    here = [r for r in rows if (r["setting"], r["mode"], r["size"]) == wanted]
    for row in reversed([r for r in here if r["model"] == target.model]):
        if target.other == "floor":
            if row["floor_s"]:
                floor = float(row["floor_s"])
                return float(row["median_s"]) / floor, float(row["least_s"]) / floor
            continue
        for other in here:
            if other["model"] == target.other and other["run"] == row["run"]:
                median, least = (
                    float(row[what]) / float(other[what]) for what in ("median_s", "least_s")
                )
                return median, least
    return None


def exponent(rows: Sequence[Row], what: str) -> float:
    """Slope of log `what` of one image by log of the number of pixels; NaN of under two sizes."""
    return measure.exponent(
        [
            (float(r["size"]) ** 2, float(r[what]) / float(r["batch"]))
            for r in rows
            if r[what] and float(r[what]) > 0
        ]
    )


def _exponents(rows: Sequence[Row], fit_from: int = 448) -> str:
    shown = []
    group = ("model", "setting", "mode", "batch", "threads")
    for key in dict.fromkeys(tuple(r[c] for c in group) for r in rows):
        some = [r for r in rows if tuple(r[c] for c in group) == key]
        some = [r for r in some if int(r["size"]) >= fit_from]
        if len({r["size"] for r in some}) < 2:
            continue
        sizes = ", ".join(sorted({r["size"] for r in some}, key=int))
        slopes = (f"{exponent(some, what):.2f}" for what in ("least_s", "peak_mb"))
        model, setting, mode, batch, threads = key
        where = f"{setting}, {mode}, batch {batch}, threads: {threads}"
        shown.append((model, where, sizes, *slopes))
    head = ("model", "where", "sizes", "time", "peak memory")
    return markdown_table(head, shown, numbers=(3, 4))


def plot(rows: Sequence[Row], setting: str, mode: str, folder: Path, fit_from: int = 448) -> None:
    """Time and peak memory of an image against its side: two files in `folder`."""
    rows = [r for r in newest(rows) if (r["setting"], r["mode"]) == (setting, mode)]
    curves = {
        (model, threads): sorted(
            (r for r in rows if (r["model"], r["threads"]) == (model, threads)), key=_side
        )
        for model, threads in dict.fromkeys((r["model"], r["threads"]) for r in rows)
    }
    for what, title, label in (
        ("least_s", "time", "seconds for an image"),
        ("peak_mb", "peak memory", "peak memory for an image (MB)"),
    ):
        known = {key: [r for r in some if r[what]] for key, some in curves.items()}
        known = {key: some for key, some in known.items() if len(some) > 1}
        name = "time" if what == "least_s" else "peak"
        path = folder / f"speed_{setting}_{mode}_{name}.png"
        threads = {where for _, where in known}
        machine = rows[0]["machine"] if rows else ""
        on = f"; threads: {threads.pop()}" if len(threads) == 1 else ""
        note = f"{setting}, {mode}; {machine}{on}. Four times would be as the pixels."
        with picture(path, _growth(known, what, title, fit_from), note=note) as (axes,):
            for number, ((model, where), some) in enumerate(known.items()):
                heights = [float(r[what]) / float(r["batch"]) for r in some]
                curve = model if on else f"{model}, threads: {where}"
                sides = [_side(r) for r in some]
                axes.plot(sides, heights, label=curve, **look(number, len(known)))
            axes.set(xlabel="side of the image (pixels)", ylabel=label)
            if known:
                log_axis(axes.xaxis, sorted({_side(r) for some in known.values() for r in some}))
                log_axis(axes.yaxis)


def _growth(curves: dict[tuple[str, str], list[Row]], what: str, title: str, fit_from: int) -> str:
    """By how much a twice as long side multiplies a value: the model of the least and the most."""
    times = {
        model: 4.0 ** exponent([r for r in some if _side(r) >= fit_from], what)
        for (model, _), some in curves.items()
    }
    times = {model: value for model, value in times.items() if not math.isnan(value)}
    if not times:
        return f"{title.capitalize()} against the side of the image"
    least, most = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
    low, high = f"{times[least]:.1f}", f"{times[most]:.1f}"
    if low == high or least == most:
        return f"Twice the side takes {high} times the {title}"
    return f"Twice the side: {high} times the {title} for {most}, {low} for {least}"


def _side(row: Row) -> int:
    return int(row["size"])
