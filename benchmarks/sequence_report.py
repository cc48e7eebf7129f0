"""Tables and a plot of what `benchmarks.sequence` measured."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed import measure
from vit_ls.style import log_axis, look, markdown_table, picture, plain

Costs = dict[tuple[str, int, str], float]
"""Values by system, number of tokens, and measure."""

FULL = "full"
MEASURES = ("forward_ms", "step_ms", "saved_mb", "gflops")
PLACED = "token_ms"


def write_tables(costs: Costs, fit_from: int) -> None:
    """Costs by length, exponents from a length on, and time of a token by place."""
    rows: list[Sequence[str]] = []
    for name in systems(costs, "step_ms"):
        for length, step in series(costs, name, "step_ms"):
            full = costs.get((FULL, length, "step_ms"))
            values = (f"{costs[name, length, what]:g}" for what in MEASURES)
            ratio = "-" if full is None else f"{step / full:.2f}"
            rows.append([name, str(length), *values, ratio])
    _write(["system", "tokens", *MEASURES, "step / full"], rows)
    sys.stdout.write(f"\nexponents from {fit_from} tokens on\n")
    for name in systems(costs, "step_ms"):
        slopes = (f"{what} {exponent(costs, name, what, fit_from):.2f}" for what in MEASURES)
        found = crossover(costs, name)
        sys.stdout.write(f"{name}: {', '.join(slopes)}; faster than full from {found}\n")
    places = sorted({tokens for _, tokens, what in costs if what == PLACED})
    if places:
        sys.stdout.write("\nmilliseconds of a token after t others\n")
        rows = [
            [name, *(f"{value:.2f}" for _, value in series(costs, name, PLACED))]
            for name in systems(costs, PLACED)
        ]
        _write(["t", *map(str, places)], rows)


def systems(costs: Costs, what: str) -> list[str]:
    """Those of which something was measured, in the order of the file."""
    return list(dict.fromkeys(name for name, _, measure in costs if measure == what))


def series(costs: Costs, system: str, what: str) -> list[tuple[int, float]]:
    """(tokens, value) of a system, the shortest first."""
    return sorted(
        (n, v) for (name, n, measure), v in costs.items() if (name, measure) == (system, what)
    )


def exponent(costs: Costs, system: str, what: str, fit_from: int) -> float:
    """Slope of log value by log length, by least squares; NaN of fewer than two lengths."""
    return measure.exponent([one for one in series(costs, system, what) if one[0] >= fit_from])


def crossover(costs: Costs, system: str) -> int | None:
    """The shortest measured length from which on a step takes less than full attention's."""
    shortest = None
    for length, step in reversed(series(costs, system, "step_ms")):
        if step >= costs.get((FULL, length, "step_ms"), math.inf):
            break
        shortest = length
    return shortest


def plot(costs: Costs, path: Path) -> None:
    """Step, saved activations and time of a token, by tokens."""
    panels = [
        ("step_ms", "Training step", "tokens", "milliseconds"),
        ("saved_mb", "Kept for the backward pass", "tokens", "MB"),
        (PLACED, "One more token", "tokens before it", "milliseconds"),
    ]
    panels = [panel for panel in panels if systems(costs, panel[0])]
    with picture(path, _finding(costs), down=len(panels), height=0.8 + 2.9 * len(panels)) as axes:
        for axis, (what, title, x, y) in zip(axes, panels, strict=True):
            names = systems(costs, what)
            for number, name in enumerate(names):
                tokens, values = zip(*series(costs, name, what), strict=True)
                axis.plot(tokens, values, label=name, **look(number, len(names)))
            lengths = sorted({tokens for _, tokens, measure in costs if measure == what})
            log_axis(axis.xaxis, lengths)
            axis.set(xlabel=x, ylabel=y, title=title)
            if what == PLACED:
                axis.set_ylim(bottom=0)
            else:
                log_axis(axis.yaxis)


def _finding(costs: Costs) -> str:
    """The shortest length from which on each system's step takes less than full attention's."""
    found = {name: crossover(costs, name) for name in systems(costs, "step_ms") if name != FULL}
    known = {name: length for name, length in found.items() if length is not None}
    if not known:
        return "Costs by length"
    said = ", ".join(f"{plain(length)} ({name})" for name, length in known.items())
    return f"A training step is cheaper than full attention's from this many tokens on: {said}"


def _write(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    sys.stdout.write(markdown_table(head, rows, numbers=range(1, len(head))) + "\n")
