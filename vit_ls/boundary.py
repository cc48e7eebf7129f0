"""The boundary to others' code: whatever it raises becomes one line that names what was asked."""

from collections.abc import Iterator
from contextlib import contextmanager


class ReportedError(Exception):
    """An error whose message is one line for the person who started the command."""


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
