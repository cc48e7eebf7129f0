"""ListOps: nested lists of digits under MIN, MAX, MED and SM, by the Long Range Arena's grammar.

A node at depth d is, below the deepest level, with probability 0.25 an operator with two to ten
arguments, each a node one level deeper, and else a digit; at the deepest level always a digit. A
formula is kept if its length, digits and two tokens for each operator, lies strictly between two
bounds. No formula occurs twice.
"""

import csv
import itertools
import random
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from papers.sequence.data import Split, Task, read_as_table
from vit_ls.config import ConfigError

OPERATORS = ("MIN", "MAX", "MED", "SM")
CLOSE = "X"
# Ours: the released vocabulary is in arbitrary order. 0 pads.
TOKENS = (*map(str, range(10)), *(f"[{name}" for name in (*OPERATORS, "FIRST", "LAST")), CLOSE)
IDS = {token: number for number, token in enumerate(TOKENS, 1)}
VOCAB_SIZE = len(TOKENS) + 1

_OPERATOR_SHARE = 0.25
_ARGUMENTS = (2, 10)
_ATTEMPTS = 100_000
"""Formulas that are drawn in vain before it is given up."""


class Formula(NamedTuple):
    """A formula and what it comes to."""

    tokens: tuple[str, ...]
    value: int
    depth: int
    """Levels, 1 for a single digit."""


def generated(
    samples: int,
    *,
    depth: int,
    length: Sequence[int],
    max_length: int,
    brackets: bool,
    seed: int,
) -> Task:
    """A small set: `samples` to train on, and an eighth of that twice, to choose and to test.

    Raises:
        ConfigError: The bounds leave too few formulas, or one is longer than `max_length`.
    """
    held_out = max(1, samples // 8)
    formulas = list(draw(samples + 2 * held_out, depth, length, random.Random(seed)))
    cuts = (0, samples, samples + held_out, len(formulas))
    parts = [formulas[a:b] for a, b in itertools.pairwise(cuts)]
    source = f"{samples} generated formulas of {length[0] + 1} to {length[1] - 1} tokens"
    return _task(parts, brackets, max_length, source)


def read(folder: Path, *, max_length: int, brackets: bool) -> Task:
    """The released files basic_train.tsv, basic_val.tsv and basic_test.tsv.

    Raises:
        ConfigError: One is missing, or of another task, or a formula is longer than `max_length`.
    """
    parts = []
    for name in ("train", "val", "test"):
        path = folder / f"basic_{name}.tsv"
        if not path.is_file():
            raise ConfigError(
                f"--data-dir must hold basic_train.tsv, basic_val.tsv and basic_test.tsv of the "
                f"Long Range Arena's release (lra_release.gz, listops-1000), got no {path}."
            )
        with read_as_table(path), path.open(newline="", encoding="utf-8") as file:
            parts.append([_parsed(row, path) for row in csv.DictReader(file, delimiter="\t")])
    return _task(parts, brackets, max_length, str(folder))


def draw(count: int, depth: int, length: Sequence[int], rng: random.Random) -> Iterator[Formula]:
    """Different formulas within the bounds.

    Raises:
        ConfigError: Many attempts in a row bring no new one.
    """
    seen: set[tuple[str, ...]] = set()
    in_vain = 0
    while len(seen) < count:
        formula = _node(1, depth, rng)
        in_vain += 1
        if length[0] < len(formula.tokens) < length[1] and formula.tokens not in seen:
            seen.add(formula.tokens)
            in_vain = 0
            yield formula
        if in_vain == _ATTEMPTS:
            raise ConfigError(
                f"--formula-depth {depth} and --formula-length {length[0]} {length[1]} must leave "
                f"{count} different formulas, got {len(seen)}."
            )


def evaluated(name: str, values: Sequence[int]) -> int:
    """What an operator makes of its arguments; the median is truncated."""
    if name == "MIN":
        return min(values)
    if name == "MAX":
        return max(values)
    if name == "MED":
        return int(statistics.median(values))
    return sum(values) % 10


def _node(level: int, deepest: int, rng: random.Random) -> Formula:
    if level == deepest or rng.random() >= _OPERATOR_SHARE:
        digit = rng.randrange(10)
        return Formula((str(digit),), digit, 1)
    name = rng.choice(OPERATORS)
    arguments = [_node(level + 1, deepest, rng) for _ in range(rng.randint(*_ARGUMENTS))]
    tokens = [f"[{name}", *(t for a in arguments for t in a.tokens), CLOSE]
    value = evaluated(name, [a.value for a in arguments])
    return Formula(tuple(tokens), value, 1 + max(a.depth for a in arguments))


def _parsed(row: dict[str, str], path: Path) -> Formula:
    """A row of a released file; round brackets are left out."""
    if not {"Source", "Target"} <= row.keys() or row["Source"] is None or row["Target"] is None:
        raise ConfigError(f"{path} must have the columns Source and Target of ListOps.")
    words = row["Source"].replace("(", " ").replace(")", " ").replace("]", CLOSE).split()
    unknown = next((word for word in words if word not in IDS), None)
    if unknown is not None or not row["Target"].isdigit() or int(row["Target"]) > 9:
        wrong = row["Target"] if unknown is None else unknown
        raise ConfigError(f"{path} must hold formulas of ListOps and digits, got {wrong[:40]!r}.")
    level = deepest = 1
    for word in words:
        level += word.startswith("[")
        deepest = max(deepest, level)
        level -= word == CLOSE
    return Formula(tuple(words), int(row["Target"]), deepest)


def _task(parts: Sequence[Sequence[Formula]], brackets: bool, max_length: int, source: str) -> Task:
    longest = max((len(_read_ids(f, brackets)) for part in parts for f in part), default=0)
    if longest > max_length:
        raise ConfigError(
            f"--length must be at least {longest}, the longest formula of {source}, or its label "
            f"would be of more than is read, got {max_length}."
        )
    train, valid, test = (_split(part, parts[0], brackets, max_length) for part in parts)
    return Task(train, valid, test, vocab_size=VOCAB_SIZE, num_classes=10, source=source)


def _split(
    formulas: Sequence[Formula], train: Sequence[Formula], brackets: bool, max_length: int
) -> Split:
    ids = torch.zeros(len(formulas), max_length, dtype=torch.uint8)
    for row, formula in zip(ids, formulas, strict=True):
        kept = _read_ids(formula, brackets)
        row[: len(kept)] = torch.tensor(kept, dtype=torch.uint8)
    return Split(
        ids,
        torch.tensor([f.value for f in formulas]),
        torch.tensor([f.depth for f in formulas]),
        _by_root(formulas, train),
        padded=True,
    )


def _read_ids(formula: Formula, brackets: bool) -> list[int]:
    return [IDS[token] for token in formula.tokens if brackets or token != CLOSE]


def _by_root(formulas: Sequence[Formula], train: Sequence[Formula]) -> Tensor:
    """What is said who knows only a formula's first token: the commonest value in training."""
    values: dict[str, list[int]] = {}
    for formula in train:
        values.setdefault(formula.tokens[0], []).append(formula.value)
    said = {root: statistics.mode(found) for root, found in values.items()}
    return torch.tensor([said.get(f.tokens[0], 0) for f in formulas])
