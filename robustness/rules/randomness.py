"""Finds random numbers in what must not draw any: a transform, a model in eval mode."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from vit_ls.job.rng import seeded

T = TypeVar("T")


def drawing(work: Callable[[], T], seed: int) -> tuple[T, bool]:
    """Run `work` with the generators that all programs share at `seed`, and give them back after.

    Args:
        work: What might draw.
        seed: Of Python's, numpy's and torch's own generators meanwhile.

    Returns:
        What `work` gives, and whether it drew from one of these generators: their states tell it
        for certain, also where the draw changes nothing this time. A generator of `work`'s own is
        not seen here.
    """
    # To ask a device that nothing runs on yet would start it.
    device = torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
    with seeded(seed, device=device):
        start = _states()
        found = work()
        return found, not _same(start, _states())


def _states() -> dict[str, Any]:
    states = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        states["cuda"] = torch.stack(torch.cuda.get_rng_state_all())
    return states


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    def numpy_of(states: dict[str, Any]) -> tuple[bytes, int]:
        inner = states["numpy"]["state"]
        return inner["key"].tobytes(), inner["pos"]

    return (
        one["python"] == other["python"]
        and numpy_of(one) == numpy_of(other)
        and torch.equal(one["torch"], other["torch"])
        and one.keys() == other.keys()
        and ("cuda" not in one or torch.equal(one["cuda"], other["cuda"]))
    )
