"""Bytes in blocks for a language model: Python's own library, or enwik8 and text8."""

import hashlib
import platform
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from papers.sequence.data import Split, Task
from vit_ls.config import ConfigError

_BYTES = 256
_PUBLISHED = ("enwik8", "text8")
_HELD_OUT = 5_000_000


def library(length: int, train_bytes: int, seed: int, memory: int = 0) -> Task:
    """The modules of Python's standard library, each file in one split.

    Python Software Foundation License Version 2, https://docs.python.org/3/license.html. Which
    bytes these are depends on the version of Python, which `Task.source` names.

    Args:
        length: N of a block.
        train_bytes: How many bytes to train on, at most.
        seed: Of the order in which files are taken.
        memory: M of a block.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    parts: dict[str, list[bytes]] = {"train": [], "valid": [], "test": []}
    paths = [p for p in folder.rglob("*.py") if not {"site-packages", "test"} & {*p.parts}]
    names = {p.relative_to(folder).as_posix(): p for p in paths}
    for name in sorted(names, key=lambda name: _number(f"{seed} {name}")):
        place = _number(name) % 20
        part = "test" if place == 0 else "valid" if place == 1 else "train"
        limit = train_bytes if part == "train" else train_bytes // 8
        if sum(map(len, parts[part])) < limit:
            parts[part].append(names[name].read_bytes())
    texts = [b"".join(parts[part]) for part in ("train", "valid", "test")]
    if min(map(len, texts)) <= length + memory:
        raise ConfigError(
            f"--length and --memory must be less than is taken of {folder}, got {length}, {memory}."
        )
    source = f"sources of Python {platform.python_version()} (PSF License), split by file"
    return _task(texts, length, memory, source)


def published(path: Path, length: int, memory: int = 0) -> Task:
    """enwik8 or text8: the last 5 million bytes test, the 5 million before them choose.

    Raises:
        ConfigError: The file is not there, or too short for its splits.
    """
    found = next((path / name for name in _PUBLISHED if (path / name).is_file()), path)
    if not found.is_file():
        raise ConfigError(
            f"--data-dir must be enwik8 or text8, or hold one (enwik8.zip, text8.zip, unpacked), "
            f"got {path}."
        )
    data = found.read_bytes()
    if len(data) != 100_000_000:
        raise ConfigError(f"{found} must have 100000000 bytes, got {len(data)}.")
    cuts = (len(data) - 2 * _HELD_OUT, len(data) - _HELD_OUT)
    texts = (data[: cuts[0]], data[cuts[0] : cuts[1]], data[cuts[1] :])
    return _task(texts, length, memory, str(found))


def _task(texts: Sequence[bytes], length: int, memory: int, source: str) -> Task:
    train, valid, test = (
        Split(_blocks(text, length, memory), None, memory=memory, tokens=len(text))
        for text in texts
    )
    return Task(
        train,
        valid._replace(edges=_edges(texts[1], length, memory)),
        test._replace(edges=_edges(texts[2], length, memory)),
        vocab_size=_BYTES,
        num_classes=_BYTES,
        pad_id=None,
        source=source,
    )


def _blocks(data: bytes, length: int, memory: int = 0) -> Tensor:
    """Blocks and the bytes in front of each, [n,memory+length+1].

    The last byte that a block predicts is the first of the next. What none predicts is in `_edges`,
    and not trained on.
    """
    tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    size = memory + length + 1
    return tokens.unfold(0, size, length) if len(tokens) >= size else tokens[:0].view(0, 0)


def _edges(data: bytes, length: int, memory: int) -> tuple[Tensor, ...]:
    """The rest, so that every byte but the first is predicted once: [1,memory+1], [1,memory+n+1].

    The first `memory` bytes have nothing before them; the last n are fewer than a block.
    """
    tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    start = (len(tokens) - memory - 1) // length * length
    parts = (tokens[: memory + 1], tokens[start:])
    return tuple(
        part[None] for part, read in zip(parts, (1, memory + 1), strict=True) if len(part) > read
    )


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
