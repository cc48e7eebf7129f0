"""Measure on a GPU, within minutes, what no machine without one can tell.

    python -m benchmarks.gpu --minutes 9 --out FOLDER
    python -m benchmarks.gpu --rehearse --out FOLDER       # without a GPU, tiny shapes

Slices, each of which writes its rows as they come and keeps them: (a) every implementation of
window attention beside the definition in float64, (b) trainings on the digits, with a kill and a
stop, (c) and (f) whole models: images per second, peak memory and share of the GPU's peak, (d)
attention alone beside other libraries' kernels, (e) rows for the table of rules. What fails is
named in failed.csv, and the others go on. `page.md` has it all on one page.

A rehearsal runs everything on the CPU in Triton's interpreter; its times say nothing.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.gpu import page
from benchmarks.gpu.plan import DONE, POISONED, Plan, at_hand
from benchmarks.gpu.worker import SLICES, command

GRACE = 30.0
"""Seconds that a case may take beyond the time of its slice."""
REHEARSED_SIZE = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Run a session; the exit status is 2 where it cannot begin."""
    args = _parse(argv)
    reason = _why_not(args)
    if reason is not None:
        sys.stderr.write(f"benchmarks.gpu: {reason}\n")
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    sizes = (REHEARSED_SIZE,) if args.rehearse and args.sizes is None else args.sizes
    dtypes = ("float32",) if args.rehearse and args.dtypes is None else args.dtypes
    plan = Plan(
        args.out.resolve(),
        "cpu" if args.rehearse else "cuda",
        tuple(sizes or (224, 512, 1024)),
        tuple(dtypes or ("bfloat16", "float16", "float32")),
        args.rehearse,
    )
    end = time.monotonic() + 60 * args.minutes
    for place, letter in enumerate(args.slices):
        shares = [SLICES[other].share for other in args.slices[place:]]
        run_slice(plan, letter, max(end - time.monotonic(), 0) * shares[0] / sum(shares))
        page.write(plan)  # after each, so that a session that is ended has one
    sys.stdout.write(f"{plan.folder / 'page.md'}\n")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.gpu", description="Measure all on a GPU.")
    add = parser.add_argument
    add("--minutes", type=float, default=9.0, help="after which nothing new is begun")
    add("--out", type=Path, required=True, help="a folder that is new or empty")
    add("--slices", nargs="+", choices=tuple(SLICES), default=tuple(SLICES), metavar="LETTER")
    add("--sizes", nargs="+", type=int, help="sides of images; default: 224 512 1024")
    add("--dtypes", nargs="+", help="of kernels; default: bfloat16 float16 float32")
    add("--rehearse", action="store_true", help="on the CPU, with tiny shapes")
    return parser.parse_args(argv)


def _why_not(args: argparse.Namespace) -> str | None:
    """Why the session cannot begin, if it cannot."""
    if not args.rehearse and not torch.cuda.is_available():
        return "there is no GPU; --rehearse runs everything on the CPU, with tiny shapes."
    if not args.minutes > 0:
        return f"--minutes must be positive, got {args.minutes:g}."
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        return f"--out must be a folder that is new or empty, got {args.out}."
    return None


def run_slice(plan: Plan, letter: str, seconds: float) -> None:
    """Run a slice in processes: where one ends early, the next goes on after the case at hand."""
    end = time.monotonic() + seconds
    first = 0
    while True:
        at_hand(plan).unlink(missing_ok=True)
        left = max(end - time.monotonic(), 0)
        status = _run(plan, command(plan, letter, first, left), left + GRACE)
        if status == DONE:
            at_hand(plan).unlink(missing_ok=True)
            return
        if not at_hand(plan).exists():
            plan.failed(letter, "all cases", f"the process ended with status {status}.")
            return
        number, _, name = at_hand(plan).read_text().partition(" ")
        if status != POISONED:  # else the process has named it
            ended = f"ended with status {status}" if status is not None else "took too long"
            plan.failed(letter, name, f"the process {ended}.")
        if status is None:
            return
        first = int(number) + 1


def _run(plan: Plan, words: list[str], seconds: float) -> int | None:
    """The status of a process, None of one that took too long; what it started ends with it."""
    environment = os.environ | ({"TRITON_INTERPRET": "1"} if plan.rehearse else {})
    process = subprocess.Popen(words, env=environment, start_new_session=True)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
