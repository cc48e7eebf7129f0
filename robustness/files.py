"""Files that are there whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError
from vit_ls.whole import link_whole, write_whole


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` in one step: after a crash there is the old or the new content, whole.

    Raises:
        ConfigError: It cannot be written.
    """
    with _refused(path):
        write_whole(path, lambda file: file.write(content))


def link_atomically(source: Path, target: Path) -> None:
    """Give a file a second name in one step, or a copy where the file system has no links.

    Raises:
        ConfigError: It cannot be written.
    """
    with _refused(target):
        link_whole(source, target)


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(f"{path.parent} cannot be made: {error.strerror}.") from error
    except CheckpointError as error:
        raise ConfigError(str(error)) from error


def check_folder(flag: str, folder: Path) -> None:
    """Make a folder and try to write in it, before hours are spent on what goes there.

    Raises:
        ConfigError: It cannot be written to.
    """
    probe = folder / ".writable"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"{flag}: {folder} cannot be written to: {error.strerror}.") from error
