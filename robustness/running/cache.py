"""Finished cells on disk: counts and predictions, replaced as a whole, checked when read."""

import json
import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robustness.data.listing import digest as digest_of
from robustness.files import write_atomically
from robustness.rules.judging import Counts
from robustness.running import predictions
from robustness.running.identity import NEAR
from robustness.scores.files import SUFFIX
from vit_ls.config import ConfigError

KEEP = "keep"
"""The part of a cell's key that says which of its scores are kept; not there where none are."""

_logger = logging.getLogger(__name__)


class Kept(NamedTuple):
    """A finished cell.

    Attributes:
        counts: Its counts.
        content: Bytes of its file of predictions.
        kind: Suffix of that file.
        scores: Bytes of its file of scores, where it was just made; those kept stay on the disk.
    """

    counts: Counts
    content: bytes
    kind: str
    scores: bytes = b""


class Cache:
    """Finished cells by key.

    A key is a flat dictionary of data that decides the counts. The model's answers to fixed
    pictures decide too, and stand beside the key because they are compared up to rounding.

    Args:
        folder: Where they are kept; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def load(self, key: dict[str, str], answer: tuple[float, ...]) -> Kept | None:
        """The cell, or None where there is none that can be trusted.

        Raises:
            ConfigError: The place cannot be read.
        """
        if self.folder is None:
            return None
        path = _path(self.folder, key)
        try:
            entry = json.loads(path.read_bytes())
            content = path.with_suffix(f".{entry['kind']}").read_bytes()
            held = predictions.digest(content)
            if KEEP in key:
                held += predictions.digest(self.scores_of(key).read_bytes())
            sound = entry["check"] == _check(key, entry["counts"], held)
            if entry["key"] == key and sound:
                if not _near(tuple(entry["answer"]), answer):
                    return None
                return Kept(entry["counts"], content, entry["kind"])
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"--cache: {path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError):
            pass
        _logger.warning("%s is damaged: the cell is evaluated again.", path)
        return None

    def store(self, key: dict[str, str], answer: tuple[float, ...], kept: Kept) -> None:
        """Keep a finished cell."""
        if self.folder is None:
            return
        path = _path(self.folder, key)
        held = predictions.digest(kept.content)
        if KEEP in key:
            held += predictions.digest(kept.scores)
            write_atomically(self.scores_of(key), kept.scores)
        entry = {
            "key": key,
            "answer": answer,
            "counts": kept.counts,
            "kind": kept.kind,
            "check": _check(key, kept.counts, held),
        }
        write_atomically(path.with_suffix(f".{kept.kind}"), kept.content)
        write_atomically(path, json.dumps(entry, indent=1, sort_keys=True).encode())

    def scores_of(self, key: dict[str, str]) -> Path:
        """Where the scores of a cell are kept."""
        assert self.folder is not None
        return _path(self.folder, key).with_suffix(SUFFIX)


def _path(folder: Path, key: dict[str, str]) -> Path:
    return folder / key["weights"][:12] / f"{_digest(key)}.json"


def _near(kept: tuple[float, ...], asked: tuple[float, ...]) -> bool:
    """Whether two answers are one but for rounding; answers that are not finite never are."""
    if len(kept) != len(asked):
        return False
    scale = max((abs(value) for value in asked), default=0.0)
    return bool(np.allclose(kept, asked, rtol=0, atol=NEAR * scale))


def _check(key: dict[str, str], counts: Counts, content: str) -> str:
    return _digest({"key": key, "counts": counts, "content": content})


def _digest(content: object) -> str:
    return digest_of([json.dumps(content, sort_keys=True)])
