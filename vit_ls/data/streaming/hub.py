"""Hugging Face data sets: their keys, and the images of those that stream (`hfids/`)."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timm.data.readers.class_map import remap_target
from timm.data.readers.targets import get_field, has_field

from vit_ls.config import ConfigError
from vit_ls.data.errors import DataError
from vit_ls.data.streaming.images import Part, Sample


def check_keys(reader: Any, input_key: str | None, target_key: str | None) -> None:
    """Check that a data set has columns of images and of labels under the keys.

    timm's reader adds a column without images where there is none, and looks for labels last.

    Args:
        reader: timm's, of `hfds/` or `hfids/`.
        input_key: That was asked for; None is the reader's own.
        target_key: As well.

    Raises:
        ConfigError: It has none.
    """
    if hasattr(reader, "dataset"):
        image_key, label_key = reader.image_key, reader.label_key
        columns, features = reader.dataset.column_names, reader.dataset.features
        images = reader.dataset.data.column(image_key)
        there = images.null_count < len(images) or len(images) == 0
    else:
        image_key, label_key, builder = reader.input_key, reader.target_key, reader.builder
        features = builder.info.features or builder.as_streaming_dataset(reader.split).features
        if features is None:  # of remote files it shows when they are read
            return
        columns, there = list(features), image_key in features
    for flag, key, given, found in (
        ("--input-key", image_key, input_key, there),
        ("--target-key", label_key, target_key, has_field(features, label_key)),
    ):
        if not found:
            others = ", ".join(sorted(set(columns) - (set() if there else {image_key})))
            default = "" if given else " (its default)"
            raise ConfigError(f"{flag} {key}{default} must be one of {others}.")


def samples(reader: Any, part: Part) -> Iterator[Sample]:
    """The samples of one part of a data set that streams, once.

    Args:
        reader: timm's, of the data; its package deals the samples out by itself.
        part: Which.

    Raises:
        DataError: A sample has no label.
    """
    from datasets import Image  # here, because folders do not need it

    if reader.ds is None:
        reader._lazy_init()
        stream: Any = reader.ds
        # Decoded by its package, a damaged image would end the stream.
        reader.ds = stream.cast_column(reader.input_key, Image(decode=False))
    # An epoch that goes on with the data from the start has it in another order.
    reader.ds.set_epoch(reader.epoch.value + 2**20 * part.times)
    for row in reader.ds:
        image = row.get(reader.input_key)
        path, content = image.get("path") if isinstance(image, dict) else None, _content(image)
        # Without a path its content names it: its place changes from epoch to epoch.
        mark = f"{zlib.crc32(content or b''):08x}"
        name = path or f"{reader.name} {reader.split}, image of CRC {mark}"
        yield Sample(str(name), content, _label(reader, row, name))


def _content(image: Any) -> bytes | None:
    """A file's content, or None where there is no such file."""
    if not isinstance(image, dict):
        return None
    content, path = image.get("bytes"), image.get("path")
    if content is not None or path is None:
        return content
    if "://" not in path:
        return Path(path).read_bytes() if Path(path).is_file() else None
    from datasets.utils.file_utils import xopen

    with xopen(path, "rb") as file:
        return bytes(file.read())


def _label(reader: Any, row: dict[str, Any], name: str) -> Any:
    if not has_field(row, reader.target_key):
        raise DataError(f"--target-key {reader.target_key} must be one of {', '.join(row)}.")
    label = get_field(row, reader.target_key)
    if not reader.remap_class:
        return label
    try:
        return remap_target(label, reader.class_to_idx, reader._source_names)
    except (KeyError, TypeError) as error:
        raise DataError(f"--class-map must have the label of {name}, {label!r}.") from error
