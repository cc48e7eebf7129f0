"""Starts train.py and validate.py in processes forked from one that has imported them."""

import importlib
import multiprocessing
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["train", "validate", "matplotlib.figure", "sklearn.datasets"])
# A start collects every process that has ended, also one that another thread is about to collect;
# the second of the two finds no status any more and reads 255.
_COLLECTING = threading.Lock()


def start(
    argv: Sequence[str],
    log: Path,
    *,
    script: str = "train",
    env: dict[str, str] | None = None,
    file_limit: int | None = None,
    before: Callable[[], object] | None = None,
) -> BaseProcess:
    """Start a script.

    Args:
        argv: Its flags.
        log: Takes its output.
        script: Name of its module.
        env: More environment variables.
        file_limit: Largest file that it may write, in bytes, as if the disk were full then.
        before: Called in the process before the script; a function of a module, or a partial of it.
    """
    args = (script, list(argv), str(log), env or {}, file_limit, before)
    process = _CONTEXT.Process(target=_run, args=args)
    with _COLLECTING:
        process.start()
    return process


def finish(argv: Sequence[str], log: Path, *, seconds: float = 120, **kwargs: Any) -> int:
    """Run a script to its end and return its exit status; it may take so many seconds.

    Several threads may call this at a time.
    """
    process = start(argv, log, **kwargs)
    wait([process.sentinel], seconds)
    with _COLLECTING:
        status = process.exitcode
    if status is None:
        process.kill()
        raise AssertionError(f"still running:\n{log.read_text()}")
    return status


def start_two(script: str, argv: Sequence[str], log: Path, **kwargs: Any) -> list[BaseProcess]:
    """Start a script in two processes that work together; both write to the log."""
    return start_several(2, script, argv, log, **kwargs)


def start_several(
    count: int,
    script: str,
    argv: Sequence[str],
    log: Path,
    *,
    env: dict[str, str] | None = None,
    **kwargs: Any,
) -> list[BaseProcess]:
    """Start a script in processes that work together; all write to the log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    shared |= env or {}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return [start(argv, log, script=script, env=shared | rank, **kwargs) for rank in ranks]


def _run(
    script: str,
    argv: list[str],
    log: str,
    env: dict[str, str],
    file_limit: int | None,
    before: Callable[[], object] | None,
) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(env)
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    torch.set_num_threads(1)
    # Loading processes must be children of the script, as they are where a user starts it: children
    # of a fork server would outlive a script that is killed.
    multiprocessing.set_start_method("fork", force=True)
    from vit_ls import job

    module = importlib.import_module(script)
    if before is not None:
        before()
    try:
        status = job.command_line(f"{script}.py", lambda: module.main(argv))
    except SystemExit as stop:
        status = int(stop.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
