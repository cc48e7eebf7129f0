"""Time and saved activations of the sequence encoders by length, in turn with full attention.

    python benchmarks/sequence_scaling.py --csv sequence_scaling.csv --plot sequence_scaling.png

One block of the ListOps encoder of arXiv:2107.02192 (dim 64, 2 heads, MLP 128) for each
attention, float32, a batch of one: the forward pass, the training step (forward and backward), and
the activations that this keeps. The systems are timed in turn, A B C A B C, and the least of the
rounds counts, so that other work on the machine disturbs all alike. An exponent is the slope of log
time (or bytes) by log length; the crossover is the shortest length from which on a system's step
takes less time than full attention's. Minutes on a CPU.

`--cpu-time` counts the time that the processor spends on it instead of the time that passes: with
`--threads 1` the two are the same on a machine that does nothing else, and on a busy one only the
first means anything.
"""

import argparse
import csv
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vit_ls.count import saved_activations
from vit_ls.sequence import CompositeSlice, Full, LongShort, SequenceEncoder
from vit_ls.sequence.specs import Attention

SYSTEMS: dict[str, Attention] = {
    "full": Full(),
    "LS 16,2": LongShort(16, 2),
    "CST 32": CompositeSlice(32),
}
MEASURES = ("forward_ms", "step_ms", "saved_mb")
COLUMNS = ("system", "length", *MEASURES)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write a table, perhaps a CSV file and a plot."""
    parser = argparse.ArgumentParser(description="Sequence encoders by length.")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384], help="N"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of which the least time counts")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--cpu-time", action="store_true", help="of this process, not of the clock")
    parser.add_argument("--fit-from", type=int, default=2048, help="least length of the exponents")
    parser.add_argument("--csv", type=Path, help="file to write the rows to")
    parser.add_argument("--plot", type=Path, help="file to write a plot to")
    args = parser.parse_args(argv)
    if min(args.lengths) < 1 or args.rounds < 1 or args.threads < 1:
        parser.error("lengths, rounds and threads must be positive.")
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter
    rows = [row for length in sorted(args.lengths) for row in measure(length, args.rounds, clock)]
    _report(rows, args.fit_from)
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if args.plot:
        _plot(rows, args.plot)


def measure(
    length: int, rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[dict[str, Any]]:
    """One row for each system at one length."""
    ids = torch.ones(1, length, dtype=torch.long)
    models = {name: _model(attention, length) for name, attention in SYSTEMS.items()}
    least: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for name, model in models.items():
            for what, run in (("forward_ms", _forward), ("step_ms", _step)):
                start = clock()
                run(model, ids)
                seconds = clock() - start
                least[name, what] = min(seconds, least.get((name, what), math.inf))
    return [
        {
            "system": name,
            "length": length,
            "forward_ms": round(1e3 * least[name, "forward_ms"], 2),
            "step_ms": round(1e3 * least[name, "step_ms"], 2),
            "saved_mb": round(saved_activations(model, ids) / 1e6, 3),
        }
        for name, model in models.items()
    ]


def exponent(rows: Sequence[dict[str, Any]], system: str, what: str, fit_from: int) -> float:
    """Slope of log measure by log length, by least squares; NaN of fewer than two lengths."""
    points = [
        (math.log(row["length"]), math.log(row[what]))
        for row in rows
        if row["system"] == system and row["length"] >= fit_from
    ]
    if len(points) < 2:
        return math.nan
    x = sum(p[0] for p in points) / len(points)
    y = sum(p[1] for p in points) / len(points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def crossover(rows: Sequence[dict[str, Any]], system: str) -> int | None:
    """The shortest measured length from which on a step takes less than full attention's."""
    steps = {(row["system"], row["length"]): row["step_ms"] for row in rows}
    lengths = sorted({row["length"] for row in rows}, reverse=True)
    shortest = None
    for length in lengths:
        if steps[system, length] >= steps["full", length]:
            break
        shortest = length
    return shortest


def _model(attention: Attention, length: int) -> SequenceEncoder:
    torch.manual_seed(0)
    return SequenceEncoder(
        vocab_size=16,
        dim=64,
        depth=1,
        num_heads=2,
        hidden=128,
        max_length=length,
        attention=attention,
        pooling="mean",
        pad_id=None,
    )


def _forward(model: SequenceEncoder, ids: Tensor) -> None:
    with torch.no_grad():
        model(ids)


def _step(model: SequenceEncoder, ids: Tensor) -> None:
    model(ids).sum().backward()


def _report(rows: Sequence[dict[str, Any]], fit_from: int) -> None:
    full = {row["length"]: row for row in rows if row["system"] == "full"}
    _write([*COLUMNS, "step / full"])
    _write(["---"] + ["---:"] * len(COLUMNS))
    for row in rows:
        ratio = row["step_ms"] / full[row["length"]]["step_ms"]
        _write([*(str(row[c]) for c in COLUMNS), f"{ratio:.2f}"])
    sys.stdout.write(f"\nexponents from {fit_from} tokens on\n")
    for system in SYSTEMS:
        slopes = (f"{what} {exponent(rows, system, what, fit_from):.2f}" for what in MEASURES)
        sys.stdout.write(f"{system}: {', '.join(slopes)}; crossover {crossover(rows, system)}\n")


def _write(cells: Sequence[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")


def _plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    panels = (("step_ms", "training step (ms)"), ("saved_mb", "saved activations (MB)"))
    for axis, (what, label) in zip(axes, panels, strict=True):
        for system in SYSTEMS:
            mine = [row for row in rows if row["system"] == system]
            axis.loglog(
                [r["length"] for r in mine], [r[what] for r in mine], marker="o", label=system
            )
        axis.set(xlabel="tokens", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
