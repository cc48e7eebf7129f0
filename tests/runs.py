"""Starts train.py in processes of its own, forked from one that has imported it already."""

import multiprocessing
import os
import resource
import sys
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["train", "matplotlib.figure", "sklearn.datasets"])


def start(
    argv: Sequence[str],
    log: Path,
    *,
    env: dict[str, str] | None = None,
    file_limit: int | None = None,
) -> BaseProcess:
    """Start a training.

    Args:
        argv: Flags of train.py.
        log: Takes its output.
        env: More environment variables.
        file_limit: Largest file that it may write, in bytes, as if the disk were full then.
    """
    process = _CONTEXT.Process(target=_train, args=(list(argv), str(log), env or {}, file_limit))
    process.start()
    return process


def finish(argv: Sequence[str], log: Path, **kwargs: Any) -> int:
    """Run a training to its end and return its exit status."""
    process = start(argv, log, **kwargs)
    process.join(120)
    assert process.exitcode is not None, f"still running:\n{log.read_text()}"
    return process.exitcode


def _train(argv: list[str], log: str, env: dict[str, str], file_limit: int | None) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(env)
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    torch.set_num_threads(1)

    import train
    from vit_ls import engine

    sys.argv = ["train.py", *argv]
    status = engine.command_line("train.py", train.main)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
