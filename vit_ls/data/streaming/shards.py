"""WebDataset shards, which timm's reader finds: by their places on a disk, else in a stream."""

import bisect
import io
import json
import os
import random
import tarfile
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, Any

from timm.data.readers.class_map import remap_target
from timm.data.readers.reader import Reader
from timm.data.readers.targets import get_field, has_field

from vit_ls.config import ConfigError
from vit_ls.data.errors import DataError
from vit_ls.data.pictures import PictureError
from vit_ls.data.streaming.images import Part, Sample
from vit_ls.data.streaming.index import INDEX, index_of
from vit_ls.data.streaming.order import ShardOrder
from vit_ls.errors import one_line

_CLASS = "cls"
"""Where the label is, unless a key of the JSON file is named."""


def check_keys(reader: Any, input_key: str | None, target_key: str | None) -> None:
    """Check that the first sample of the first shard has an image and a label under the keys.

    Only shards on a disk are looked at; of others it shows when they are read.

    Args:
        reader: timm's, of a WebDataset.
        input_key: That was asked for; None is the reader's own.
        target_key: As well.

    Raises:
        ConfigError: It has none, or the shard cannot be read.
    """
    shard = reader.split_info.filenames[0]
    if not Path(reader.root, shard).is_file():
        return
    sample = next(iter(_entries(reader, shard)), None)
    if sample is None:
        raise ConfigError(f"the shard {shard} has no samples.")
    found = ", ".join(sorted(_keys(sample)))
    if not _keys(sample) & set(reader.input_key.split(";")):
        key = f"--input-key {input_key}" if input_key else f"--input-key ({reader.input_key})"
        raise ConfigError(f"{key} must be one of {found}, as in {shard}.")
    key = _target_key(reader)
    if not key and _CLASS not in sample:
        raise ConfigError(
            f"--target-key must name an entry of the JSON files where no image has a {_CLASS}: "
            f"{shard} has {found}."
        )
    if key and "json" not in sample:
        raise ConfigError(
            f"--target-key {key} needs a JSON file for each image: {shard} has {found}."
        )
    if key and target_key and not has_field(_json(sample, shard), key):
        there = ", ".join(sorted(_json(sample, shard)))
        raise ConfigError(f"--target-key {key} must be one of {there}, as in {shard}.")


def on_disk(reader: Any) -> bool:
    """Whether the shards of timm's reader are files, and not addresses or commands."""
    places = (reader.root, *reader.split_info.filenames)
    return not any("://" in place or place.startswith("pipe:") for place in places)


class ShardReader(Reader):
    """The samples of shards on a disk, each by its number through all of them, encoded.

    Args:
        reader: timm's, of the same data; it says which shards and keys.

    Raises:
        DataError: A shard cannot be read to its end, or has another number of samples than is said
            beside it.
    """

    def __init__(self, reader: Any) -> None:
        super().__init__()
        self._reader, self.split_info = reader, reader.split_info
        self.root, self.class_to_idx = Path(reader.root), reader.class_to_idx
        self.index = index_of(self.root, self.split_info.filenames, _target_key(reader))
        self._ends = list(accumulate(self.index.counts))
        said = _said_lengths(reader)
        for name, shard in zip(self.index.names, self.index.shards, strict=True):
            if said.get(name, shard.samples) != shard.samples:
                raise _other_length(name, said[name], shard.samples)

    def order(self, length: int | None, *, training: bool) -> ShardOrder | None:
        """The order of a training epoch; None for an evaluation, or where there are no samples.

        Args:
            length: Images that are asked for; default: as many as there are.
            training: Whether these are images to train on.

        Raises:
            ConfigError: An evaluation asks for another number than there are.
        """
        if training:
            return ShardOrder(self.index.counts, length) if len(self) else None
        if length not in (None, len(self)):
            raise ConfigError(
                f"the number of images is that of the shards here, {len(self)}, got {length}."
            )
        return None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, number: int) -> tuple[IO[bytes], Any]:
        """The file of an image, and its label.

        Raises:
            PictureError: The sample has no image.
            DataError: It has no label, or is not where it was.
        """
        shard, entries = self._sample(number)
        label = _label(self._reader, entries, f"{shard}/{entries['__key__']}")
        ending = _image_key(self._reader, entries)
        if ending is None:
            raise PictureError("it has no image")
        return io.BytesIO(entries[ending]), label

    def _sample(self, number: int) -> tuple[str, dict[str, Any]]:
        """The shard of a sample, and its files by their endings."""
        place = bisect.bisect_right(self._ends, number)
        name, shard = self.index.names[place], self.index.shards[place]
        first, end = shard.spans[number - self._ends[place]].tolist()
        try:
            with (self.root / name).open("rb", buffering=0) as file:
                file.seek(first)
                part = io.BytesIO(file.read(end - first))
        except OSError as error:
            raise DataError(f"the shard {name} cannot be read: {one_line(error)}.") from error
        try:
            (found,) = _entries_in(part, name)
        except (DataError, ValueError) as error:
            raise DataError(
                f"the shard {name} is not the one that was counted: delete {self.root / INDEX}."
            ) from error
        return name, found

    def _filename(self, index: int, basename: bool = False, absolute: bool = False) -> str:  # noqa: ARG002
        shard, entries = self._sample(index)
        name = entries["__key__"]
        ending = _image_key(self._reader, entries) or self._reader.input_key.split(";")[0]
        return f"{Path(name).name if basename else f'{shard}/{name}'}.{ending}"

    def filenames(self, basename: bool = False, absolute: bool = False) -> list[str]:
        """Names of the images' files, in order."""
        return [self._filename(number, basename, absolute) for number in range(len(self))]


def samples(reader: Any, part: Part) -> Iterator[Sample]:
    """The samples of one part of a WebDataset, once.

    Whole shards are dealt out where there is one for each part, and else samples, so that no part
    is empty and each sample is in one of them.

    Args:
        reader: timm's, of the data.
        part: Which.

    Raises:
        DataError: A shard cannot be read to its end, or a sample has no label.
    """
    shards = list(reader.split_info.filenames)
    seeds = reader.common_seed, reader.epoch_count.value, part.times
    if reader.is_training:
        # The same order for all parts, or they would share shards.
        random.Random(" ".join(map(str, seeds))).shuffle(shards)
    whole = len(shards) >= part.of
    mine = shards[part.number :: part.of] if whole else shards
    found: Iterator[Sample | None] = (one for shard in mine for one in _samples_of(reader, shard))
    if not whole:
        found = islice(found, part.number, None, part.of)
    if reader.is_training:
        from webdataset.filters import _shuffle

        rng = random.Random(" ".join(map(str, (*seeds, part.number))))
        found = _shuffle(found, reader.sample_shuffle_size, reader.sample_initial_size, rng)
    yield from (sample for sample in found if sample is not None)


def _samples_of(reader: Any, shard: str) -> Iterator[Sample | None]:
    """The samples of a shard; None for one that is marked as having no label in this set."""
    count = 0
    for entries in _entries(reader, shard):
        count += 1
        name = f"{shard}/{entries['__key__']}"
        label = _label(reader, entries, name)
        ending = _image_key(reader, entries)
        encoded = None if ending is None else entries[ending]
        yield None if label is None else Sample(name, encoded, label)
    said = _said_lengths(reader).get(shard, count)
    if not reader.is_training and said != count:
        raise _other_length(shard, said, count)


def _said_lengths(reader: Any) -> dict[str, int]:
    """Samples of each shard, as far as the file beside the shards says it."""
    info = reader.split_info
    return dict(zip(info.filenames, info.shard_lengths, strict=False))


def _other_length(shard: str, said: int, found: int) -> DataError:
    return DataError(f"the shard {shard} must have {said} samples, got {found}.")


def _image_key(reader: Any, entries: dict[str, Any]) -> str | None:
    return next((key for key in reader.input_key.split(";") if key in entries), None)


def _entries(reader: Any, shard: str) -> Iterator[dict[str, Any]]:
    """The files of each sample by their endings."""
    from webdataset.gopen import gopen

    url = os.path.join(reader.root, shard)  # noqa: PTH118 - it may be an address
    try:
        with gopen(url) as stream:
            yield from _entries_in(stream, shard)
    except OSError as error:
        raise DataError(f"the shard {shard} cannot be read: {one_line(error)}.") from error


def _entries_in(stream: Any, shard: str) -> Iterator[dict[str, Any]]:
    from webdataset.tariterators import group_by_keys, tar_file_expander

    try:
        yield from group_by_keys(tar_file_expander([{"url": shard, "stream": stream}]))
    # The package adds places to what it and tarfile raise.
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:
        words = error.args[0] if isinstance(error, tarfile.TarError) and error.args else None
        reason = str(words).partition(" @ ")[0] if words else one_line(error)
        raise DataError(f"the shard {shard} cannot be read: {reason}.") from error


def _label(reader: Any, entries: dict[str, Any], name: str) -> Any:
    """The label of a sample, as it is there; None where it is marked as having none."""
    key = _target_key(reader)
    if not key:
        if _CLASS not in entries:
            raise DataError(
                f"{name} must have a label, {_CLASS}; it has {', '.join(sorted(_keys(entries)))}."
            )
        label = entries[_CLASS]
    else:
        said = _json(entries, name)
        if not has_field(said, key):
            raise DataError(f"--target-key {key} must be in the JSON file of {name}.")
        label = get_field(said, key)
        if isinstance(label, int) and label < 0:  # what timm's sets say of an image of another set
            return None
    if not reader.remap_class:
        return label
    try:
        return remap_target(int(label), reader.class_to_idx, reader._source_names)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"--class-map must have the label of {name}, {label!r}.") from error


def _json(entries: dict[str, Any], name: str) -> dict[str, Any]:
    try:
        said = json.loads(entries["json"])
    except (KeyError, ValueError) as error:
        raise DataError(f"the JSON file of {name} cannot be read: {one_line(error)}.") from error
    if not isinstance(said, dict):
        raise DataError(f"the JSON file of {name} must hold names and values.")
    return said


def _target_key(reader: Any) -> str:
    return str(reader.target_key or reader.split_info.alt_label or "")


def _keys(entries: dict[str, Any]) -> set[str]:
    return {key for key in entries if not key.startswith("__")}
