"""The folder of a run: claimed by one process, holding its configuration and its summary."""

import csv
import errno
import fcntl
import io
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from vit_ls.config import ConfigError, TrainConfig, dump
from vit_ls.errors import one_line
from vit_ls.whole import write_whole

_logger = logging.getLogger(__name__)

CONFIG, SUMMARY, TIMING = "args.yaml", "summary.csv", "timing.csv"
STARTS, LOCK = "starts.json", ".lock"


class RunFolder:
    """A claimed folder; nobody else gets it while this process lives.

    Args:
        config: Names the folder, or leaves it to time and model.
        title: Part of the name where the configuration gives none.

    Raises:
        ConfigError: The folder holds another run, or a running one, or cannot be written to.
    """

    def __init__(self, config: TrainConfig, title: str) -> None:
        self.path, self._made = _create(config, title)
        try:
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            # The lock of a former run may be there, and writable, in a folder that is not.
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written to: {error.strerror}.") from error
        try:
            # Not flock: loading processes would inherit it, and keep it a while after a kill.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise ConfigError(f"{self.path} is in use by another run.") from None
            raise ConfigError(f"{self.path} cannot be locked: {error.strerror}.") from error

    def write_config(self, config: TrainConfig) -> None:
        """Write the settings, as `--config` takes them back."""
        write_whole(self.path / CONFIG, lambda file: file.write(dump(config).encode()))

    def add_start(self, start: Mapping[str, Any]) -> None:
        """Add what this start of the run is made with to those before it."""
        path = self.path / STARTS
        content = json.dumps([*read_starts(path), start], indent=1)
        write_whole(path, lambda file: file.write(content.encode()))

    def write_summary(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write one row per epoch."""
        write_rows(self.path / SUMMARY, rows)

    def release(self) -> None:
        """Let others have the folder; one made for nothing goes away."""
        if self._made and [path.name for path in self.path.iterdir()] == [LOCK]:
            (self.path / LOCK).unlink()
            self.path.rmdir()
        os.close(self._lock)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file at once; columns in order of first appearance."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, lambda file: file.write(text.getvalue().encode()))


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file of a run, less what has no value; none where there is no file.

    Raises:
        ConfigError: A row has more or fewer values than columns, or the file is no text.
    """
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read: {one_line(error)}.") from error
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ConfigError(f"{path} line {number} must have a value for each column.")
    return [{name: value for name, value in row.items() if value} for row in rows]


def read_starts(path: Path) -> list[dict[str, Any]]:
    """What each start of a run was made with, the first one first; none where that is not known."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        _logger.warning("%s cannot be read: %s", path, one_line(error))
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _create(config: TrainConfig, title: str) -> tuple[Path, bool]:
    """The folder, and whether it was not there before."""
    root = Path(config.output)
    try:
        if config.experiment:
            path = root / config.experiment
            made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            inside = config.resume and Path(config.resume).parent.resolve() == path.resolve()
            if (path / CONFIG).exists() and not (config.resume == "auto" or inside):
                raise ConfigError(
                    f"{path} holds a run: continue it with --resume auto, or name another folder."
                )
            return path, made
        name = f"{datetime.now().astimezone():%Y%m%d-%H%M%S}-{title}"
        for number in range(1000):
            path = root / (f"{name}-{number}" if number else name)
            try:
                path.mkdir(parents=True)
                return path, True
            except FileExistsError:
                continue
    except OSError as error:
        raise ConfigError(f"--output {config.output}: {error.strerror}.") from error
    raise ConfigError(f"--output {config.output} holds a thousand runs of this second.")
