"""The tensors of a checkpoint without what trainers wrap around them: dictionaries and prefixes."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from torch import Tensor

Which = Literal["raw", "ema"]
"""The weights as the optimiser left them, or their average over the updates."""

_RAW = ("state_dict", "model", "net")
_AVERAGED = ("state_dict_ema", "model_ema")
_PREFIXES = ("_orig_mod.", "module.", "model.", "backbone.")
"""Of torch.compile, of DataParallel and its kin, and of Lightning's modules around a model."""

_COUNT = "n_averaged"
"""Of torch's AveragedModel: how many weights it has averaged, itself none of them."""


def held(content: Mapping[str, Any]) -> tuple[Which, ...]:
    """Which weights a checkpoint holds."""
    kinds: tuple[Which, ...] = ("raw", "ema")
    return tuple(which for which in kinds if _inside(content, which) is not None)


def unwrapped(content: Mapping[str, Any], which: Which) -> Mapping[str, Any]:
    """The state dict in a checkpoint's dictionaries, however deep.

    Raises:
        ValueError: It does not hold these weights.
    """
    found = _inside(content, which)
    if found is None:
        raise ValueError(f"The checkpoint must hold {which} weights, got {', '.join(content)}.")
    return found


def cleaned(state_dict: Mapping[str, Any], own: Iterable[str] = ()) -> dict[str, Any]:
    """A state dict under its model's own names: without prefixes, and the norms of `--split-bn`.

    Args:
        state_dict: Out of its dictionaries.
        own: The names of the model that is to take it, where that is known: a part of its own that
            is called like a prefix is none.

    Raises:
        ValueError: Two of its names become one.
    """
    own = set(own)
    parts = {name.partition(".")[0] for name in own}
    prefixes = tuple(prefix for prefix in _PREFIXES if prefix[:-1] not in parts)
    clean: dict[str, Any] = {}
    for key, value in state_dict.items():
        name = key
        while name.startswith(prefixes):
            name = name.partition(".")[2]
        if name not in own and (name == _COUNT or ".aux_bn." in name):
            continue
        if name in clean:
            raise ValueError(f"The checkpoint must have each tensor once, got {name} twice.")
        clean[name] = value
    return clean


def _inside(content: Mapping[str, Any], which: Which) -> Mapping[str, Any] | None:
    if which == "ema" and (average := _first(content, _AVERAGED)) is not None:
        inner = _inside(average, "raw")
        return _inside(average, "ema") if inner is None else inner
    wrapped = _first(content, _RAW)
    if wrapped is not None:
        return _inside(wrapped, which)
    averaged_alone = _first(content, _AVERAGED) is not None and not _has_tensors(content)
    return None if which == "ema" or averaged_alone else content


def _first(content: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any] | None:
    """The first of these entries that is a dictionary; one with something in it before others."""
    entries = [value for name in names if isinstance(value := content.get(name), Mapping)]
    return next((entry for entry in entries if _holds_tensors(entry)), next(iter(entries), None))


def _holds_tensors(content: Mapping[str, Any]) -> bool:
    inner = (value for name in _RAW + _AVERAGED if isinstance(value := content.get(name), Mapping))
    return _has_tensors(content) or any(_holds_tensors(value) for value in inner)


def _has_tensors(content: Mapping[str, Any]) -> bool:
    return any(isinstance(value, Tensor) for value in content.values())
