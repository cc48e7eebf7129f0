"""Training batches are a function of the seed, the epoch and the position."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from data_config import DATA
from torch import Tensor

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.data import TrainBatches, open_splits, train_batches
from vit_ls.job import Ranks

CPU = torch.device("cpu")
# Random crops, mixing and erasing are on.
CONFIG = TrainConfig(
    dataset="digits",
    batch_size=100,
    workers=0,
    num_classes=10,
    mixup=0.5,
    cutmix=0.5,
    mixup_mode="elem",
    reprob=0.5,
)
PLAIN: dict[str, Any] = {"mixup": 0.0, "cutmix": 0.0, "reprob": 0.0}


def _batches(ranks: Ranks | None = None, **changes: Any) -> TrainBatches:
    config = replace(CONFIG, **changes)
    return train_batches(open_splits(config)[0], config, DATA, ranks or Ranks(CPU))


def _same(some: list[tuple[Tensor, Tensor]], others: list[tuple[Tensor, Tensor]]) -> bool:
    pairs = zip(some, others, strict=True)
    return all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in pairs)


def test_an_epoch_repeats_whatever_was_drawn_before() -> None:
    first = list(_batches().epoch(3))
    torch.manual_seed(1)
    batches = _batches()
    list(batches.epoch(2))
    before = torch.get_rng_state()
    assert _same(list(batches.epoch(3)), first)
    assert torch.equal(torch.get_rng_state(), before)  # the model's random numbers are its own


def test_epochs_and_seeds_differ() -> None:
    batches = _batches()
    first = list(batches.epoch(0))
    assert not _same(list(batches.epoch(1)), first)
    assert not _same(list(_batches(seed=1).epoch(0)), first)


def test_an_epoch_is_entered_at_any_batch() -> None:
    batches = _batches()
    everything = list(batches.epoch(1))
    assert len(everything) == len(batches) == 14
    for start in (1, 13, 14):
        assert _same(list(batches.epoch(1, start)), everything[start:])


def test_loading_processes_change_nothing() -> None:
    alone = list(_batches().epoch(1))
    batches = _batches(workers=2)
    assert _same(list(batches.epoch(1)), alone)
    assert _same(list(batches.epoch(1, 5)), alone[5:])


def test_processes_share_the_images_of_one_with_their_global_batch() -> None:
    (alone, labels), *_ = _batches(**PLAIN).epoch(0)
    halves = [
        next(iter(_batches(Ranks(CPU, rank=rank, world_size=2), batch_size=50, **PLAIN).epoch(0)))
        for rank in range(2)
    ]
    for rank, (images, targets) in enumerate(halves):
        assert torch.equal(images, alone[rank::2])
        assert torch.equal(targets, labels[rank::2])


def test_mixing_ends_at_its_epoch() -> None:
    batches = _batches(mixup_off_epoch=2, smoothing=0.0)
    hard = [bool((next(iter(batches.epoch(epoch)))[1].amax(1) == 1).all()) for epoch in range(4)]
    assert hard == [False, False, True, True]


def test_repeated_augmentation_shows_fewer_images_in_more_versions() -> None:
    sampler = _batches(aug_repeats=3, **PLAIN).sampler
    assert sampler is not None
    images = [key.image for batch in sampler for key in batch]
    assert len(images) == 1400
    assert 460 < len(set(images)) < 480


def test_augmentation_splits_show_each_image_clean_and_then_in_other_versions() -> None:
    augmented = {"aug_splits": 3, "color_jitter": 0.9, "batch_size": 10, **PLAIN}
    batches = _batches(**augmented)
    images, targets = next(iter(batches.epoch(0)))
    (clean, second, third), labels = images.split(10), targets.split(10)
    assert len(images) == 30
    assert torch.equal(labels[0], labels[1])
    assert torch.equal(labels[0], labels[2])
    for one, other in ((clean, second), (clean, third), (second, third)):
        assert (one != other).flatten(1).any(1).sum() >= 9  # a crop may be black
    same, _ = next(iter(_batches(**augmented | {"color_jitter": 0.0}).epoch(0)))
    assert torch.equal(same, clean.repeat(3, 1, 1, 1))
    again = next(iter(_batches(**augmented, workers=1).epoch(0)))
    assert _same([again], [(images, targets)])


@pytest.mark.parametrize("aug_splits", [0, 2, 4])
def test_resplit_spares_the_clean_part_of_a_batch(aug_splits: int) -> None:
    spared = PLAIN | {"reprob": 1.0, "remode": "const", "batch_size": 12, "aug_splits": aug_splits}
    part = 12 if aug_splits else 6
    whole, _ = next(iter(_batches(**PLAIN | spared | {"reprob": 0.0}).epoch(0)))
    erased, _ = next(iter(_batches(**spared, resplit=True).epoch(0)))
    differs = (whole != erased).flatten(1).any(1)
    assert not differs[:part].any()
    assert differs[part:].all()


def test_data_smaller_than_an_update_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must fill an update: .* = 2000, got 1433 images"):
        _batches(batch_size=1000, grad_accum_steps=2)
