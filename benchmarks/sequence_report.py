"""Tables and a plot of what `benchmarks.sequence` measured."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

Costs = dict[tuple[str, int, str], float]
"""Values by system, number of tokens, and measure."""

FULL = "full"
MEASURES = ("forward_ms", "step_ms", "saved_mb", "gflops")
PLACED = "token_ms"


def write_tables(costs: Costs, fit_from: int) -> None:
    """Costs by length, exponents from a length on, and time of a token by place."""
    _write(["system", "tokens", *MEASURES, "step / full"])
    _write(["---"] + ["---:"] * (len(MEASURES) + 2))
    for name in systems(costs, "step_ms"):
        for length, step in series(costs, name, "step_ms"):
            full = costs.get((FULL, length, "step_ms"))
            values = (f"{costs[name, length, what]:g}" for what in MEASURES)
            ratio = "-" if full is None else f"{step / full:.2f}"
            _write([name, str(length), *values, ratio])
    sys.stdout.write(f"\nexponents from {fit_from} tokens on\n")
    for name in systems(costs, "step_ms"):
        slopes = (f"{what} {exponent(costs, name, what, fit_from):.2f}" for what in MEASURES)
        found = crossover(costs, name)
        sys.stdout.write(f"{name}: {', '.join(slopes)}; faster than full from {found}\n")
    places = sorted({tokens for _, tokens, what in costs if what == PLACED})
    if places:
        sys.stdout.write("\nmilliseconds of a token after t others\n")
        _write(["t", *map(str, places)])
        _write(["---"] + ["---:"] * len(places))
        for name in systems(costs, PLACED):
            _write([name, *(f"{value:.2f}" for _, value in series(costs, name, PLACED))])


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
    points = [(math.log(n), math.log(v)) for n, v in series(costs, system, what) if n >= fit_from]
    if len(points) < 2:
        return math.nan
    x = sum(p[0] for p in points) / len(points)
    y = sum(p[1] for p in points) / len(points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


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
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    panels = (
        ("step_ms", "tokens", "training step (ms)"),
        ("saved_mb", "tokens", "saved activations (MB)"),
        (PLACED, "tokens before", "one more token (ms)"),
    )
    for axis, (what, x, y) in zip(axes, panels, strict=True):
        for name in systems(costs, what):
            tokens, values = zip(*series(costs, name, what), strict=True)
            axis.loglog(tokens, values, marker="o", label=name)
        axis.set(xlabel=x, ylabel=y)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _write(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
