"""What a program's main function runs in: how it ends, and what ends it from outside."""

import atexit
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from vit_ls.config import DataConfig, TrainConfig
from vit_ls.errors import STOPPED_STATUS, EngineError, ReportedError, RunFailedError
from vit_ls.job.precision import mixes_precision
from vit_ls.job.ranks import Ranks, in_contact, leave, origin


def command_line(
    name: str,
    main: Callable[[], int | None],
    *,
    refused: int = 1,
    interrupted: str = "interrupted",
    speaks: bool = True,
) -> int:
    """Run a program's main function and return its exit status.

    What a user or the outside can cause ends with one line; anything else is a defect and keeps its
    traceback, which torchrun shows as the cause when the job ends.

    Args:
        name: Of the program; begins the line.
        main: Returns its exit status, or None for 0.
        refused: Status where the system refuses something.
        interrupted: What is said after Ctrl-C, whose status is 130 as shells have it.
        speaks: Whether this process says a user's mistake, of which of several one does; what ends
            a run, each one does.
    """
    status, said = _ended(main, refused, interrupted if speaks else "", speaks)
    if said:
        sys.stderr.write(f"{name}: {said}\n")
        sys.stderr.flush()
    # After an error the group is left as it is: to end it, NCCL would wait for what a lost process
    # never sends, and nobody would see the message. The end of this process aborts it.
    if status in (0, STOPPED_STATUS):
        leave()
    return status


def end_process(status: int) -> NoReturn:
    """End this process with a status that nothing changes any more.

    At its end, the interpreter stops the threads that are still there; one that is inside of C++
    code then aborts the process with status 134, and SLURM's script would not know why.
    """
    atexit._run_exitfuncs()  # what ends loading processes, and logs of other packages
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _ended(
    main: Callable[[], int | None], refused: int, interrupted: str, speaks: bool
) -> tuple[int, str]:
    """The exit status, and the line about it."""
    try:
        # torchrun gives its processes a file for the cause of a failure.
        status = (record(main) if "TORCHELASTIC_ERROR_FILE" in os.environ else main)()
    except ReportedError as error:
        return error.status, str(error) if speaks or isinstance(error, EngineError) else ""
    # What the system refuses at a place without a message of its own: the error names the file.
    except OSError as error:
        return refused, str(error)
    except KeyboardInterrupt:
        return 130, interrupted
    return status or 0, ""


@contextmanager
def supervised(config: DataConfig, ranks: Ranks) -> Iterator[None]:
    """Say in one line what ends a run from outside: a lost process, a device without memory.

    Raises:
        LostRankError: Another process does not answer.
        RunFailedError: The device has no memory left.
    """
    try:
        with in_contact(ranks), _loading(config):
            yield
    except torch.OutOfMemoryError as error:
        reason = " ".join(str(error).partition(". GPU ")[0].split())
        raise RunFailedError(
            f"{ranks.device} is out of memory with {_load(config)}; what helps: "
            f"{_relief(config, ranks.device)}. ({reason})"
        ) from error


@contextmanager
def _loading(config: DataConfig) -> Iterator[None]:
    """Say plainly where a loading process is lost; torch has no type of error for it."""
    try:
        yield
    except RuntimeError as error:
        if not origin(error).startswith("torch.utils.data."):
            raise
        raise RunFailedError(
            f"a loading process (--workers {config.workers}) was killed, or hung for longer than "
            f"--dist-timeout {config.dist_timeout:g} seconds: {str(error).splitlines()[0]}"
        ) from error


def _load(config: DataConfig) -> str:
    """What fills the memory."""
    load = f"--batch-size {config.batch_size}"
    if isinstance(config, TrainConfig) and config.validation_batch_size:
        load += f", --validation-batch-size {config.validation_batch_size}"
    return load


def _relief(config: DataConfig, device: torch.device) -> str:
    """What needs less memory and is not in use yet."""
    ways = ["a smaller --batch-size"]
    if isinstance(config, TrainConfig):
        ways[0] += ", with more --grad-accum-steps for the same update"
        if not config.grad_checkpointing:
            ways.append("--grad-checkpointing")
    if not mixes_precision(config.amp, device):
        ways.append("--amp (bfloat16)")
    return "; ".join(ways)
