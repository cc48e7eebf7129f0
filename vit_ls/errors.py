"""How a program ends: errors of one line, and the exit status of each."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class ReportedError(Exception):
    """An error whose message is one line for the person who started the command."""

    status = 2
    """Exit status of a command that it ends."""


class MissingPackageError(ReportedError, ImportError):
    """An optional package is not installed; the message says what to install."""

    status = 3


def check_packages(what: str, *packages: str, extra: str) -> None:
    """Make sure that optional packages are there, before anything is imported or written.

    Args:
        what: What needs them, as the subject of the message: "robustness".
        *packages: Names as they are imported and installed.
        extra: The extra of this package that brings them.

    Raises:
        MissingPackageError: One is not installed.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"{what} needs {', '.join(missing)}: pip install {' '.join(missing)}, or "
            f"in the checkout {install(extra)}."
        )


def install(extra: str) -> str:
    """The command that brings the packages of an extra, in the folder of the checkout."""
    return f"pip install -e '.[{extra}]'"


def one_line(error: BaseException) -> str:
    """What an error says, in one line; with its type where that is no more than a word."""
    words = str(error).split()
    return " ".join(words)[:300] if len(words) > 1 else " ".join([type(error).__name__, *words])


@contextmanager
def blamed_on(what: str, kind: type[Exception]) -> Iterator[None]:
    """Put whatever fails inside down to something from outside, in one line of that kind of error.

    For calls of others' code with a user's values or files: it has no error of its own for them.
    """
    try:
        yield
    except (ReportedError, kind):
        raise
    except Exception as error:
        raise kind(f"{what}: {one_line(error)}") from error


STOPPED_STATUS = 85  # after a requested stop; the SLURM script requeues on it


class EngineError(ReportedError, RuntimeError):
    """A run ends here; the message is one line that says why and what is left."""

    status = 1


class CheckpointError(EngineError):
    """A checkpoint cannot be read, used or written; the message names it."""


class RunFailedError(EngineError):
    """The run cannot go on."""


class StoppedError(EngineError):
    """The run was asked to stop, and has saved where it stands."""

    status = STOPPED_STATUS
