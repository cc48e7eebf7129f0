"""Decoding at a reduced scale: the same crops, from files that are larger than they need be."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_config import DATA
from PIL import Image
from torch import Tensor

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.data import open_splits, train_batches
from vit_ls.data.pictures import reduction
from vit_ls.job import Ranks

SIDE = DATA["input_size"][1]


def _folder(root: Path, kind: str, *sizes: tuple[int, int]) -> TrainConfig:
    """Smooth pictures with an edge, in one class."""
    for split in ("train", "validation"):
        for index, (width, height) in enumerate(sizes):
            place = root / split / "class"
            place.mkdir(parents=True, exist_ok=True)
            row, column = np.mgrid[:height, :width]
            colours = 200 * row / height, 120 * column / width, 90.0 * (row > height // 3)
            pixels = np.stack(colours, -1).astype(np.uint8) + (split == "train")
            Image.fromarray(pixels).save(place / f"{index}.{kind}")
    return TrainConfig(data_dir=str(root), batch_size=len(sizes), workers=0, num_classes=1)


def _batch(config: TrainConfig, **changes: Any) -> Tensor:
    config = replace(config, **changes)
    loader = train_batches(open_splits(config)[0], config, DATA, Ranks(torch.device("cpu")))
    images, _ = next(iter(loader.epoch(0)))
    return images


@pytest.mark.parametrize(
    ("crop", "part"),
    [((448, 448), 2), ((447, 900), 1), ((900, 896), 4), ((9000, 1792), 8), ((224, 224), 1)],
)
def test_a_crop_keeps_the_pixels_that_it_is_resized_to(crop, part):
    assert reduction(crop, (224, 224)) == part


def test_large_photos_give_nearly_the_same_crops(tmp_path):
    config = _folder(tmp_path, "jpg", *[(20 * SIDE, 15 * SIDE)] * 6)
    full, reduced = (_batch(config, reduced_decoding=on) for on in (False, True))
    assert full.shape == reduced.shape
    gap = (full - reduced).abs() * 255 * torch.tensor(DATA["std"])[:, None, None]
    assert 0 < gap.mean() < 2
    assert gap.flatten(1).mean(1).max() < 3


@pytest.mark.parametrize(
    ("kind", "size"), [("png", (20 * SIDE, 15 * SIDE)), ("jpg", (SIDE + 9, SIDE + 5))]
)
@pytest.mark.parametrize("more", [{}, {"aug_splits": 2, "aa": "augmix-m3"}])
def test_what_cannot_be_reduced_is_the_same_to_the_bit(kind, size, more, tmp_path):
    config = _folder(tmp_path, kind, *[size] * 4)
    assert torch.equal(
        _batch(config, reduced_decoding=True, **more),
        _batch(config, reduced_decoding=False, **more),
    )


def test_a_grey_model_gets_grey_crops(tmp_path):
    config = _folder(tmp_path, "jpg", *[(20 * SIDE, 15 * SIDE)] * 2)
    data = DATA | {"input_size": (1, SIDE, SIDE), "mean": (0.5,), "std": (0.5,)}
    for on in (False, True):
        grey = replace(config, input_img_mode="L", in_chans=1, reduced_decoding=on)
        loader = train_batches(open_splits(grey)[0], grey, data, Ranks(torch.device("cpu")))
        assert next(iter(loader.epoch(0)))[0].shape == (2, 1, SIDE, SIDE)


@pytest.mark.parametrize(
    ("kind", "mode", "how"),
    [
        ("jpg", "CMYK", {}),
        ("jpg", "L", {}),
        ("jpg", "RGB", {"progressive": True}),
        ("mpo", "RGB", {"save_all": True, "append_images": [Image.new("RGB", (64, 64))]}),
    ],
)
def test_any_kind_of_jpeg_is_reduced(kind, mode, how, tmp_path):
    config = _folder(tmp_path, "jpg", (20 * SIDE, 15 * SIDE))
    (file,) = (tmp_path / "train").rglob("*.jpg")
    picture = Image.open(file).convert(mode)
    picture.save(file, format="MPO" if kind == "mpo" else "JPEG", **how)
    full, reduced = (_batch(config, reduced_decoding=on) for on in (False, True))
    gap = (full - reduced).abs().mean() * 127.5
    assert 0 < gap < 3


def test_a_damaged_file_is_named_as_without_it(tmp_path):
    config = _folder(tmp_path, "jpg", (20 * SIDE, 15 * SIDE))
    (file,) = (tmp_path / "train").rglob("*.jpg")
    file.write_bytes(file.read_bytes()[:2000])
    for on in (False, True):
        with pytest.raises(ConfigError, match=r"--max-unreadable 0 is exceeded: .*0\.jpg: "):
            _batch(config, reduced_decoding=on, max_unreadable=0)


@pytest.mark.parametrize("more", [{"no_aug": True}, {"train_crop_mode": "rkrc"}])
def test_another_crop_is_refused(more):
    with pytest.raises(ConfigError, match="--reduced-decoding needs the random resized crop"):
        TrainConfig(reduced_decoding=True, **more).check()


def test_data_that_decodes_its_own_is_refused():
    config = TrainConfig(
        dataset="digits", workers=0, num_classes=10, batch_size=8, reduced_decoding=True
    )
    with pytest.raises(ConfigError, match="--reduced-decoding needs images in files"):
        _batch(config)
