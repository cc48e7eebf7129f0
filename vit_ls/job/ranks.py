"""The processes of a job: who this one is, and how they agree."""

import datetime
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from timm.utils import is_distributed_env, world_info_from_env
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from vit_ls.config import ConfigError
from vit_ls.errors import ReportedError, RunFailedError, StoppedError, one_line
from vit_ls.job.meeting import MeetingError, Patience, own_store, within
from vit_ls.job.signals import end_with_parent

_Value = TypeVar("_Value")


class LostRankError(RunFailedError):
    """Another process does not answer; its own message has the cause."""


@dataclass(frozen=True)
class Ranks:
    """This process among those of its job.

    Attributes:
        device: What it computes on.
        rank: Its number among all.
        world_size: Number of all.
        control: Group (gloo) for small messages between CPUs; None in a job of one.
    """

    device: torch.device
    rank: int = 0
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

    def meet(self) -> None:
        """Wait for the others; whoever does not come is named.

        It stands before what blocks on the device: there NCCL would wait for a lost process until
        its watchdog ends this one without an exception. As `torch.distributed.monitored_barrier`
        does, but that names nobody where a connection is closed already.

        Raises:
            LostRankError: Another process does not answer.
        """
        others = range(1, self.world_size) if self.primary else [0]
        token = torch.zeros(1)
        if not self.primary:
            self._reach(0, dist.send, token)
        for other in others:
            self._reach(other, dist.recv, token)
        if self.primary:
            for other in others:
                self._reach(other, dist.send, token)

    def _reach(self, other: int, message: Callable[..., object], token: Tensor) -> None:
        try:
            message(token, other, group=self.control)
        # gloo has no error of its own.
        except RuntimeError as error:
            raise LostRankError(
                f"lost contact with process {other} of {self.world_size}: {one_line(error)}"
            ) from error

    def look_around(self) -> None:
        """Notice a lost process before the device is waited for; quicker than to meet."""
        self.any(False)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        if not self.distributed:
            return flag
        flags = torch.tensor([int(flag)])
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self.control)
        return bool(flags.item())

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, of a CPU tensor."""
        if self.distributed:
            dist.all_reduce(values, group=self.control)
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


def agreed(ranks: Ranks, attempt: Callable[[], _Value]) -> _Value:
    """The value of an attempt of each process; where the primary's fails, all fail alike."""
    error = None
    try:
        value = attempt()
    except ConfigError as refused:
        error = refused
    error = ranks.from_primary(error)
    if error is not None:
        raise error
    return value


def by_primary(ranks: Ranks, work: Callable[[], _Value]) -> _Value:
    """What the primary's work gives, in every process; where it fails, all fail alike."""
    found: _Value | None = None
    error: ReportedError | None = None
    if ranks.primary:
        try:
            found = work()
        except ReportedError as refused:
            error = refused
    found, error = ranks.from_primary((found, error))
    if error is not None:
        raise error
    return cast(_Value, found)


@contextmanager
def in_contact(ranks: Ranks) -> Iterator[None]:
    """Say plainly where another process is lost."""
    try:
        yield
    except RuntimeError as error:
        if not ranks.distributed or not _lost(error, ranks):
            raise
        raise LostRankError(f"lost contact with another process: {one_line(error)}") from error


def origin(error: Exception) -> str:
    """Name of the module in which an error arose, for errors that have no type of their own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_globals["__name__"] if trace is not None else ""


def _lost(error: RuntimeError, ranks: Ranks) -> bool:
    """Whether an error means that another process is gone.

    NCCL and the store have types for that. gloo has none: there it counts where the error arose.
    """
    if isinstance(error, dist.DistError):
        return True
    place = origin(error)
    if place != DistributedDataParallel.__module__:
        return bool(place.startswith(dist.__name__))
    # It broadcasts buffers, but has complaints of its own about the model too: all have those.
    try:
        ranks.meet()
    except LostRankError:
        return True
    return False


def join(device: str, timeout: float, stopped: Callable[[], bool] = lambda: False) -> Ranks:
    """Join the job that torchrun or SLURM started, if any.

    timm's `init_distributed_device` takes no timeout, and without one a lost process leaves the
    others waiting for half an hour.

    Args:
        device: "auto", or a torch device.
        timeout: Seconds after which waiting for another process is an error, here as later.
        stopped: Whether a signal has asked to stop; nobody is waited for then.

    Raises:
        StoppedError: A signal has asked to stop.
        ConfigError: The machine has no such device, or not one for each process.
        RunFailedError: The others cannot be reached.
    """
    kind, index = _available(device)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torchrun dies of signals that it does not know, and would leave its processes behind.
        end_with_parent(signal.SIGTERM)
    if not is_distributed_env():
        if kind == "cuda" and index is not None:
            torch.cuda.set_device(index)
        return Ranks(device_named(device))
    local_rank, rank, world_size = world_info_from_env()
    if index is not None:
        raise ConfigError(
            f"--device {device} names one device, but {world_size} processes take one each: "
            f"say {kind}."
        )
    own = _own_device(kind, local_rank)
    if kind == "cuda":
        torch.cuda.set_device(own)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(local_rank))
    try:
        patience = Patience(timeout, stopped)
        store = own_store(rank, world_size, patience)
        ranks, devices = within(
            patience,
            lambda: _connected(Ranks(own, rank, world_size), store, timeout),
            "a process does not go on since they have met",
        )
    except StoppedError:
        raise
    except (ValueError, RuntimeError, MeetingError) as error:
        reason = " ".join(str(error).split())[:300]
        raise RunFailedError(
            f"process {rank} cannot join the {world_size} of its job (torchrun or srun starts "
            f"them; --dist-timeout {timeout:g} seconds): {reason}."
        ) from error
    if own.type == "cuda" and len(set(devices)) < world_size:
        raise ConfigError(
            f"each process needs a GPU of its own, got {len(set(devices))} for {world_size}."
        )
    return ranks


def _connected(ranks: Ranks, store: Any, timeout: float) -> tuple[Ranks, list[str]]:
    """The processes with a control group, and the identity of each one's device."""
    limit = datetime.timedelta(seconds=timeout)
    backend, patience = "gloo", limit
    if ranks.device.type == "cuda":
        # NCCL for the device, gloo for an average that is kept on the CPU. NCCL is more patient
        # than the control group, which can say what is wrong: NCCL ends the process.
        backend, patience = "cpu:gloo,cuda:nccl", 2 * limit
    dist.init_process_group(
        backend, store=store, rank=ranks.rank, world_size=ranks.world_size, timeout=patience
    )
    ranks = replace(ranks, control=dist.new_group(backend="gloo", timeout=limit))
    return ranks, ranks.gather(_identity(ranks.device))


def device_named(device: str) -> torch.device:
    """A device by its name, or "auto" for the accelerator where there is one.

    Raises:
        ConfigError: The machine does not have it.
    """
    kind, index = _available(device)
    return torch.device(kind) if index is None else torch.device(kind, index)


def _available(device: str) -> tuple[str, int | None]:
    """Kind and number of a device, if the machine has it."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    found = accelerator.type if accelerator is not None else "cpu"
    if device == "auto":
        return found, None
    kind, _, number = device.partition(":")
    count = torch.accelerator.device_count() if kind != "cpu" else 1
    if kind not in ("cpu", found) or (number and not (number.isdecimal() and int(number) < count)):
        known = "auto or cpu" if found == "cpu" else f"auto, cpu or {found}"
        raise ConfigError(f"--device must be {known} here, got {device!r}.")
    return kind, int(number) if number else None


def _own_device(kind: str, local_rank: int) -> torch.device:
    """The device of one process of several on a machine."""
    if kind == "cpu":
        return torch.device(kind)
    visible = torch.accelerator.device_count()
    # `srun --gpus-per-task=1` shows each process its own GPU alone, as number 0.
    index = local_rank if visible > 1 else 0
    if index >= visible:
        raise ConfigError(
            f"each process needs a GPU of its own: process {local_rank} of this machine sees "
            f"{visible}."
        )
    return torch.device(kind, index)


def _identity(device: torch.device) -> str:
    """What tells a GPU from all others; nothing for a CPU, which processes may share."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def leave() -> None:
    """End this process's part in the job."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
