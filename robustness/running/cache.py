"""Counts of finished cells on disk: one small file each, replaced as a whole, checked when read."""

import hashlib
import json
import logging
from pathlib import Path

from robustness.files import write_atomically
from robustness.rules.judging import Counts

_logger = logging.getLogger(__name__)


class Cache:
    """Counts by key; a key is a flat dictionary of everything that decides the counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, key: dict[str, str]) -> Counts | None:
        """The counts, or None where there are none that can be trusted."""
        path = self._path(key)
        try:
            entry = json.loads(path.read_bytes())
            if entry["key"] == key and entry["check"] == _check(key, entry["counts"]):
                counts: Counts = entry["counts"]
                return counts
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            pass
        _logger.warning("%s is damaged: the cell is evaluated again.", path)
        return None

    def store(self, key: dict[str, str], counts: Counts) -> None:
        """Keep the counts of a finished cell."""
        entry = {"key": key, "counts": counts, "check": _check(key, counts)}
        write_atomically(self._path(key), json.dumps(entry, indent=1, sort_keys=True).encode())

    def _path(self, key: dict[str, str]) -> Path:
        return self.folder / key["weights"][:12] / f"{_digest(key)}.json"


def _check(key: dict[str, str], counts: Counts) -> str:
    return _digest({"key": key, "counts": counts})


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
