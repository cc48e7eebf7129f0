"""What is missing or left over: data for the program, one line for people."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

NAMED = 3
"""Names that a line shows before it counts the rest."""


class Kind(StrEnum):
    """What is wrong. Control flow looks at this, never at the text."""

    NO_FOLDER = "no folder"
    NO_IMAGES = "no images"
    FLAT = "flat"
    STRANGE_CLASS = "strange class"
    STRAY = "stray"
    NOT_UTF8 = "not UTF-8"
    COUNT = "count"
    UNREADABLE = "unreadable"
    WRONG_SIZE = "of another size"
    WRONG_LENGTH = "of another number of frames"
    NOT_FINITE = "not finite"
    MADE_OTHERWISE = "made otherwise"


class Gap(NamedTuple):
    """Why a number cannot be whole."""

    kind: Kind
    text: str


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def gather(lines: Mapping[str, Sequence[str]]) -> list[str]:
    """The lines of all cells, the same one of many cells once with their names before it."""
    cells_of: dict[str, list[str]] = {}
    for name, own in lines.items():
        for line in own:
            cells_of.setdefault(line, []).append(name)
    return [
        line if names == ["all"] else f"{some(names)}: {line}" for line, names in cells_of.items()
    ]
