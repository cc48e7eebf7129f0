"""What a label may be: the whole number of a class."""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from vit_ls.data.errors import DataError


def checked_label(value: Any, num_classes: int | None, name: Callable[[], str]) -> int:
    """The label of an image.

    Args:
        value: As the data has it.
        num_classes: Of the model, where it is known.
        name: Says which image it is; called for an error alone.

    Raises:
        DataError: It is no whole number, or none of a class.
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    try:
        label = int(value)
    except (TypeError, ValueError):
        label = None
    if label is None or not (isinstance(value, str | Integral) or _whole(value, label)):
        raise DataError(f"the label of {name()} must be a whole number, got {_short(value)}.")
    if label < 0 or (num_classes is not None and label >= num_classes):
        classes = "0 or more" if num_classes is None else f"from 0 to {num_classes - 1}"
        raise DataError(f"the label of {name()} must be {classes} (--num-classes), got {label}.")
    return label


def _whole(value: Any, label: int) -> bool:
    return isinstance(value, Real) and value == label


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
