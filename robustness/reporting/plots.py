"""Pictures of reports. What a model lacks stays empty; a picture never fails for it."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from robustness.files import write_atomically
from robustness.reporting.comparison import Row, differences, headlines, side_by_side
from robustness.rules.metrics import corruptions_of, mean_errors, severity_errors
from robustness.rules.results import Report, Result
from vit_ls.style import COLOURS, INK, look, picture, shades


def plot_report(report: Report, folder: Path) -> list[Path]:
    """One picture of error by corruption and severity for each benchmark that has corruptions."""
    files = []
    for result in report.results:
        if corruptions_of(result):
            files.append(folder / f"{result.benchmark}.png")
            _severities(report, result, files[-1])
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
    content = io.BytesIO()
    height = (3.2 + 0.2 * len(names)) * len(panels)
    note = "Hatched: not comparable." if any(any(panel.hatched) for panel in panels) else ""
    title = finding(shown, names)
    with picture(content, title, down=len(panels), height=height, note=note) as drawn:
        for axes, panel in zip(drawn, panels, strict=True):
            _draw(axes, panel, names)
    write_atomically(path, content.getvalue())


def finding(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Who is best in how many of the numbers that can be compared."""
    best = dict.fromkeys(names, 0)
    comparable = 0
    for row in rows:
        values = [row.value(place) for place in range(len(names))]
        known = [value for value in values if value is not None]
        if row.differs or len(known) < 2 or len(set(known)) == 1:
            continue
        comparable += 1
        top = min(known) if row.lower_is_better else max(known)
        for name, value in zip(names, values, strict=True):
            best[name] += value == top
    if not comparable:
        return "No number of these models can be compared"
    leader = max(best, key=best.__getitem__)
    return f"{leader} is best in {best[leader]} of {comparable} numbers"


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
    for number, (name, row) in enumerate(zip(names, panel.values, strict=True)):
        places = [i - 0.4 + width * (number + 0.5) for i in range(len(panel.ticks))]
        heights = [math.nan if value is None else value for value in row]
        shade = max(0.35, 1 - 0.3 * (number // len(COLOURS)))  # more models than colours
        bars = axes.bar(
            places, heights, width, label=name, color=look(number)["color"], alpha=shade
        )
        for bar, odd in zip(bars, panel.hatched, strict=True):
            if odd:
                bar.set(hatch="///", alpha=0.5)
    axes.set(ylabel="%")
    axes.grid(visible=False, axis="x")
    axes.set_title(panel.title, pad=12 + 13 * math.ceil(len(names) / 3))
    axes.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=45, ha="right", fontsize=8)
    # Above the axes, where no bar can be, however many models there are.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8, frameon=False)


def _severities(report: Report, result: Result, path: Path) -> None:
    names = corruptions_of(result)
    grid = [[math.nan if e is None else e for e in severity_errors(result, name)] for name in names]
    known = {n: e for n, row in zip(names, grid, strict=True) if not math.isnan(e := row[-1])}
    worst = max(known, key=known.__getitem__, default=None)
    title = f"{report.model['name']}, {result.benchmark}: top-1 error by severity"
    if worst is not None:
        title = (
            f"{report.model['name']} errs most under {worst}: {known[worst]:.0f} % at severity 5"
        )
    note = f"{result.benchmark}: {result.label}. Top-1 error in percent."
    content = io.BytesIO()
    with picture(content, title, height=0.3 * len(names) + 1.8, note=note) as (axes,):
        heat = axes.imshow(grid, cmap=shades(), vmin=0, vmax=100, aspect="auto")
        axes.grid(visible=False)
        axes.set(xlabel="severity")
        axes.set_xticks(range(5), list("12345"))
        axes.set_yticks(range(len(names)), names)
        for y, row in enumerate(grid):
            for x, value in enumerate(row):
                shown = "-" if math.isnan(value) else f"{value:.0f}"
                axes.text(x, y, shown, ha="center", va="center", fontsize=8, color=_ink(value))
        axes.figure.colorbar(heat, ax=axes, label="top-1 error (%)")
    write_atomically(path, content.getvalue())


def _ink(value: float) -> str:
    return "white" if value > 55 else INK
