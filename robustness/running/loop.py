"""The loop: one cell through the model, to integer counts, over any number of processes."""

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from timm.utils.distributed import init_distributed_device_so
from torch.utils.data import DataLoader, Subset

from robustness.data.images import UNREADABLE, CellImages
from robustness.rules.judging import Counts, judge

_NAMED = 3


@dataclass(frozen=True)
class Team:
    """The processes that share the work.

    Attributes:
        device: Of this process.
        rank: Number of this process.
        size: Number of processes.
    """

    device: torch.device
    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, device: str) -> "Team":
        """Join the processes that torchrun started, or work alone."""
        joined = init_distributed_device_so(device)
        return cls(torch.device(joined["device"]), joined["global_rank"], joined["world_size"])

    def everything(self, value: Any) -> list[Any]:
        """The value of each process, in order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: object) -> object:
        """The first process's value."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box)
        return box[0]

    def leave(self) -> None:
        """End the group, if there is one."""
        if self.size > 1:
            dist.destroy_process_group()


@dataclass(frozen=True)
class Loop:
    """How a cell is run; none of it may change a count.

    Attributes:
        model: On the team's device, in eval mode.
        team: The processes.
        batch_size: Images per step and process.
        workers: Processes that read images.
        dtype: Of the computation.
    """

    model: torch.nn.Module
    team: Team
    batch_size: int = 64
    workers: int = 0
    dtype: torch.dtype = torch.float32


@dataclass
class Outcome:
    """Counts of a cell, and the images that could not be judged as they should."""

    counts: Counts = field(default_factory=dict)
    trouble: dict[str, list[str]] = field(default_factory=dict)

    def gaps(self) -> list[str]:
        """One line for each kind of trouble, with the first names."""
        lines = [
            f"{len(keys)} images {what}: {', '.join(sorted(keys)[:_NAMED])}"
            for what, keys in sorted(self.trouble.items())
        ]
        if self.counts.get("nonfinite"):
            lines.append(f"{self.counts['nonfinite']} answers of the model are not finite")
        return lines


@torch.inference_mode()
def run_cell(loop: Loop, images: CellImages, rule: str) -> Outcome:
    """Judge every image of a cell once.

    Process r takes images r, r + size, ...: no image is padded in or counted twice.
    """
    share = Subset(images, range(loop.team.rank, len(images), loop.team.size))
    loader: DataLoader[Any] = DataLoader(
        share,
        batch_size=loop.batch_size,
        num_workers=min(loop.workers, len(share)),
        pin_memory=loop.team.device.type == "cuda",
    )
    counts: Counter[str] = Counter()
    trouble: list[tuple[str, str]] = []
    autocast = torch.autocast(
        loop.team.device.type, loop.dtype, enabled=loop.dtype != torch.float32
    )
    for pixels, targets, indices, troubles in loader:
        keys = [images.samples[i].key for i in indices.tolist()]
        trouble += [(what, key) for what, key in zip(troubles, keys, strict=True) if what]
        readable = torch.tensor([what != UNREADABLE for what in troubles])
        if not readable.any():
            continue
        with autocast:
            logits = loop.model(pixels[readable].to(loop.team.device, non_blocking=True))
        kept = [key for key, ok in zip(keys, readable.tolist(), strict=True) if ok]
        counts.update(judge(rule, logits, targets[readable].to(logits.device), kept))
    return _join(loop.team, dict(counts), trouble)


def _join(team: Team, counts: Counts, trouble: list[tuple[str, str]]) -> Outcome:
    total: Counter[str] = Counter()
    outcome = Outcome()
    for part in team.everything((counts, trouble)):
        total.update(part[0])
        for what, key in part[1]:
            outcome.trouble.setdefault(what, []).append(key)
    outcome.counts = dict(sorted(total.items()))
    return outcome


def spare_workers() -> int:
    """Processors of this machine that the main process leaves, at most eight."""
    return min(8, max(0, len(os.sched_getaffinity(0)) - 1))
