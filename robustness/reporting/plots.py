"""Pictures of reports. What a model lacks stays empty; a picture never fails for it."""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from robustness.files import write_atomically
from robustness.rules.metrics import corruptions_of, mean_errors, metrics, severity_errors
from robustness.rules.results import Report, Result

_HEADLINES = (
    ("imagenet-val", "top-1"),
    ("imagenet-val", "ReaL top-1"),
    ("imagenet-v2-matched-frequency", "top-1"),
    ("imagenet-a", "top-1"),
    ("imagenet-r", "top-1"),
    ("imagenet-sketch", "top-1"),
    ("imagenet-9", "top-1 mixed_rand"),
    ("imagenet-9", "BG-gap"),
    ("imagenet-c", "mCE"),
    ("imagenet-c-paper", "mCE"),
    ("imagenet-c-generated", "mCE"),
    ("imagenet-c-bar", "mean error"),
    ("digits", "top-1 clean"),
    ("digits", "mean error"),
)


def plot_report(report: Report, folder: Path) -> list[Path]:
    """One picture of error by corruption and severity for each benchmark that has corruptions."""
    files = []
    for result in report.results:
        if corruptions_of(result):
            files.append(folder / f"{result.benchmark}.png")
            _save(_severities(report, result), files[-1])
    return files


def plot_comparison(reports: Sequence[Report], names: Sequence[str], path: Path) -> None:
    """Bars of the headline numbers of several models, and of their error by corruption."""
    tables = [{(m.benchmark, m.name): m.value for m in metrics(report)} for report in reports]
    shown = [head for head in _HEADLINES if any(t.get(head) is not None for t in tables)]
    labels = [f"{benchmark}\n{name}" for benchmark, name in shown]
    groups = [("numbers", labels, [[t.get(head) for head in shown] for t in tables])]
    for benchmark in dict.fromkeys(r.benchmark for report in reports for r in report.results):
        found = [report.result(benchmark) for report in reports]
        corruptions = list(dict.fromkeys(c for r in found if r for c in corruptions_of(r)))
        if corruptions:
            means = [mean_errors(r) if r else {} for r in found]
            values = [[mean.get(c) for c in corruptions] for mean in means]
            groups.append((f"{benchmark}: mean top-1 error", corruptions, values))
    figure = Figure(figsize=(10, 4 * len(groups)), layout="constrained")
    for place, (title, ticks, rows) in enumerate(groups, start=1):
        axes = figure.add_subplot(len(groups), 1, place, title=title, ylabel="%")
        width = 0.8 / len(rows)
        for number, (name, row) in enumerate(zip(names, rows, strict=True)):
            places = [i - 0.4 + width * (number + 0.5) for i in range(len(ticks))]
            heights = [math.nan if value is None else value for value in row]
            axes.bar(places, heights, width, label=name)
        axes.set_xticks(range(len(ticks)), ticks, rotation=45, ha="right")
        axes.legend()
    _save(figure, path)


def _severities(report: Report, result: Result) -> Figure:
    names = corruptions_of(result)
    grid = [[math.nan if e is None else e for e in severity_errors(result, name)] for name in names]
    figure = Figure(figsize=(6, 0.32 * len(names) + 1.6), layout="constrained")
    axes = figure.add_subplot(xlabel="severity")
    heat = axes.imshow(grid, cmap="viridis", vmin=0, vmax=100, aspect="auto")
    axes.set_title(f"{report.model['name']}, {result.benchmark}: top-1 error, %\n", fontsize=10)
    axes.text(0.5, 1.02, result.label, transform=axes.transAxes, ha="center", fontsize=6)
    axes.set_xticks(range(5), list("12345"))
    axes.set_yticks(range(len(names)), names)
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            shown = "-" if math.isnan(value) else f"{value:.0f}"
            axes.text(x, y, shown, ha="center", va="center", fontsize=7, color=_ink(value))
    figure.colorbar(heat)
    return figure


def _ink(value: float) -> str:
    return "white" if value < 60 else "black"


def _save(figure: Figure, path: Path) -> None:
    content = io.BytesIO()
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        figure.savefig(content, format="png", dpi=110, metadata={"Software": None})
    write_atomically(path, content.getvalue())
