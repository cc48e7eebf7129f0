"""Ways a run ends early, and the exit status of each."""

from collections.abc import Iterator
from contextlib import contextmanager

from vit_ls.config import ConfigError

STOPPED_STATUS = 85  # after a requested stop; the SLURM script requeues on it


class EngineError(RuntimeError):
    """A run ends here; the message is one line that says why and what is left."""

    status = 1


class CheckpointError(EngineError):
    """A checkpoint cannot be read, used or written; the message names it."""


class RunFailedError(EngineError):
    """The run cannot go on."""


class StoppedError(EngineError):
    """The run was asked to stop, and has saved where it stands."""

    status = STOPPED_STATUS


def one_line(error: BaseException) -> str:
    """What an error says, in one line; its type where it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def blamed_on(what: str, kind: type[Exception]) -> Iterator[None]:
    """Put whatever fails inside down to something from outside, in one line of that kind of error.

    For calls of others' code with a user's values or files: it has no error of its own for them.
    """
    try:
        yield
    except (ConfigError, EngineError):
        raise
    except Exception as error:
        raise kind(f"{what}: {one_line(error)}") from error
