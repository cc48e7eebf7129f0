"""Which class a label is: weights know it by the names of the classes that they were trained on."""

from collections.abc import Mapping
from typing import Any

from vit_ls.config import ConfigError

_Names = Mapping[str, int] | None


def check_same_classes(what: str, weights: _Names, data: _Names) -> None:
    """Raise ConfigError where weights are trained on, as they are, with labels of other classes."""
    if weights and data and dict(weights) != dict(data):
        raise ConfigError(
            f"{what}: the run's classes are not those of the data: {difference(weights, data)}."
        )


def labels_to_use(weights: _Names, data: _Names, *, trusted: bool) -> Mapping[str, int] | None:
    """The labels to open held-out data with, so that they are those of the weights.

    Args:
        weights: Index of each class in the weights, where it is known.
        data: Index of each class in the data, where it is known.
        trusted: The data's labels were chosen for these weights.

    Returns:
        The weights' labels, or None where the data's are the same or nothing can be compared.

    Raises:
        ConfigError: The data has a class that the weights do not know.
    """
    if trusted or not weights or not data:
        return None
    if data.keys() - weights.keys():
        raise ConfigError(
            f"the data's classes are not those of the weights: {difference(weights, data)}; "
            "--class-map FILE says which is which."
        )
    return None if all(weights[name] == index for name, index in data.items()) else weights


def check_all_classes(num_classes: int, weights: _Names, data: _Names, *, trusted: bool) -> None:
    """Raise ConfigError where it is not known which of the weights' classes the data has.

    Args:
        num_classes: Of the weights; a run may have had more of them than names.
        weights: Index of each class in the weights, where it is known: the data's are then theirs.
        data: Index of each class in the data, where it is known.
        trusted: The data's labels were chosen for these weights.
    """
    found = max(data.values()) + 1 if data else num_classes
    if found != num_classes and not (trusted or weights):
        raise ConfigError(
            f"the data has {found} classes and the weights {num_classes}, and which of them it has "
            "is not known: --class-map FILE says it."
        )


def check_classifier(model: Any, name: str) -> None:
    """Raise ConfigError where a pretrained model's classifier is not the pretrained one."""
    known = (getattr(model, "pretrained_cfg", None) or {}).get("num_classes")
    if known is not None and known != model.num_classes:
        raise ConfigError(
            f"--num-classes must be {known}, as the pretrained weights of {name} have, "
            f"got {model.num_classes}: the classifier would be random."
        )


def difference(weights: Mapping[str, int], data: Mapping[str, int]) -> str:
    """How the classes of weights and of data differ, by one class that shows it."""
    odd = (data.items() - weights.items()) or (weights.items() - data.items())
    name, index = min(odd, key=lambda one: (one[0] in weights and one[0] in data, one))
    where = "has" if name in data else "lacks"
    other = weights.get(name) if name in data else None
    was = "" if other is None else f" at {index} and not at {other}"
    return f"{len(weights)} and {len(data)} of them, and the data {where} {name!r}{was}"
