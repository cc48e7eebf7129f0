"""Which weights of a file are taken, and what the run that wrote it knew."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vit_ls.config import WEIGHTS, ConfigError
from vit_ls.errors import CheckpointError
from vit_ls.models.wrappers import Which, held
from vit_ls.run.checkpoint import read_checkpoint
from vit_ls.run.files import is_numpy, read_file


def run_settings(path: Path) -> dict[str, Any]:
    """The settings of the run that wrote a file; none for a file of another kind.

    Raises:
        CheckpointError: There is no such file.
    """
    settings = _of_run(path).get("args")
    return settings if isinstance(settings, dict) else {}


def class_names(path: Path) -> dict[str, int] | None:
    """Index of each class that the run which wrote a file knew by a name.

    Raises:
        CheckpointError: There is no such file.
    """
    names = _of_run(path).get("classes")
    return names if isinstance(names, dict) else None


def which_weights(path: Path, asked: str = "best", *, flag: str = "--weights") -> Which:
    """Which weights of a file to take: the one rule, for every program.

    "best" is what the run itself scored best with when it wrote the file; the weights themselves
    where it did not say, and the average where the file has nothing else.

    Args:
        path: The file.
        asked: "best", "ema" or "raw".
        flag: Names the request in an error.

    Raises:
        CheckpointError: It cannot be read.
        ConfigError: It does not hold what is asked for.
    """
    if asked not in WEIGHTS:
        raise ConfigError(f"{flag} must be one of {', '.join(WEIGHTS)}, got {asked!r}.")
    content: Mapping[str, Any] = {} if is_numpy(path) else read_file(path, tensors=False)
    there = held(content)
    if asked == "best":
        return "ema" if "raw" not in there or _average_was_better(content) else "raw"
    if asked not in there:
        lacks = "no averaged weights" if asked == "ema" else "nothing but averaged weights"
        raise ConfigError(f"{flag} {asked}: {path} holds {lacks}.")
    return asked


def scores(path: Path, which: Which) -> dict[str, Any]:
    """Epoch and held-out results of a run's weights, or of their average.

    Empty where the run had not evaluated them: within an epoch, or without held-out data.

    Raises:
        CheckpointError: There is no such file.
    """
    content = _of_run(path)
    rows, position = content.get("summary"), content.get("position")
    if not rows or not position or position["batch"] != 0:
        return {}
    row = rows[-1]
    if row["epoch"] != position["epoch"] - 1:
        return {}
    begin = "eval_ema_" if which == "ema" else "eval_"
    found = {
        name.removeprefix(begin): value
        for name, value in row.items()
        if name.startswith(begin) and (begin != "eval_" or not name.startswith("eval_ema_"))
    }
    return {"epoch": row["epoch"], **found} if found else {}


def _of_run(path: Path) -> dict[str, Any]:
    """What a training checkpoint holds, its tensors left on disk; nothing of another file."""
    if not path.is_file():
        raise CheckpointError(f"{path} cannot be read: no such file.")
    try:
        return read_checkpoint(path, tensors=False)
    except CheckpointError:
        return {}


def _average_was_better(content: Mapping[str, Any]) -> bool:
    """Whether the average was better than the weights when the run saved them."""
    rows, settings = content.get("summary"), content.get("args")
    if not rows or not isinstance(settings, dict) or not settings.get("model_ema"):
        return False  # also within the first epoch, where none was better yet
    row, name = rows[-1], settings["eval_metric"]
    plain, average = row.get(f"eval_{name}", 0.0), row.get(f"eval_ema_{name}")
    if average is None:
        return False
    return bool(average < plain if name == "loss" else average > plain)
