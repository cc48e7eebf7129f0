"""Times of several systems in turn, and the memory that one run of each takes."""

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch


class Times(NamedTuple):
    """Seconds of each round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the rounds."""
        return statistics.median(self.rounds)

    @property
    def least(self) -> float:
        """Of the rounds."""
        return min(self.rounds)


def in_turn(
    runs: Mapping[str, Callable[[], Any]], rounds: int, device: str, *, processor: bool = False
) -> dict[str, Times]:
    """A B C, B C A, C A B and so on, after one round of warm-up.

    What ran before a run leaves its mark on it, so no run has always the same one before it.

    Args:
        runs: What is timed, by name.
        rounds: That count.
        device: Waited for before and after each run.
        processor: Time that this process had a processor, of all its threads, not that of a clock.
    """
    now = time.process_time if processor else time.perf_counter
    found: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for i in range(rounds + 1):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            _wait(device)
            start = now()
            runs[name]()
            _wait(device)
            if i > 0:
                found[name].append(now() - start)
    return {name: Times(tuple(seconds)) for name, seconds in found.items()}


def exponent(points: Collection[tuple[float, float]]) -> float:
    """Slope of log y by log x, by least squares; NaN of fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return math.nan
    xs, ys = ([math.log(value) for value in values] for values in zip(*points, strict=True))
    return statistics.linear_regression(xs, ys).slope


def peak_bytes(run: Callable[[], Any], device: str) -> int | None:
    """How far memory rises above where it was while `run` runs once; None where nothing tells.

    Resident memory on Linux; on a GPU what PyTorch allocates.
    """
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps would hide what the run takes
    reset.write_text("5")  # the peak starts anew from here
    before = _resident(status, "VmRSS")
    run()
    return _resident(status, "VmHWM") - before


def _resident(status: Path, what: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(what))
    return 1024 * int(line.split()[1])


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
