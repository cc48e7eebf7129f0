"""How a command ends, and Ctrl-C while processes start."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vit_ls.config import ConfigError
from vit_ls.job import command_line

_HEARD: list[int] = []
_WAITING: list[bool] = []
"""Ctrl-C that came while a command runs, and blocks that it waits for."""


def ending(name: str, work: Callable[[], int]) -> int:
    """Run a command to its exit status; what a user or the outside can cause is one line.

    Args:
        name: Of the command.
        work: It.

    Returns:
        What `work` gives; 2 for a user's mistake or what the system refuses, 130 after Ctrl-C.
    """

    def run() -> int:
        with _heard():
            return work()

    return command_line(
        name,
        run,
        refused=ConfigError.status,
        interrupted="interrupted: what is finished is kept, the same command goes on from there.",
        # Of the processes that torchrun starts, the first one speaks.
        speaks=os.environ.get("RANK", "0") == "0",
    )


@contextmanager
def _heard() -> Iterator[None]:
    """Answer Ctrl-C with KeyboardInterrupt, and remember it where that must wait."""
    first = os.getpid()

    def hear(number: int, _: object) -> None:
        # A process that was just forked leaves it to the one above.
        if os.getpid() != first:
            return
        _HEARD.append(number)
        if not _WAITING or len(_HEARD) > 1:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    # Someone else's answer to it stays, and only the main thread may have one.
    own = before is signal.default_int_handler
    own = own and threading.current_thread() is threading.main_thread()
    if own:
        signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        _HEARD.clear()
        if own:
            signal.signal(signal.SIGINT, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, within a command; a second one does not.

    While processes are started, Python loses an exception, and goes on, or leaves half an object.
    """
    _WAITING.append(True)
    try:
        yield
    finally:
        _WAITING.pop()
    if _HEARD and not _WAITING:
        raise KeyboardInterrupt


def leave_interrupts(_: int = 0) -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def shown(name: str) -> str:
    """A file's name as it can be written: bytes that are not UTF-8 as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
