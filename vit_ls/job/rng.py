"""The random states that timm's and torchvision's transforms and the models draw from.

They draw from global generators (`random`, numpy's legacy one, torch's). This module is the one
place that seeds, saves and restores them.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def seeded(*entropy: int, device: torch.device | None = None) -> Iterator[None]:
    """Run a block on generators seeded from `entropy`, then put the former states back.

    What the block draws is a function of `entropy` alone, whatever ran before and in whichever
    process; what runs after it is not disturbed.

    Args:
        entropy: Numbers that the seeds are made from.
        device: Has a generator too that the block draws from, unless it is the CPU; it must be the
            current one of its kind. Other devices are not touched.
    """
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - timm draws from it
    word = seed(*entropy)
    module: Any = (
        None if device is None or device.type == "cpu" else torch.get_device_module(device)
    )
    if module is not None:
        on_device = module.get_rng_state()
        module.manual_seed(word)
    try:
        yield
    finally:
        if module is not None:
            module.set_rng_state(on_device)
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002 - timm draws from it
        torch.set_rng_state(before[2])


def seed(*entropy: int) -> int:
    """Seed the generators of the CPU from `entropy`, inside a block of `seeded`.

    Where many things follow one another, each on seeds of its own, that takes a part of the time of
    one such block for each.

    Returns:
        One more number made from `entropy`, for a generator of a device.
    """
    words = np.random.SeedSequence(entropy).generate_state(4)
    random.seed(int(words[0]))
    np.random.seed(words[1])  # noqa: NPY002 - timm draws from it
    # Not torch.manual_seed: that would seed the GPUs too.
    torch.default_generator.manual_seed(int(words[2]))
    return int(words[3])


def random_state() -> dict[str, Any]:
    """All random states of this process, as values that `torch.load(weights_only=True)` accepts."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - timm draws from it
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, [int(key) for key in keys], position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        # Of this process's GPU alone: how many others it sees may change from run to run.
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put back what `random_state` returned; a GPU's only where there is one."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    restored = (name, np.array(keys, dtype=np.uint32), position, has_gauss, cached)
    np.random.set_state(restored)  # noqa: NPY002 - timm draws from it
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"][0])
