"""The processes of a job: who this one is, and how they agree."""

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from timm.utils import is_distributed_env, world_info_from_env
from torch import Tensor

from vit_ls.config import ConfigError
from vit_ls.engine.errors import RunFailedError


@dataclass(frozen=True)
class Ranks:
    """This process among those of its job.

    Attributes:
        device: What it computes on.
        rank: Its number among all.
        local_rank: Its number on its machine.
        world_size: Number of all.
        control: Group for small messages between CPUs; None in a job of one.
    """

    device: torch.device
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    control: Any = None

    @property
    def primary(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    @property
    def distributed(self) -> bool:
        """Whether there are others."""
        return self.world_size > 1

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if not self.distributed:
            return flag
        flags = torch.tensor([int(flag)])
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self.control)
        return bool(flags.item())

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.distributed:
            dist.all_reduce(values)
        return values

    def maximum(self, values: Tensor) -> Tensor:
        """The maximum over all processes, of a CPU tensor."""
        if self.distributed:
            dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self.control)
        return values

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank, in every process."""
        if not self.distributed:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def from_primary(self, value: Any) -> Any:
        """The primary's value, in every process."""
        if not self.distributed:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]


@contextmanager
def in_contact(ranks: Ranks) -> Iterator[None]:
    """Say plainly where another process is lost; its own message has the cause."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if not ranks.distributed or not any(mark in text for mark in ("gloo", "NCCL")):
            raise
        raise RunFailedError(
            f"lost contact with another process: {text.splitlines()[0]}"
        ) from error


def join(device: str, timeout: float) -> Ranks:
    """Join the job that torchrun or SLURM started, if any.

    timm's `init_distributed_device` takes no timeout, and without one a lost process leaves the
    others waiting for half an hour.

    Args:
        device: "auto", or a torch device.
        timeout: Seconds after which waiting for another process is an error.

    Raises:
        ConfigError: The machine has no such device.
    """
    kind, device = _available(device)
    if not is_distributed_env():
        return Ranks(torch.device(device))
    local_rank, rank, world_size = world_info_from_env()
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(local_rank))
    limit = datetime.timedelta(seconds=timeout)
    if kind != "cpu":
        device = f"{kind}:{local_rank}"
    if kind == "cuda":
        torch.cuda.set_device(local_rank)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if kind == "cuda" else "gloo", timeout=limit)
    control = dist.new_group(backend="gloo", timeout=limit)
    return Ranks(torch.device(device), rank, local_rank, world_size, control)


def _available(device: str) -> tuple[str, str]:
    """Kind and name of a device, if the machine has it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    found = accelerator.type if accelerator is not None else "cpu"
    if device == "auto":
        return found, found
    kind, _, number = device.partition(":")
    count = torch.accelerator.device_count() if kind != "cpu" else 1
    if kind not in ("cpu", found) or (number and not (number.isdecimal() and int(number) < count)):
        raise ConfigError(f"--device must be auto, cpu or {found} here, got {device!r}.")
    return kind, device


def leave() -> None:
    """End this process's part in the job."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
