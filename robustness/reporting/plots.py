"""Pictures of reports. What a model lacks stays empty; a picture never fails for it."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robustness.files import write_atomically
from robustness.reporting.comparison import differences, headlines, side_by_side
from robustness.rules.metrics import corruptions_of, mean_errors, severity_errors
from robustness.rules.results import Report, Result


def plot_report(report: Report, folder: Path) -> list[Path]:
    """One picture of error by corruption and severity for each benchmark that has corruptions."""
    files = []
    for result in report.results:
        if corruptions_of(result):
            files.append(folder / f"{result.benchmark}.png")
            _save(_severities(report, result), files[-1])
    return files


@dataclass(frozen=True)
class _Panel:
    """Groups of bars, one bar for each report.

    Attributes:
        title: Above it.
        ticks: Names of the groups.
        values: For each report, a number for each group.
        hatched: Which groups cannot be compared within.
    """

    title: str
    ticks: list[str]
    values: list[list[float | None]]
    hatched: list[bool]


def plot_comparison(reports: Sequence[Report], names: Sequence[str], path: Path) -> None:
    """Bars of the headline numbers of several models, and of their error by corruption.

    What cannot be compared is hatched, and its label says why.
    """
    rows = headlines(side_by_side(reports))
    shown = [row for row in rows if any(m and m.value is not None for m in row.found)]
    values = [[row.value(place) for row in shown] for place in range(len(names))]
    hatched = [bool(row.differs) for row in shown]
    panels = [_Panel("numbers", [row.label for row in shown], values, hatched)]
    panels += _of_corruptions(reports)
    tall = 4 + 0.25 * len(names)
    figure = Figure(figsize=(10, tall * len(panels)), layout="constrained")
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(len(panels), 1, place, ylabel="%")
        _draw(axes, panel, names)
    _save(figure, path)


def _of_corruptions(reports: Sequence[Report]) -> list[_Panel]:
    panels = []
    for benchmark in dict.fromkeys(r.benchmark for report in reports for r in report.results):
        found = [report.result(benchmark) for report in reports]
        corruptions = list(dict.fromkeys(c for r in found if r for c in corruptions_of(r)))
        if corruptions:
            means = [mean_errors(r) if r else {} for r in found]
            values = [[mean.get(c) for c in corruptions] for mean in means]
            having = [report for report, mean in zip(reports, means, strict=True) if mean]
            differs = differences(having, benchmark)
            title = f"{benchmark}: mean top-1 error"
            title += f" (not comparable: other {', '.join(differs)})" if differs else ""
            panels.append(_Panel(title, corruptions, values, [bool(differs)] * len(corruptions)))
    return panels


def _draw(axes: Axes, panel: _Panel, names: Sequence[str]) -> None:
    width = 0.8 / len(names)
    colours = mpl.colormaps["tab20"](range(20))
    for number, (name, row) in enumerate(zip(names, panel.values, strict=True)):
        places = [i - 0.4 + width * (number + 0.5) for i in range(len(panel.ticks))]
        heights = [math.nan if value is None else value for value in row]
        bars = axes.bar(places, heights, width, label=name, color=colours[number % len(colours)])
        for bar, odd in zip(bars, panel.hatched, strict=True):
            if odd:
                bar.set(hatch="///", alpha=0.5)
    axes.set_title(panel.title, pad=12 + 13 * math.ceil(len(names) / 3))
    axes.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=45, ha="right")
    # Above the axes, where no bar can be, however many models there are.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=7, frameon=False)


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
