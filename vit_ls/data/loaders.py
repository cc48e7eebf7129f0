"""Loaders of training and evaluation, from timm's data sets, transforms and prefetcher."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from timm.data import AugMixDataset, FastCollateMixup, create_loader
from timm.data.loader import PrefetchLoader, fast_collate
from torch import Tensor
from torch.utils.data import DataLoader

from vit_ls.config import ConfigError, DataConfig, TrainConfig
from vit_ls.data.augment import (
    AugmentationError,
    NamedSteps,
    augmentation,
    named,
    train_transform,
)
from vit_ls.data.datasets import Images, ReadableImages
from vit_ls.data.errors import DataError, UnreadableImageError
from vit_ls.data.pictures import ReducedCrop
from vit_ls.data.processes import Supervised, last_line
from vit_ls.data.seeded import EpochSampler, SeededErasing, SeededImages
from vit_ls.data.streaming.images import StreamedImages
from vit_ls.data.streaming.order import AnyOrder

_logger = logging.getLogger(__name__)


class Place(Protocol):
    """Where in a job this process stands."""

    @property
    def rank(self) -> int:
        """Its number."""

    @property
    def world_size(self) -> int:
        """The number of processes."""

    @property
    def device(self) -> torch.device:
        """Where its batches go."""


@dataclass
class TrainBatches:
    """The training batches of this process.

    Attributes:
        images: The training split.
        unreadable: One flag per image, or for the hash of a stream's, set where it could not be
            read; None for data that does not say it.
        max_unreadable: More flags than this must stop the run.
    """

    images: Images
    loader: Any
    sampler: EpochSampler | None
    unreadable: Tensor | None
    max_unreadable: int

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """Index of each class, where the data has names for them."""
        return self.images.class_to_idx

    @property
    def num_images(self) -> int | None:
        """Images of the training split; None where it is streamed."""
        return None if self.images.streamed else len(self.images.dataset)

    @property
    def listing(self) -> str | None:
        """Identity of their names, where the split has some."""
        return self.images.listing

    def epoch(self, epoch: int, start: int = 0, shift: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch from the `start`-th on.

        Args:
            epoch: Its number.
            start: Batches of it that were used.
            shift: Images of it before the first batch, used by another number of processes.
        """
        skip = 0
        if self.sampler is not None:
            # At once, not with the first batch: the number of batches depends on it.
            self.sampler.epoch, self.sampler.start, self.sampler.shift = epoch, start, shift
        else:
            # A streamed data set can only be read past what was used.
            skip = start
            if hasattr(self.loader.dataset, "set_epoch"):
                self.loader.dataset.set_epoch(epoch)
        if isinstance(self.loader.random_erasing, SeededErasing):
            self.loader.random_erasing.enter(epoch, start - skip)
        return self._batches(skip)

    def _batches(self, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of the epoch that was entered, less the first ones."""
        number = -1
        try:
            for number, batch in enumerate(self.loader):
                if number >= skip:
                    yield batch
        except UnreadableImageError as error:
            raise DataError(
                f"--max-unreadable {self.max_unreadable} is exceeded: {error}"
            ) from error
        except AugmentationError as error:
            raise ConfigError(f"the augmentation {error}") from error
        except DataError:
            raise
        # Readers of streams report a missing key or shard in every way there is. Where nothing was
        # read yet, the settings are to blame.
        except Exception as error:
            if self.sampler is not None or number >= 0:
                raise
            raise ConfigError(f"the training data cannot be read: {last_line(error)}") from error

    def name(self, index: int) -> str:
        """File name of an image, or its number; "" in a stream, which has named it in its log."""
        dataset = self.images.dataset
        if self.images.streamed:
            return ""
        return str(dataset.filename(index)) if hasattr(dataset, "filename") else f"image {index}"


def train_batches(
    images: Images, config: TrainConfig, data_config: dict[str, Any], place: Place
) -> TrainBatches:
    """The training batches of one process.

    Args:
        images: The training split.
        config: Augmentation, batch size, seed, number of classes.
        data_config: Input size and normalisation, as timm's `resolve_data_config` gives them.
        place: This process.

    Raises:
        ConfigError: The data is smaller than one global batch, or streamed where it cannot be.
    """
    _expect(images, config.num_classes)
    collate = fast_collate if not config.mixes else FastCollateMixup(**_mixing(config))
    if images.streamed:
        for name, value in (
            ("aug-splits", config.aug_splits),
            ("aug-repeats", config.aug_repeats),
            ("reduced-decoding", config.reduced_decoding),
        ):
            if value:
                raise ConfigError(f"--{name} needs a data set that is not streamed.")
        _logger.info(
            "%s is a stream: a run that goes on reads its used part again. hfds/, and wds/ on a "
            "disk, go on where they stood.",
            config.dataset,
        )
        streamed = _streamed(images, config, data_config, collate, place)
        flags = None
        if isinstance(images.dataset, StreamedImages):
            images.dataset.max_unreadable = config.max_unreadable
            flags = images.dataset.unreadable
        return TrainBatches(images, streamed, None, flags, config.max_unreadable)
    dataset, transform = images.dataset, train_transform(config, data_config)
    if config.reduced_decoding:
        _crop_while_decoding(dataset, transform[0] if config.aug_splits else transform)
    if config.aug_splits:
        dataset = AugMixDataset(dataset, num_splits=config.aug_splits)
    dataset.transform = transform
    order = images.order or AnyOrder(len(dataset))
    sampler = EpochSampler(
        order,
        config.batch_size,
        seed=config.seed,
        rank=place.rank,
        world_size=place.world_size,
        repeats=config.aug_repeats,
    )
    if len(sampler) < config.grad_accum_steps:
        raise ConfigError(
            "the training split must fill an update: --batch-size x --grad-accum-steps x processes "
            f"= {config.batch_size * config.grad_accum_steps * place.world_size}, "
            f"got {len(order)} images."
        )
    batch = config.batch_size * place.world_size
    if config.aug_repeats > batch:
        raise ConfigError(
            "--aug-repeats must be at most the images of a batch, --batch-size x processes = "
            f"{batch}, got {config.aug_repeats}."
        )
    batches = SeededImages(
        dataset,
        collate,
        seed=config.seed,
        mix_until=config.mixup_off_epoch or None,
        max_unreadable=config.max_unreadable,
    )
    loader = _prefetched(batches, sampler, config, data_config, place)
    return TrainBatches(images, loader, sampler, batches.unreadable, config.max_unreadable)


def _expect(images: Images, num_classes: int | None) -> None:
    """Let a label that is none of the classes be an error where it is read."""
    if isinstance(images.dataset, ReadableImages | StreamedImages):
        images.dataset.num_classes = num_classes


def _crop_while_decoding(dataset: Any, transform: NamedSteps) -> None:
    """Move the crop, timm's first step, from the transform to the reading of the file."""
    if not isinstance(dataset, ReadableImages):
        raise ConfigError(
            "--reduced-decoding needs images in files: this data set decodes its own."
        )
    crop: Any = transform.take_first()
    dataset.crop = ReducedCrop(crop, dataset.input_img_mode)


def eval_loader(
    images: Images,
    config: DataConfig,
    data_config: dict[str, Any],
    place: Place,
    *,
    num_classes: int | None = None,
) -> Any:
    """Timm's loader of one process for evaluation: in order, nothing left out.

    Args:
        images: The held-out split.
        config: Batch size, loading processes.
        data_config: Input size and normalisation, as timm's `resolve_data_config` gives them.
        place: This process.
        num_classes: Of the model; default: as the configuration says.
    """
    _expect(images, num_classes or config.num_classes)
    loader = create_loader(
        images.dataset,
        input_size=data_config["input_size"],
        batch_size=getattr(config, "validation_batch_size", None) or config.batch_size,
        interpolation=data_config["interpolation"],
        mean=data_config["mean"],
        std=data_config["std"],
        crop_pct=data_config["crop_pct"],
        crop_mode=data_config["crop_mode"],
        num_workers=config.workers,
        distributed=place.world_size > 1,
        pin_memory=_pins(config, place),
        device=place.device,
    )
    loader.loader = Supervised(loader.loader, config.dist_timeout)
    return loader


def _prefetched(
    batches: SeededImages,
    sampler: EpochSampler,
    config: TrainConfig,
    data_config: dict[str, Any],
    place: Place,
) -> PrefetchLoader:
    """Timm's prefetcher over the batches: it normalises and erases on the device."""
    loader: Any = PrefetchLoader(
        DataLoader(
            batches,
            batch_sampler=sampler,
            collate_fn=_as_it_is,
            num_workers=config.workers,
            pin_memory=_pins(config, place),
            persistent_workers=config.workers > 0,
            # Its own generator, because starting an epoch must not draw from the model's.
            generator=torch.Generator(),
        ),
        mean=data_config["mean"],
        std=data_config["std"],
        channels=data_config["input_size"][0],
        device=place.device,
        re_prob=0.0 if config.no_aug else config.reprob,
        re_mode=config.remode,
        re_count=config.recount,
        re_num_splits=_erasing_splits(config),
    )
    loader.loader = Supervised(loader.loader, config.dist_timeout)
    return _with_seeded_erasing(loader, config, place)


def _with_seeded_erasing(loader: Any, config: TrainConfig, place: Place) -> Any:
    if loader.random_erasing is not None:
        loader.random_erasing = SeededErasing(loader.random_erasing, config.seed, place.rank)
    return loader


def _erasing_splits(config: TrainConfig) -> int:
    """Into how many parts erasing divides a batch, to spare the first one."""
    return (config.aug_splits or 2) if config.resplit else 0


def _pins(config: DataConfig, place: Place) -> bool:
    """Whether batches are in pinned memory: from other memory each copy to a GPU is waited for."""
    return config.pin_mem is not False and place.device.type == "cuda"


def _mixing(config: TrainConfig) -> dict[str, Any]:
    return {
        "mixup_alpha": config.mixup,
        "cutmix_alpha": config.cutmix,
        "cutmix_minmax": config.cutmix_minmax,
        "prob": config.mixup_prob,
        "switch_prob": config.mixup_switch_prob,
        "mode": config.mixup_mode,
        "label_smoothing": config.smoothing,
        "num_classes": config.num_classes,
    }


def _streamed(
    images: Images, config: TrainConfig, data_config: dict[str, Any], collate: Any, place: Place
) -> Any:
    loader = create_loader(
        images.dataset,
        input_size=data_config["input_size"],
        batch_size=config.batch_size,
        interpolation=config.train_interpolation,
        mean=data_config["mean"],
        std=data_config["std"],
        re_prob=config.reprob,
        re_mode=config.remode,
        re_count=config.recount,
        re_split=config.resplit,
        num_workers=config.workers,
        distributed=place.world_size > 1,
        collate_fn=collate,
        pin_memory=_pins(config, place),
        device=place.device,
        **augmentation(config),
    )
    images.dataset.transform = named(images.dataset.transform)
    loader.loader = Supervised(loader.loader, config.dist_timeout)
    return _with_seeded_erasing(loader, config, place)


def _as_it_is(batch: Any) -> Any:
    return batch
