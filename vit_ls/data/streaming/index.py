"""Where each sample lies in the shards on a disk: counted once, and kept beside them.

An entry is of a shard by its name, its size and the key of its labels; the shards of which there is
none, or one of another size, are read through. Processes that start together wait for the first.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from timm.data.readers.targets import get_field, has_field

from vit_ls.config import ConfigError
from vit_ls.data.errors import DataError
from vit_ls.errors import CheckpointError, one_line
from vit_ls.whole import write_whole

_logger = logging.getLogger(__name__)

INDEX, LOCK = "_index.npz", "._index.lock"
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_META = re.compile(r"__[^/]*__($|/)")  # what webdataset passes over

Key = tuple[str, str]
"""Name of a shard, and the key of its labels in JSON files ("": they are in files of their own)."""


class Shard(NamedTuple):
    """Where the samples of a shard lie.

    Attributes:
        size: Of the shard, in bytes.
        samples: How many it has, with those that are marked as having no label in this set.
        spans: First byte and end of each of the others [samples, 2].
    """

    size: int
    samples: int
    spans: "NDArray[np.int64]"


class Index(NamedTuple):
    """Where the samples of some shards lie.

    Attributes:
        names: Of the shards.
        shards: What is known of each.
    """

    names: tuple[str, ...]
    shards: tuple[Shard, ...]

    @property
    def counts(self) -> list[int]:
        """Samples of each shard."""
        return [len(shard.spans) for shard in self.shards]

    def digest(self) -> str:
        """Identity of the list: names, sizes and numbers of samples."""
        rows = zip(self.names, [shard.size for shard in self.shards], self.counts, strict=True)
        return hashlib.sha256(json.dumps(list(rows)).encode()).hexdigest()


def index_of(root: Path, names: Sequence[str], key: str) -> Index:
    """The index of some shards, read from its file or made and kept there.

    Args:
        root: Folder of the shards.
        names: Of the shards, relative to it.
        key: Of the labels in JSON files; "" where they are in files of their own.

    Raises:
        DataError: A shard cannot be read to its end.
        ConfigError: A shard is compressed.
    """
    wanted = [(name, key) for name in dict.fromkeys(names)]
    with _alone(root):
        known = _read(root)
        missing = [one for one in wanted if _size(root, one[0]) != _size_in(known, one)]
        if missing:
            first = root / missing[0][0]
            _logger.info("counting samples, once: %d shards from %s on.", len(missing), first)
            known |= {one: _scanned(root, *one) for one in missing}
            _keep(root, known)
    return Index(tuple(names), tuple(known[name, key] for name in names))


def _size(root: Path, name: str) -> int:
    try:
        return (root / name).stat().st_size
    except OSError as error:
        raise DataError(f"the shard {name} cannot be read: {one_line(error)}.") from error


def _size_in(known: Mapping[Key, Shard], one: Key) -> int | None:
    return known[one].size if one in known else None


def _scanned(root: Path, name: str, key: str) -> Shard:
    """What is known of a shard after reading the heads of its files."""
    path = root / name
    try:
        with path.open("rb") as file:
            start = file.read(8)
        packed = next((kind for magic, kind in _PACKED.items() if start.startswith(magic)), None)
        if packed is not None:
            raise ConfigError(
                f"the shard {name} must not be compressed, got {packed}: unpack it, because "
                "samples are read by their places."
            )
        with tarfile.open(path, "r:") as archive:
            found = list(_samples_in(archive, key, name))
            with path.open("rb") as file:
                file.seek(archive.offset)
                # tarfile takes whatever is no head of a file for the end of the archive.
                if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise DataError(
                        f"the shard {name} cannot be read: after {len(found)} samples it is cut "
                        "short or damaged."
                    )
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"the shard {name} cannot be read: {one_line(error)}.") from error
    spans = [(first, end) for first, end, labelled in found if labelled]
    return Shard(path.stat().st_size, len(found), np.array(spans, np.int64).reshape(-1, 2))


def _samples_in(archive: tarfile.TarFile, key: str, shard: str) -> Iterator[tuple[int, int, bool]]:
    """First byte and end of each sample, and whether it has a label, as webdataset groups them."""
    from webdataset.tariterators import base_plus_ext

    sample, first, end, labelled = None, 0, 0, True
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # a shard may have a million
        before = member.offset
        name, ending = base_plus_ext(member.name) if member.isreg() else (None, "")
        if name is None or _META.match(member.name):
            continue
        if name != sample:
            if sample is not None:
                yield first, end, labelled
            sample, first, labelled = name, before, True
        end = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        if key and str(ending).lower() == "json":
            labelled = _has_label(archive.extractfile(member), key, f"{shard}/{name}")
    if sample is not None:
        yield first, end, labelled


def _has_label(file: Any, key: str, name: str) -> bool:
    """False where a sample is marked, as timm's sets do, as one of another set."""
    try:
        said = json.load(file)
    except ValueError as error:
        raise DataError(f"the JSON file of {name} cannot be read: {one_line(error)}.") from error
    label = get_field(said, key) if isinstance(said, dict) and has_field(said, key) else None
    return not (isinstance(label, int) and label < 0)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep others from making the same index, where the file system can do it."""
    try:
        lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:  # read-only: nothing is kept there
        yield
        return
    try:
        with contextlib.suppress(OSError):  # not every file system of a network has locks
            fcntl.lockf(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _read(root: Path) -> dict[Key, Shard]:
    """What the file says; nothing where it is missing or damaged."""
    path = root / INDEX
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            names, keys = file["names"].tolist(), file["keys"].tolist()
            sizes, samples, counts = (file[one].tolist() for one in ("sizes", "samples", "counts"))
            spans = np.split(file["spans"], np.cumsum(counts)[:-1])
        rows = zip(names, keys, sizes, samples, spans, strict=True)
        return {(name, key): Shard(*more) for name, key, *more in rows}
    # A damaged archive raises what the part of it raises that is read first.
    except Exception as error:
        _logger.warning("%s cannot be read and is made anew: %s", path, one_line(error))
        return {}


def _keep(root: Path, known: Mapping[Key, Shard]) -> None:
    """Write the file, or say that it cannot be kept."""
    shards = known.values()
    content: dict[str, Any] = {
        "names": np.array([name for name, _ in known]),
        "keys": np.array([key for _, key in known]),
        "sizes": np.array([shard.size for shard in shards]),
        "samples": np.array([shard.samples for shard in shards]),
        "counts": np.array([len(shard.spans) for shard in shards]),
        "spans": np.concatenate([shard.spans for shard in shards]),
    }
    path = root / INDEX
    try:
        write_whole(path, lambda file: np.savez(file, **content))
    except (CheckpointError, OSError) as error:
        _logger.warning("the samples are counted again at each start: %s", one_line(error))
