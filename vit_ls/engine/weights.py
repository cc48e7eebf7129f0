"""Files of weights: which kinds there are, what the run that wrote one knew, and loading it."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from timm.models import load_checkpoint
from torch import nn

from vit_ls.boundary import blamed_on
from vit_ls.config import ConfigError
from vit_ls.engine.checkpoint import read_checkpoint
from vit_ls.engine.errors import CheckpointError

_logger = logging.getLogger(__name__)


def check_weights_file(flag: str, path: Path) -> None:
    """Raise ConfigError for what cannot be a file of weights, before a reader stumbles over it."""
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}.") from error
    # torch writes archives, and before those it wrote pickles.
    torch_file = start == b"PK" or start[:1] == b"\x80"
    if not torch_file and path.suffix not in (".safetensors", ".npz", ".npy"):
        raise ConfigError(f"{flag} {path} is no file of weights.")


def run_settings(path: Path) -> dict[str, Any]:
    """The settings of the run that wrote a file; none for a file of another kind.

    Raises:
        CheckpointError: There is no such file.
    """
    settings = _content(path).get("args")
    return settings if isinstance(settings, dict) else {}


def class_names(path: Path) -> dict[str, int] | None:
    """Index of each class that the run which wrote a file knew by a name.

    Raises:
        CheckpointError: There is no such file.
    """
    names = _content(path).get("classes")
    return names if isinstance(names, dict) else None


def scores(path: Path) -> dict[str, Any]:
    """Epoch and held-out results of the weights that `load_weights` takes from a run's file.

    Empty where the run had not evaluated these weights: within an epoch, or without held-out data.

    Raises:
        CheckpointError: There is no such file.
    """
    content = _content(path)
    rows, position = content.get("summary"), content.get("position")
    if not rows or not position or position["batch"] != 0:
        return {}
    row = rows[-1]
    if row["epoch"] != position["epoch"] - 1:
        return {}
    begin = "eval_ema_" if _prefers_ema(path) else "eval_"
    found = {
        name.removeprefix(begin): value
        for name, value in row.items()
        if name.startswith(begin) and (begin != "eval_" or not name.startswith("eval_ema_"))
    }
    return {"epoch": row["epoch"], **found} if found else {}


def classes_in(path: Path, wanted: Mapping[str, int] | None) -> dict[str, int]:
    """The number of classes of a run's checkpoint, so that its classifier is kept where it fits."""
    found = class_names(path)
    if found and wanted and found != wanted:
        _logger.info("%s was trained on other classes: the classifier starts anew.", path)
        return {"num_classes": -1}
    classes = run_settings(path).get("num_classes")
    return {"num_classes": classes} if isinstance(classes, int) else {}


def load_weights(model: nn.Module, path: Path, *, use_ema: bool | None) -> None:
    """Load a model's weights from a checkpoint of ours or of timm's.

    Args:
        model: Of the same architecture.
        path: The file.
        use_ema: The averaged weights; None takes those that the run scored best with.

    Raises:
        CheckpointError: They cannot be read or do not fit.
        ConfigError: There is no average.
    """
    check_weights_file("--checkpoint", path)
    if use_ema is None:
        use_ema = _prefers_ema(path)
    elif use_ema and not _has_average(path):
        raise ConfigError(f"--use-ema: {path} holds no averaged weights.")
    # A damaged file raises whatever the part of it raises that is read first.
    with blamed_on(f"{path} cannot be loaded", CheckpointError):
        load_checkpoint(model, str(path), use_ema=use_ema, filter_fn=fitted)


def fitted(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """A checkpoint's weights as the model wants them, without the norms that `--split-bn` adds.

    This package's models take released files too, and tables made for another size of image.

    Raises:
        ValueError: They are of another architecture than the model, which is one of this package.
    """
    state = {name: value for name, value in state.items() if ".aux_bn." not in name}
    fit: Any = getattr(model, "fit_state_dict", None)
    return fit(state) if fit is not None else state


def _content(path: Path) -> dict[str, Any]:
    """What a training checkpoint holds, its tensors left on disk; nothing of another file."""
    if not path.is_file():
        raise CheckpointError(f"{path} cannot be read: no such file.")
    try:
        return read_checkpoint(path, tensors=False)
    except CheckpointError:
        return {}


def _prefers_ema(path: Path) -> bool:
    """Whether the average was better than the weights when the run saved them."""
    content, settings = _content(path), run_settings(path)
    rows = content.get("summary")
    if not rows or not settings.get("model_ema"):
        return False  # also within the first epoch, where none was better yet
    row, name = rows[-1], settings["eval_metric"]
    plain, average = row.get(f"eval_{name}", 0.0), row.get(f"eval_ema_{name}")
    if average is None:
        return False
    return bool(average < plain if name == "loss" else average > plain)


def _has_average(path: Path) -> bool:
    """Whether a file holds averaged weights, under one of the names that timm reads."""
    if path.suffix == ".safetensors":
        return False
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        return True  # loading it will say what is wrong
    names = ("state_dict_ema", "model_ema")
    return isinstance(content, dict) and any(content.get(name) is not None for name in names)
