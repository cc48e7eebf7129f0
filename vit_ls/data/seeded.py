"""Order, augmentation and erasing of training images, each on seeds of its own.

Each image is drawn and augmented, and each batch mixed and erased, on generators seeded from (seed,
epoch, position): the same batches come out whatever the number of loading processes, they can be
entered at any position, and several processes see together what one with their global batch sees.
"""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from timm.data import FastCollateMixup
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from vit_ls.data.errors import UnreadableImageError
from vit_ls.job.rng import seed, seeded

_logger = logging.getLogger(__name__)
_ORDER, _IMAGE, _MIX, _ERASE = range(4)  # what a seed is for


class Key(NamedTuple):
    """One image of a run: which one, and where it is drawn."""

    image: int
    epoch: int
    position: int


class Order(Protocol):
    """Draws the images of an epoch from torch's generator."""

    def __len__(self) -> int: ...

    def __call__(self) -> Tensor:
        """Their numbers."""


class EpochSampler(Sampler[list[Key]]):
    """The batches of one process, in an order given by (seed, epoch).

    Args:
        order: Draws the images of an epoch.
        batch_size: Images per batch of this process.
        seed: Of the order.
        rank: Of this process.
        world_size: Number of processes.
        repeats: Versions of each image in an epoch of unchanged length; 1 / repeats of the images
            are used in one epoch.
    """

    def __init__(
        self,
        order: Order,
        batch_size: int,
        *,
        seed: int,
        rank: int,
        world_size: int,
        repeats: int,
    ) -> None:
        self.order, self.batch_size, self.seed = order, batch_size, seed
        self.rank, self.world_size, self.repeats = rank, world_size, max(repeats, 1)
        self.epoch = self.start = self.shift = 0

    def __len__(self) -> int:
        return (len(self.order) - self.shift) // (self.batch_size * self.world_size)

    def __iter__(self) -> Iterator[list[Key]]:
        with seeded(self.seed, self.epoch, 0, _ORDER):
            order = self.order()
        shown = order[: -(-len(order) // self.repeats)]
        order = shown.repeat_interleave(self.repeats)[: len(order)]
        step = self.batch_size * self.world_size
        for batch in range(self.start, len(self)):
            first = self.shift + batch * step
            positions = range(first + self.rank, first + step, self.world_size)
            yield [Key(int(order[place]), self.epoch, place) for place in positions]


class SeededImages(Dataset[Any]):
    """Collated batches of a data set, one per list of keys.

    Args:
        dataset: The data set.
        collate: Makes a batch of samples; may mix them.
        seed: Of the run.
        mix_until: First epoch without mixing; None mixes in all.
        max_unreadable: How many unreadable images are replaced before one stops the run.
    """

    def __init__(
        self, dataset: Any, collate: Any, *, seed: int, mix_until: int | None, max_unreadable: int
    ) -> None:
        self.dataset, self.collate, self.seed = dataset, collate, seed
        self.mix_until, self.max_unreadable = mix_until, max_unreadable
        # Shared with the loading processes; setting a flag twice does no harm, so needs no lock.
        self.unreadable = torch.zeros(len(dataset), dtype=torch.uint8).share_memory_()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: list[Key]) -> tuple[Tensor, Tensor]:
        first = keys[0]
        if isinstance(self.collate, FastCollateMixup):
            self.collate.mixup_enabled = self.mix_until is None or first.epoch < self.mix_until
        place = self.seed, first.epoch, first.position, _MIX
        with seeded(*place):  # puts the states back once for all images
            samples = [self._sample(key) for key in keys]
            seed(*place)
            images, targets = self.collate(samples)
        return images, targets

    def _sample(self, key: Key) -> tuple[Any, Any]:
        index = key.image
        for _ in range(self.max_unreadable + 1):
            try:
                seed(self.seed, key.epoch, key.position, _IMAGE)
                image, target = self.dataset[index]
                return image, target
            except UnreadableImageError as error:
                if not self.unreadable[index]:
                    _logger.warning("unreadable image, replaced by the next: %s", error)
                self.unreadable[index] = 1
                last = error
                index = (index + 1) % len(self.dataset)
        raise last


class SeededErasing:
    """Random erasing on seeds of its own, because the prefetcher erases one batch ahead."""

    def __init__(self, erase: Any, seed: int, rank: int) -> None:
        self.erase, self.seed, self.rank = erase, seed, rank
        self.epoch = self.batch = 0

    def enter(self, epoch: int, batch: int) -> None:
        """Go on from this batch."""
        self.epoch, self.batch = epoch, batch

    def __call__(self, images: Tensor) -> Tensor:
        """The images [B, C, H, W] of the next batch, erased in place."""
        place = self.seed, self.epoch, self.batch, _ERASE, self.rank
        with seeded(*place, device=images.device):
            self.batch += 1
            erased: Tensor = self.erase(images)
        return erased
