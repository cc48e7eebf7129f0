"""The loop: one cell through the model, to integer counts, over any number of processes."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from robustness.data.gaps import Gap, Kind, some
from robustness.data.inputs import Batch, CellImages, collate
from robustness.errors import leave_interrupts, uninterrupted
from robustness.rules.judging import Counts, Verdict, judge
from robustness.running.attacks import Attacked
from robustness.running.predictions import Table
from robustness.scores.capture import captured, classifier_of
from vit_ls.config import ConfigError
from vit_ls.job import Ranks, device_named, join

Array = NDArray[Any]


def joined(device: str, timeout: float) -> tuple[Ranks, bool]:
    """The processes that torchrun started or this one alone, and whether the caller made the group.

    Such a group is left to the caller, with its timeout.
    """
    if dist.is_available() and dist.is_initialized():
        return Ranks(device_named(device), dist.get_rank(), dist.get_world_size()), True
    return join(device, timeout), False


@dataclass(frozen=True)
class Loop:
    """How a cell is run; none of it may change a count.

    Attributes:
        model: On the device of `ranks`, in eval mode.
        ranks: The processes.
        batch_size: Images per step and process.
        workers: Processes that read images.
        dtype: Of the computation.
        keep: Parts of the answers that are kept: "logits", "features".
    """

    model: torch.nn.Module
    ranks: Ranks
    batch_size: int = 64
    workers: int = 0
    dtype: torch.dtype = torch.float32
    keep: tuple[str, ...] = ()

    @property
    def classifier(self) -> torch.nn.Linear | None:
        """What the features that are kept go into."""
        return classifier_of(self.model) if "features" in self.keep else None


@dataclass
class Outcome:
    """Counts of a cell, its predictions, and the images that could not be judged as they should.

    Attributes:
        counts: Integer counts.
        table: The answers to the images that could be read.
        trouble: Kind of gap to names of images.
        seconds: How long it took.
        waiting: Share of it in which the model waited for images, of the first process.
        scores: What is kept of the answers, float16, by its name: [rows of the table, ...].
    """

    counts: Counts
    table: Table
    trouble: dict[str, list[str]]
    seconds: float = 0.0
    waiting: float = 0.0
    scores: dict[str, Array] = field(default_factory=dict)

    def gaps(self) -> list[Gap]:
        """One for each kind of trouble, with the first names."""
        found = [
            Gap(Kind(what), f"{len(keys)} images {what}: {some(sorted(keys))}")
            for what, keys in sorted(self.trouble.items())
        ]
        lost = self.counts.get("nonfinite")
        if lost:
            found.append(Gap(Kind.NOT_FINITE, f"{lost} answers of the model are not finite"))
        return found


def run_cell(
    loop: Loop, images: CellImages, rule: str, attacked: Attacked | None = None
) -> Outcome:
    """Judge every image of a cell once.

    Process r takes the batches r, r + size, ...: no image is padded in or counted twice, and a
    batch holds the same images in any number of processes.

    Args:
        loop: How.
        images: Of the cell.
        rule: Name of the rule.
        attacked: The attack on the images, which are then pixels in [0, 1]; None for none.

    Raises:
        ConfigError: The transform does not take an image, or gives no tensor of it.
    """
    began = time.monotonic()
    batches = _batches(loop, images)[loop.ranks.rank :: loop.ranks.world_size]
    loader: DataLoader[Any] = DataLoader(
        images,
        batch_sampler=batches,
        num_workers=min(loop.workers, len(batches)),
        collate_fn=collate,
        worker_init_fn=leave_interrupts,
        pin_memory=loop.ranks.device.type == "cuda",
        # Without one of its own it draws from the caller's.
        generator=torch.Generator().manual_seed(0),
    )
    counts: Counter[str] = Counter()
    trouble: list[tuple[str, str]] = []
    rows: list[Array] = []
    scores: dict[str, list[Array]] = {name: [] for name in kept_of(loop, images)}
    failure = ""
    waited, asked = 0.0, time.monotonic()
    for batch in _read(loader):
        waited += time.monotonic() - asked
        failure = batch.failure
        if failure:
            break
        keys = [images.samples[i].key for i in batch.indices.tolist()]
        trouble += [(what, key) for what, key in zip(batch.troubles, keys, strict=True) if what]
        if batch.judged.any():
            kept = [key for key, ok in zip(keys, batch.judged.tolist(), strict=True) if ok]
            targets = batch.targets[batch.judged]
            verdict, said = _judged(loop, batch.pixels, targets, kept, rule, attacked)
            for name, parts in scores.items():
                parts.append(said[name].half().cpu().numpy())
            counts.update(verdict.counts)
            found = (column for column in verdict.predictions if column is not None)
            columns = (batch.indices[batch.judged], targets, *found)
            rows.append(np.stack([c.double().cpu().numpy() for c in columns], axis=1))
        asked = time.monotonic()
    # One process's failure is everyone's: the others would wait for what it never sends.
    for other in loop.ranks.gather(failure):
        if other:
            raise ConfigError(other)
    own = {name: np.concatenate(parts) for name, parts in scores.items() if parts}
    outcome = _join(loop.ranks, images, dict(counts), trouble, rows, own)
    outcome.seconds = time.monotonic() - began
    outcome.waiting = waited / max(outcome.seconds, 1e-9)
    return outcome


def kept_of(loop: Loop, images: CellImages) -> tuple[str, ...]:
    """What is kept of the answers to a cell: nothing of videos, whose frames have many each."""
    return () if images.frames else loop.keep


def _read(loader: DataLoader[Any]) -> Iterator[Batch]:
    with uninterrupted():
        batches = iter(loader)
    while True:
        with uninterrupted():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _batches(loop: Loop, images: CellImages) -> list[list[int]]:
    """Places of the images of each batch; of videos, as many as have about that many frames."""
    step = max(1, loop.batch_size // max(1, images.frames))
    places = list(range(len(images)))
    return [places[start : start + step] for start in range(0, len(places), step)]


def _judged(
    loop: Loop,
    pixels: torch.Tensor,
    targets: torch.Tensor,
    keys: list[str],
    rule: str,
    attacked: Attacked | None,
) -> tuple[Verdict, dict[str, torch.Tensor]]:
    device = loop.ranks.device
    pixels, targets = pixels.to(device, non_blocking=True), targets.to(device)
    model: torch.nn.Module = loop.model
    if attacked is not None:
        model = attacked.from_pixels(model)
        pixels = attacked.perturbed(model, pixels, targets)
    with (
        torch.inference_mode(),
        captured(loop.classifier) as features,
        torch.autocast(device.type, loop.dtype, enabled=loop.dtype != torch.float32),
    ):
        images = pixels.flatten(0, -4)
        logits = torch.cat([model(part) for part in images.split(loop.batch_size)])
        logits = logits.unflatten(0, pixels.shape[:-3])
        said = {"logits": logits} | ({"features": torch.cat(features)} if features else {})
        return judge(rule, logits, targets, keys), said


def _join(
    ranks: Ranks,
    images: CellImages,
    counts: Counts,
    trouble: list[tuple[str, str]],
    rows: list[Array],
    scores: dict[str, Array],
) -> Outcome:
    total: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    named = ["label", "predicted", "confidence", "rank"]
    if images.frames:
        named += ["flips", "top5_distance"]
    own = np.concatenate(rows) if rows else np.zeros((0, 1 + len(named)))
    parts = ranks.gather((counts, trouble, own, scores))
    for found, lost, *_ in parts:
        total.update(found)
        for what, key in lost:
            names.setdefault(what, []).append(key)
    whole = np.concatenate([part[2] for part in parts])
    order = np.argsort(whole[:, 0])
    whole = whole[order]
    having = [part[3] for part in parts if part[3]]
    # Also where this process had no batch: all of them go the same way with what is kept.
    names_kept = having[0] if having else {}
    kept = {name: np.concatenate([own[name] for own in having])[order] for name in names_kept}
    keys = [images.samples[int(index)].key for index in whole[:, 0]]
    columns = dict(zip(named, whole[:, 1:].T, strict=True))
    table = Table.of(keys, columns)
    return Outcome(dict(sorted(total.items())), table, names, scores=kept)


def spare_workers() -> int:
    """Processors of this machine that the main process leaves, at most eight."""
    return min(8, max(0, len(os.sched_getaffinity(0)) - 1))
