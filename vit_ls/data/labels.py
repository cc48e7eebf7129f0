"""Which index a class has, and what a label may be: the whole number of a class."""

import logging
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from timm.data.readers.class_map import load_class_map
from timm.data.readers.reader_image_in_tar import ReaderImageInTar

from vit_ls.config import ConfigError
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


_logger = logging.getLogger(__name__)
_SHOWN = 5


def relabel(reader: Any, file: str) -> None:
    """Give the images of timm's reader the labels of a map, and say how many have none.

    timm's readers can do it themselves, but drop images without a word.

    Args:
        reader: Of a folder or a tar; it is changed.
        file: The map, as timm reads it: names in a .txt file, a dict in a .pkl file.

    Raises:
        ConfigError: The map has no class of the data, or an index that is none.
    """
    class_to_idx = load_class_map(file)
    if not all(isinstance(index, int) and index >= 0 for index in class_to_idx.values()):
        raise ConfigError(f"--class-map {file}: indices must be whole numbers from 0.")
    in_tar = isinstance(reader, ReaderImageInTar)
    names = {
        index: name
        for name, index in (reader.class_name_to_idx if in_tar else reader.class_to_idx).items()
    }
    targets = reader.targets.tolist() if in_tar else [target for _, target in reader.samples]
    total = len(targets)
    kept = [number for number, target in enumerate(targets) if names[target] in class_to_idx]
    labels = [class_to_idx[names[targets[number]]] for number in kept]
    if in_tar:
        reader.samples, reader.targets = reader.samples[kept], np.array(labels)
        reader.class_name_to_idx = class_to_idx
        reader.class_idx_to_name = {index: name for name, index in class_to_idx.items()}
    else:
        paths = [reader.samples[number][0] for number in kept]
        reader.samples = list(zip(paths, labels, strict=True))
        reader.class_to_idx = class_to_idx
    left_out = [name for name in names.values() if name not in class_to_idx]
    if not kept:
        raise ConfigError(f"--class-map {file} has none of the classes {_some(left_out)}.")
    if left_out:
        _logger.warning(
            "--class-map %s leaves out %d of %d images: it has no %s.",
            file,
            total - len(kept),
            total,
            _some(left_out),
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
