"""Taking weights from a file into a model: the one reading, for training and for evaluation."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError, blamed_on, one_line
from vit_ls.models.convert import complaint
from vit_ls.models.names import under_our_names
from vit_ls.models.wrappers import Which, cleaned, held, unwrapped
from vit_ls.run.files import check_weights_file, is_numpy, read_file
from vit_ls.run.weights import which_weights

_logger = logging.getLogger(__name__)

_SHOWN = 3
_EXTRA = "_extra_state"
"""What a module may keep beside its tensors, of any type, under a name that torch gives it."""


def read_weights(
    path: Path, which: Which, own: Mapping[str, Tensor] | None = None
) -> dict[str, Any]:
    """The tensors of a file under their model's names.

    Args:
        path: The file, by torch or safetensors.
        which: The weights, or their average.
        own: The tensors of the model that is to take them, where it is known.

    Raises:
        CheckpointError: It cannot be read, does not hold these weights, or something in their place
            that is no weight: another value, a complex number, NaN or an infinity.
    """
    content = read_file(path)
    with blamed_on(f"{path} cannot be loaded", CheckpointError):
        state = cleaned(unwrapped(content, which), own or ())
        _check_tensors(state, own or {})
    return state


def load_weights(
    model: nn.Module, path: Path, *, weights: str = "best", flag: str = "--checkpoint"
) -> Which:
    """Load a model's weights from a checkpoint of ours or of others, strictly.

    Args:
        model: Of the same architecture.
        path: The file.
        weights: "best", "ema" or "raw"; see `which_weights`.
        flag: Names the file in an error.

    Returns:
        Which were taken.

    Raises:
        CheckpointError: They cannot be read or do not fit.
        ConfigError: The file has not what is asked for, or the model other classes or channels.
    """
    check_weights_file(flag, path)
    which = which_weights(path, weights)
    if is_numpy(path):
        _load_numpy(model, path)
        return which
    own = model.state_dict()
    state = read_weights(path, which, own)
    with blamed_on(f"{path} cannot be loaded", CheckpointError):
        fit: Any = getattr(model, "fit_state_dict", None)
        _check_size(model, own, state if fit is None else under_our_names(state).tensors, path)
        state = state if fit is None else fit(state)
        _check_fit(model, own, state)
        model.load_state_dict(state)
    _logger.info("weights: %s, of %s%s", which, path, _left(path, which))
    return which


def built_from(
    make: Callable[..., nn.Module],
    path: Path,
    overlay: Mapping[str, Any],
    *,
    weights: str = "best",
) -> Any:
    """A model that starts from a file as timm starts one from the published weights.

    timm adapts what has other classes or channels, and renames what it knows of others.

    Args:
        make: Makes the model of arguments for timm's `create_model`, handed to it by name.
        path: The file.
        overlay: Entries of the model's pretrained config; -1 classes leave the classifier out.
        weights: Which of the file; see `which_weights`.

    Raises:
        CheckpointError: The file cannot be read, or nothing in it fits.
    """
    which = which_weights(path, weights)
    entries: dict[str, Any] = {**overlay, "source": None, "file": None}
    if is_numpy(path):
        entries |= {"file": str(path), "custom_load": True}
        return make(pretrained=True, pretrained_cfg_overlay=entries)
    state = read_weights(path, which)
    try:
        model: Any = make(pretrained=True, pretrained_cfg_overlay=entries | {"state_dict": state})
    except RuntimeError as error:
        if not str(error).startswith("Error(s) in loading state_dict"):
            raise
        raise CheckpointError(f"{path} does not fit: {one_line(error)}") from error
    model.pretrained_cfg.pop("state_dict", None)
    if not _took_some(model, state):
        raise CheckpointError(
            f"{path} holds nothing that fits {_name(model)}: its first tensors are {_list(state)}."
        )
    _logger.info("weights: %s, of %s%s", which, path, _left(path, which))
    return model


@contextmanager
def named_by(flag: str) -> Iterator[None]:
    """Make a file that cannot be used a setting that cannot be used: nothing has begun yet."""
    try:
        yield
    except CheckpointError as error:
        raise ConfigError(f"{flag}: {error}") from error


def _left(path: Path, which: Which) -> str:
    """What a file holds beside the weights that were taken."""
    others = [one for one in held(read_file(path, tensors=False)) if one != which]
    return f", which holds {others[0]} weights too" if others else ""


def _check_tensors(state: Mapping[str, Any], own: Mapping[str, Tensor]) -> None:
    """Raise ValueError for what cannot be weights."""
    kept = {name: value for name, value in state.items() if not name.endswith(_EXTRA)}
    if not any(isinstance(value, Tensor) for value in kept.values()):
        raise ValueError("it must hold named tensors, got none.")
    for name, value in kept.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name!r} must be a tensor, got a {type(value).__name__}.")
        if value.is_complex() and not (name in own and own[name].is_complex()):
            raise ValueError(f"{name!r} must be real, got {value.dtype}.")
    broken = [name for name, value in kept.items() if not _finite(value) and _finite(own.get(name))]
    if broken:
        raise ValueError(
            f"weights must be finite, got NaN or infinity in {len(broken)} of {len(kept)} "
            f"tensors: {_list(broken)}."
        )


def _finite(value: Tensor | None) -> bool:
    if value is None or value.is_meta or not (value.is_floating_point() or value.is_complex()):
        return True
    return bool(torch.isfinite(value).all())


def _check_size(
    model: nn.Module, own: Mapping[str, Tensor], state: Mapping[str, Tensor], path: Path
) -> None:
    """Raise ConfigError where a model was asked for with other classes or channels."""
    cfg: Any = getattr(model, "pretrained_cfg", None) or {}
    for flag, entry, axis in (("--num-classes", "classifier", 0), ("--in-chans", "first_conv", 1)):
        named = cfg.get(entry) or ()
        for name in (named,) if isinstance(named, str) else named:
            key = f"{name}.weight"
            if key in own and key in state and _differ_in(axis, own[key], state[key]):
                ours, theirs = own[key].shape[axis], state[key].shape[axis]
                raise ConfigError(f"{flag} must be {theirs}, as {path} has, got {ours}.")


def _differ_in(axis: int, one: Tensor, other: Tensor) -> bool:
    """Whether the shapes of two tensors differ in that axis alone."""
    axes = [i for i, (a, b) in enumerate(zip(one.shape, other.shape, strict=False)) if a != b]
    return one.ndim == other.ndim and axes == [axis]


def _check_fit(model: nn.Module, own: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Raise ValueError where loading would: its message is long."""
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(value.shape)}"
        for name, value in own.items()
        if isinstance(value, Tensor) and name in state and state[name].shape != value.shape
    ]
    if missing or unexpected or shapes:
        what = complaint(missing, unexpected, shapes)
        raise ValueError(f"the checkpoint must fit {_name(model)}, got one with {what}.")


def _name(model: Any) -> str:
    cfg: Mapping[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    return str(cfg.get("architecture") or type(model).__name__)


def _took_some(model: nn.Module, state: Mapping[str, Tensor]) -> bool:
    """Whether a model holds any tensor of a file, under the same name or, as timm renames, not."""
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    if any(name in state and state[name].shape == value.shape for name, value in own.items()):
        return True
    theirs: dict[torch.Size, list[Tensor]] = {}
    for value in state.values():
        if isinstance(value, Tensor):
            theirs.setdefault(value.shape, []).append(value)
    return any(
        torch.equal(value, other.to(value.dtype))
        for value in own.values()
        for other in theirs.get(value.shape, ())
        if bool((value != value.flatten()[:1]).any())  # every new norm has the same ones and zeros
    )


def _load_numpy(model: nn.Module, path: Path) -> None:
    load: Any = getattr(model, "load_pretrained", None)
    if load is None:
        raise CheckpointError(f"{path} cannot be loaded: {type(model).__name__} reads no NumPy.")
    with blamed_on(f"{path} cannot be loaded", CheckpointError):
        load(str(path))


def _list(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_SHOWN]) + (", ..." if len(every) > _SHOWN else "")
