"""The folder of a run: claimed by one process, holding its configuration and its summary."""

import csv
import errno
import fcntl
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from vit_ls.config import ConfigError, TrainConfig, dump
from vit_ls.whole import write_whole

CONFIG, SUMMARY, LOCK = "args.yaml", "summary.csv", ".lock"


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
