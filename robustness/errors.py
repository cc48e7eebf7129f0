"""How a command ends: the one exception for a user's mistake, and the exit status."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_HEARD: list[int] = []
_WAITING: list[bool] = []
"""Ctrl-C that came while a command runs, and blocks that it waits for."""

INTERRUPTED = 130
"""Status after Ctrl-C, as shells have it: 128 and the number of the signal."""


class UsageError(ValueError):
    """What was asked for cannot be done; the message is one line that says why."""


def ending(work: Callable[[], int], *, speaks: bool = True) -> int:
    """Run a command to its exit status; what a user or the outside can cause is one line.

    Args:
        work: The command.
        speaks: Whether this process says it; of several, one does.

    Returns:
        What `work` gives; 2 for a user's mistake or what the system refuses, 130 after Ctrl-C.
    """
    try:
        with _heard():
            return work()
    except UsageError as error:
        said, status = f"error: {error}", 2
    # What the system refuses at a place without a message of its own: the error names the file.
    except OSError as error:
        said, status = f"error: {error}", 2
    except KeyboardInterrupt:
        said = "interrupted: what is finished is kept, the same command goes on from there."
        status = INTERRUPTED
    if speaks:
        sys.stderr.write(f"{said}\n")
    return status


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


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def shown(name: str) -> str:
    """A file's name as it can be written: bytes that are not UTF-8 as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
