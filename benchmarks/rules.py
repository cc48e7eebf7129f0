"""Whether the rules of `vit_ls.ops.rules` choose the fastest implementation on this machine.

    python -m benchmarks.rules

Each shape of `vil_ls_medium`, `cvt_ls_21` and `cst_vit_small_patch16_224` at 224 is timed for
inference and for a forward with its backward pass, with all implementations in turn. On a CPU the
time is that of the processor, of one thread, so that other load counts less; the least counts. The
last column says where a rule chose one that is more than 10 % slower than the best.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.speed.measure import in_turn
from vit_ls.job.machine import machine
from vit_ls.ops import Positions, Windows, attend, rules, window_attention
from vit_ls.ops.impl import IMPLEMENTATIONS, WHY_NOT

COLUMNS = ("kind", "shape", "precision", "trained", "implementation", "ms", "chosen", "verdict")
PRECISIONS = ("float32", "float32 by bfloat16", "bfloat16")
WINDOWS = {
    # name:             side dim heads window halo front bias
    "vil_ls_medium 1": (56, 96, 3, 7, 3, 9, True),
    "vil_ls_medium 2": (28, 192, 3, 7, 3, 9, True),
    "cvt_ls_21 1": (56, 64, 1, 8, 4, 64, False),
    "cvt_ls_21 2": (28, 192, 3, 4, 2, 16, False),
    "cvt_ls_21 3": (14, 384, 6, 2, 1, 5, False),
    "cst_vit_small": (14, 384, 6, 7, 0, 0, False),
}
TOKENS = {
    # name:             tokens heads head_dim bias
    "vil_ls_medium 3": (197, 6, 64, True),
    "vil_ls_medium 4": (49, 12, 64, True),
    "cvt_ls_21 full 2": (784, 3, 64, False),
}


class Shapes(NamedTuple):
    """What is timed, by name."""

    windows: Mapping[str, tuple[int, int, int, int, int, int, bool]]
    """Side of the grid, dim, heads, window, halo, keys in front, whether there is a bias."""
    tokens: Mapping[str, tuple[int, int, int, bool]]
    """Tokens, heads, head_dim, whether there is a bias."""


SHAPES = Shapes(WINDOWS, TOKENS)


def main() -> None:
    """Write the table, and the file of `--out` if there is one."""
    parser = argparse.ArgumentParser("benchmarks.rules", description="Check the rules of speed.")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="a CSV file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[tuple[str, ...]] = [COLUMNS]
    sys.stdout.write(" | ".join(COLUMNS) + "\n")
    for row in measured(args.batch_size, args.repeats, args.device):
        rows.append(row)
        sys.stdout.write(" | ".join(row) + "\n")
        sys.stdout.flush()
    if args.out:
        with args.out.open("w", newline="") as file:
            csv.writer(file).writerows([*machine(args.device), *rows])


def measured(
    batch: int,
    repeats: int,
    device: str,
    shapes: Shapes = SHAPES,
    precisions: tuple[str, ...] = PRECISIONS,
) -> Iterator[tuple[str, ...]]:
    """The rows, as they are measured."""
    for precision in precisions:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium" if " by " in precision else "highest")
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        try:
            for trained in (False, True):
                how = {"dtype": dtype, "device": device, "requires_grad": trained}
                for kind, name, chosen, calls in calls_of(shapes, batch, how, trained=trained):
                    seconds = least(calls, repeats, device, trained=trained)
                    best = min(seconds.values())
                    for impl, s in seconds.items():
                        mark = "*" if impl == chosen else ""
                        slow = mark and s > 1.1 * best
                        verdict = f"{s / best:.2f} times the best" if slow else ""
                        cells = (kind, name, precision, str(trained), impl)
                        yield (*cells, f"{1e3 * s:.2f}", mark, verdict)
        finally:
            torch.set_float32_matmul_precision(before)


Calls = dict[str, Callable[[], Tensor]]


def calls_of(
    shapes: Shapes, batch: int, how: dict[str, Any], *, trained: bool
) -> Iterator[tuple[str, str, str, Calls]]:
    """Kind, name, what the rules choose, and a call of each implementation that runs here.

    Args:
        shapes: Of windows and of rows of tokens.
        batch: Images.
        how: Keywords of `torch.randn`.
        trained: Whether a backward pass follows.
    """
    for name, (side, dim, h, w, s, E, bias) in shapes.windows.items():
        q = torch.randn(batch, side, side, dim, **how)
        kv = torch.randn(2, batch, side, side, dim, **how)
        front = torch.randn(2, batch, E, dim, **how) if E else None
        K = (w + 2 * s) ** 2
        positions = Positions(torch.randn(h, w * w, K, **how) if bias else None)
        windows = Windows((w, w), (s, s))
        calls: Calls = {}
        for impl in IMPLEMENTATIONS:
            reason = WHY_NOT[impl](q) if impl in WHY_NOT else None
            if impl != "dense" and reason is None:  # the definition, quadratic
                arguments = (q, kv, front, positions, windows, impl)
                calls[impl] = lambda a=arguments, h=h: window_attention(*a, num_heads=h)  # type: ignore[misc]
        with torch.set_grad_enabled(trained):
            yield "windows", name, rules.choose_windows("auto", q, w * w * K), calls
    for name, (N, h, d, bias) in shapes.tokens.items():
        q, k, v = (torch.randn(batch, N, h, d, **how).transpose(1, 2) for _ in "qkv")
        mask = torch.randn(1, h, N, N, **how) if bias else None
        calls = {
            impl: lambda q=q, k=k, v=v, m=mask, impl=impl: attend(q, k, v, m, impl)  # type: ignore[misc]
            for impl in ("fused", "products")
        }
        with torch.set_grad_enabled(trained):
            yield "tokens", name, rules.choose_attention("auto", q, k, mask), calls


def least(calls: Calls, repeats: int, device: str, *, trained: bool) -> dict[str, float]:
    """The least seconds of each, in turn; of a forward with its backward pass if trained."""

    def run(call: Callable[[], Tensor]) -> None:
        with torch.set_grad_enabled(trained):
            output = call()
            if trained:
                output.sum().backward()

    runs = {impl: partial(run, call) for impl, call in calls.items()}
    found = in_turn(runs, repeats, device, processor=device == "cpu")
    return {impl: times.least for impl, times in found.items()}


if __name__ == "__main__":
    main()
