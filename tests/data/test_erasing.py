"""Random erasing on a device draws from seeds of its own, and disturbs nothing that follows."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from data_config import DATA
from timm.data import random_erasing
from torch import Tensor

from vit_ls.config import TrainConfig
from vit_ls.data import open_splits, train_batches
from vit_ls.data.seeded import SeededErasing
from vit_ls.job import Ranks
from vit_ls.job.rng import seeded

CUDA = torch.device("cuda")


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> torch.Generator:
    """Stands for the default generator of a GPU, from which timm's noise is drawn there."""
    generator = torch.Generator().manual_seed(5)

    def noise(
        per_pixel: bool, _rand_color: bool, size: tuple[int, ...], dtype: Any, **_: Any
    ) -> Tensor:
        assert per_pixel
        return torch.empty(size, dtype=dtype).normal_(generator=generator)

    module = SimpleNamespace(
        get_rng_state=generator.get_state,
        set_rng_state=generator.set_state,
        manual_seed=generator.manual_seed,
    )
    monkeypatch.setattr(random_erasing, "_get_pixels", noise)
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    return generator


class _OnDevice:
    """timm's erasing of images that say that they are on a GPU."""

    def __init__(self) -> None:
        self.erase = random_erasing.RandomErasing(1.0, mode="pixel", device="cpu")

    def __call__(self, images: Any) -> Any:
        return self.erase(images.tensor)


def _erased(erase: SeededErasing) -> Tensor:
    images: Any = SimpleNamespace(tensor=torch.zeros(4, 3, 16, 16), device=CUDA)
    return erase(images)


def test_noise_on_a_device_is_a_function_of_seed_epoch_and_batch(
    generator: torch.Generator,
) -> None:
    erase = SeededErasing(_OnDevice(), seed=1, rank=0)
    erase.enter(2, 0)
    first, second = _erased(erase), _erased(erase)
    assert first.any()
    assert not torch.equal(first, second)
    generator.manual_seed(99)  # the model drew meanwhile
    erase.enter(2, 1)
    assert torch.equal(_erased(erase), second)
    for other in (SeededErasing(_OnDevice(), seed=2, rank=0), SeededErasing(_OnDevice(), 1, 1)):
        other.enter(2, 0)
        assert not torch.equal(_erased(other), first)


def test_erasing_a_batch_ahead_does_not_shift_what_the_model_draws(
    generator: torch.Generator,
) -> None:
    before = generator.get_state()
    _erased(SeededErasing(_OnDevice(), seed=1, rank=0))
    assert torch.equal(generator.get_state(), before)
    with pytest.raises(ZeroDivisionError), seeded(1, device=CUDA):
        1 / 0  # noqa: B018
    assert torch.equal(generator.get_state(), before)


def test_the_cpu_needs_no_other_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_device_module", None)
    config = TrainConfig(dataset="digits", workers=0, num_classes=10, reprob=1.0)
    batches = train_batches(open_splits(config)[0], config, DATA, Ranks(torch.device("cpu")))
    first, again = next(iter(batches.epoch(1))), next(iter(batches.epoch(1)))
    assert torch.equal(first[0], again[0])
    plain = replace(config, reprob=0.0)
    whole = train_batches(open_splits(plain)[0], plain, DATA, Ranks(torch.device("cpu")))
    assert not torch.equal(next(iter(whole.epoch(1)))[0], first[0])
