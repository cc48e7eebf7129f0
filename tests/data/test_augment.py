"""Every policy works on the installed Pillow, and an augmentation that fails is named."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs
from data_config import DATA
from PIL import Image
from timm.data.auto_augment import AugmentOp, RandAugment

import train
from vit_ls.config import TrainConfig, read
from vit_ls.data.augment import AugmentationError, NamedSteps, train_transform
from vit_ls.data.digits import Digits
from vit_ls.job.rng import seeded

IMAGES = 3000
CONFIGS = sorted((Path(train.__file__).parent / "configs").glob("*.yaml"))
POLICIES = ("v0", "v0r", "original", "augmix-m5-w4-d2", "3a", "rand-m9-mstd0.5-inc1")


@cache
def _config(file: Path) -> TrainConfig:
    return read(train.parser, TrainConfig, ["--config", str(file)])[0]


def _augmented(config: TrainConfig, size: int) -> None:
    """Put images through the transform of a config, each on a seed of its own."""
    digits = Digits(held_out=False)
    transform = train_transform(config, DATA | {"input_size": (3, size, size)})
    for index in range(IMAGES):
        with seeded(config.seed, index):
            image = transform(digits[index % len(digits)][0])
        assert image.shape == (3, size, size)


def _distinct(changes: dict[str, Any]) -> list[TrainConfig]:
    """The configs in configs/ whose transforms differ after `changes`."""
    found = {}
    for file in CONFIGS:
        config = replace(_config(file), **changes)
        size = config.img_size or 0
        shape = DATA | {"input_size": (3, size, size)}
        found[f"{config.img_size} {train_transform(config, shape)!r}"] = config
    return list(found.values())


@pytest.mark.landing
@pytest.mark.parametrize("policy", POLICIES)
def test_3000_images_pass_through_a_policy(policy: str) -> None:
    _augmented(TrainConfig(aa=policy), 32)


@pytest.mark.landing
def test_3000_images_pass_through_every_config_in_small() -> None:
    configs = _distinct({"img_size": 32})
    assert {config.aa for config in configs} == {_config(file).aa for file in CONFIGS}
    for config in configs:
        _augmented(config, 32)


@pytest.mark.slow
@pytest.mark.parametrize("size", sorted({_config(file).img_size or 0 for file in CONFIGS}))
def test_3000_images_pass_through_every_config(size: int) -> None:
    configs = [config for config in _distinct({}) if config.img_size == size]
    assert configs
    for config in configs:
        _augmented(config, size)


def _posterize(magnitude: int) -> NamedSteps:
    return NamedSteps([RandAugment([AugmentOp("PosterizeIncreasing", 1.0, magnitude)], 1)])


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_posterize_to_0_bits_leaves_a_black_image(mode: str) -> None:
    image = Digits(held_out=True, mode=mode)[0][0]
    pixels = np.asarray(image)
    assert pixels.any()
    black = np.asarray(_posterize(10)(image))
    assert black.shape == pixels.shape
    assert not black.any()
    assert np.array_equal(_posterize(9)(image), pixels & 0b10000000)


@pytest.mark.skipif(int(Image.__version__.split(".")[0]) < 13, reason="Pillow takes 0 bits")
def test_timm_still_asks_pillow_for_bits_that_it_refuses() -> None:
    with pytest.raises(ValueError, match="bits must be"):
        AugmentOp("PosterizeIncreasing", 1.0, 10)(Digits(held_out=True)[0][0])


def test_an_operation_that_fails_is_named_with_its_argument() -> None:
    rotate = AugmentOp("Rotate", 1.0, 10, {"img_mean": (1, 2, 3)})
    grey = Digits(held_out=True, mode="L")[0][0]
    with pytest.raises(AugmentationError, match=r"^Rotate\(-?30.0\) fails: .*tuple"):
        NamedSteps([RandAugment([rotate], 1)])(grey)


@pytest.mark.landing
@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_augmentation_that_fails_ends_a_run_with_one_line(
    digit_folder: Path, tmp_path: Path, workers: str
) -> None:
    log = tmp_path / "log"
    # There are 15 operations, and the weighted set draws without replacement.
    argv = [str(digit_folder), "--model", "test_vil_ls", "--output", str(tmp_path), "-b", "8"]
    argv += ["--aa", "rand-n20-tweights", "--workers", workers]
    assert runs.finish(argv, log) == 2
    last = log.read_text().splitlines()[-1]
    assert last.startswith("train.py: the augmentation RandAugment fails: Cannot take a larger")
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("flags", [[], ["--in-chans", "1"], ["--aug-splits", "2"]])
def test_a_run_survives_the_strongest_policy(
    digit_folder: Path, tmp_path: Path, flags: list[str]
) -> None:
    log = tmp_path / "log"
    argv = [str(digit_folder), "--model", "test_vil_ls", "--output", str(tmp_path), "-b", "8"]
    argv += ["--aa", "rand-m10-n6-p1.0-inc1", "--workers", "0", "--epochs", "1", *flags]
    assert runs.finish(argv, log) == 0, log.read_text()
