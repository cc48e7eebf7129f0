"""How a command ends: the one exception for a user's mistake, and the exit status."""

import signal
import sys
from collections.abc import Callable

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


def leave_interrupts(_: int = 0) -> None:
    """Do not hear Ctrl-C, which reaches all processes of a terminal: the first ends the rest."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def shown(name: str) -> str:
    """A file's name as it can be written: bytes that are not UTF-8 as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
