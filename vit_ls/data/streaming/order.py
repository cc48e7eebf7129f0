"""The order of an epoch that reads shards nearly in a row."""

from collections.abc import Sequence

import torch
from torch import Tensor

LANES = 48
"""Shards that are read at a time. Whole by 2, 3, 4, 6, 8, 12, 16 and 24 processes, so that each of
them, which takes every n-th position, reads shards of its own."""

MIXED = 1024
"""Samples, at least, of a lane that are shuffled together."""


class ShardOrder:
    """The orders in which the samples of shards are shown, each sample once in a pass.

    Shards are shuffled and dealt out to lanes. A lane goes through its shards from the first to the
    last, some of them at a time, whose samples are shuffled together. Position p is of lane
    p % LANES, as long as there are that many shards.

    Args:
        counts: Samples of each shard.
        length: Positions of an epoch; default: one pass. What is longer begins another pass.
    """

    def __init__(self, counts: Sequence[int], length: int | None = None) -> None:
        self.counts = [int(count) for count in counts]
        self.length = sum(self.counts) if length is None else length

    def __len__(self) -> int:
        return self.length

    def __call__(self) -> Tensor:
        """Numbers of samples [length], counted through all shards; drawn from torch's generator."""
        passes = -(-self.length // sum(self.counts))
        return torch.cat([self._one_pass() for _ in range(passes)])[: self.length]

    def _one_pass(self) -> Tensor:
        ends = torch.tensor(self.counts).cumsum(0).tolist()
        shards = torch.randperm(len(ends)).tolist()
        lanes = [self._lane(shards[first::LANES], ends) for first in range(LANES)]
        places = torch.cat([torch.arange(len(lane)) for lane in lanes])
        return torch.cat(lanes)[places.argsort(stable=True)]

    def _lane(self, shards: Sequence[int], ends: Sequence[int]) -> Tensor:
        mixed, waiting = [], torch.empty(0, dtype=torch.long)
        for shard in shards:
            own = torch.arange(ends[shard] - self.counts[shard], ends[shard])
            waiting = torch.cat([waiting, own])
            if len(waiting) >= MIXED:
                mixed.append(_shuffled(waiting))
                waiting = waiting[:0]
        return torch.cat([*mixed, _shuffled(waiting)])


class AnyOrder:
    """The orders in which images that lie anywhere are shown, each once in an epoch.

    Args:
        length: Number of images.
    """

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __call__(self) -> Tensor:
        """Numbers of images [length]; drawn from torch's generator."""
        return torch.randperm(self.length)


def _shuffled(values: Tensor) -> Tensor:
    return values[torch.randperm(len(values))]
