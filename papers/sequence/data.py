"""Sequences with labels in memory, and the batches that the engine takes of them."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from vit_ls.config import ConfigError
from vit_ls.job import Ranks


class Split(NamedTuple):
    """Sequences and what to say of them."""

    ids: Tensor
    """Token ids [samples,N], or [samples,2,N] of pairs; of a language model [samples,M+N+1]."""
    labels: Tensor | None
    """Classes [samples]; None for a language model, whose labels are the next tokens."""
    groups: Tensor | None = None
    """What results are told apart by, such as the depth of a formula [samples]."""
    floor: Tensor | None = None
    """What a rule says that knows only one thing of a sample [samples]."""
    padded: bool = False
    """Whether id 0 is padding."""
    memory: int = 0
    """Tokens in front of a language model's block that are read and not predicted."""
    edges: tuple[Tensor, ...] = ()
    """What no whole block predicts and an evaluation must: the first tokens of a text, with nothing
    before them [1,M+1], and its last block, of n < N tokens [1,M+n+1]."""
    tokens: int = 0
    """Length of the text that blocks and edges are of."""

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that a model is to take at once."""
        return self.ids.shape[-1] - (self.memory + 1 if self.labels is None else 0)


class Task(NamedTuple):
    """The data of a task."""

    train: Split
    valid: Split
    test: Split
    vocab_size: int
    num_classes: int
    pad_id: int | None = 0
    pair: bool = False
    source: str = ""
    """Where the data is from, for the report."""


class Batches:
    """A training stream in the order that seed and epoch give, from any batch on.

    An epoch is one pass over the data, or `epoch_updates` batches of passes that follow each other.

    Args:
        split: The data.
        batch_size: Samples for each process and step.
        ranks: The processes.
        seed: Of the order.
        epoch_updates: Batches of an epoch; None for one pass.
        classes: Their names, by which a run knows whether it is continued on its own task.
    """

    unreadable: Tensor | None = None
    max_unreadable = 0
    num_images: int | None = None
    listing: str | None = None

    def __init__(
        self,
        split: Split,
        batch_size: int,
        ranks: Ranks,
        *,
        seed: int,
        epoch_updates: int | None,
        classes: Sequence[str],
    ) -> None:
        self.class_to_idx: dict[str, int] | None = {name: i for i, name in enumerate(classes)}
        self.split, self.ranks, self.seed = split, ranks, seed
        self.batch_size = batch_size
        # A last batch that is not full is left out: the next pass has another order.
        self._pass = len(split.ids) // (batch_size * ranks.world_size)
        self._length = epoch_updates or self._pass

    def __len__(self) -> int:
        return self._length

    @property
    def fills_a_batch(self) -> bool:
        """Whether there is enough data for one batch."""
        return self._pass > 0

    def epoch(
        self,
        epoch: int,
        start: int = 0,
        shift: int = 0,  # noqa: ARG002
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch from the `start`-th on; `shift` samples are read again."""
        order, of_pass = torch.empty(0), -1
        for number in range(epoch * self._length + start, (epoch + 1) * self._length):
            wanted, place = divmod(number, self._pass)
            if wanted != of_pass:
                generator = torch.Generator().manual_seed(self.seed * 2**24 + wanted)
                order, of_pass = torch.randperm(len(self.split.ids), generator=generator), wanted
            first = (place * self.ranks.world_size + self.ranks.rank) * self.batch_size
            yield batch(self.split, order[first : first + self.batch_size], self.ranks.device)

    def name(self, index: int) -> str:
        """What a sample is called."""
        return f"sample {index}"


class HeldOut:
    """The batches of an evaluation: of every process its share, each sample and edge once."""

    def __init__(self, split: Split, batch_size: int, ranks: Ranks) -> None:
        self.split, self.batch_size, self.ranks = split, batch_size, ranks

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        mine = torch.arange(len(self.split.ids))[self.ranks.rank :: self.ranks.world_size]
        # of nothing `split` makes one empty batch
        for chosen in mine.split(self.batch_size) if len(mine) else ():
            yield batch(self.split, chosen, self.ranks.device)
        for edge in self.split.edges[self.ranks.rank :: self.ranks.world_size]:
            yield _next_tokens(edge.long(), self.split.memory, self.ranks.device)


def batch(split: Split, chosen: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and labels of some samples; padding that all of them have is cut off."""
    ids = split.ids[chosen].long()
    if split.labels is None:
        return _next_tokens(ids, split.memory, device)
    if split.padded:
        used = (ids != 0).flatten(0, -2).any(0).nonzero()
        ids = ids[..., : int(used[-1]) + 1 if len(used) else 1]
    return ids.to(device), split.labels[chosen].to(device)


def _next_tokens(ids: Tensor, memory: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """[B,M+N+1] -> [B,M+N], [B*N]; what is no longer than M + 1 is read without a memory."""
    inputs = ids[:, :-1]
    first = memory if inputs.shape[1] > memory else 0
    return inputs.to(device), ids[:, first + 1 :].flatten().to(device)


@contextmanager
def read_as_table(path: Path) -> Iterator[None]:
    """Raise ConfigError where what is read of a file is no table of text."""
    try:
        yield
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} must be a table of text in UTF-8: {error}") from error
