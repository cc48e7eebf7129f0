"""Data sets are opened through timm's readers."""

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from data_config import DATA
from timm.data import create_dataset

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.data import eval_loader, open_images, open_splits
from vit_ls.data.digits import Digits
from vit_ls.job import Ranks

CONFIG = TrainConfig(workers=0, batch_size=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    digits = Digits(held_out=True)
    for split in ("train", "validation"):
        for index in range(12):
            image, label = digits[index]
            place = tmp_path / split / f"digit{label}"
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{index}.png")
    return tmp_path


def test_a_folder_is_read_with_its_classes(folder: Path) -> None:
    train, held_out, classes = open_splits(replace(CONFIG, data_dir=str(folder)))
    assert classes == 10
    assert len(train.dataset) == len(held_out.dataset) == 12
    assert held_out.file_names()[0].endswith(".png")
    loader = eval_loader(held_out, CONFIG, DATA, Ranks(torch.device("cpu")))
    labels = torch.cat([targets for _, targets in loader])
    assert labels.bincount(minlength=10).sum() == 12


# timm's reader leaves the tar open to the garbage collector.
@pytest.mark.filterwarnings("ignore:.*train.tar:pytest.PytestUnraisableExceptionWarning")
def test_a_tar_is_read_as_the_folder(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / "train", arcname=".")
    config = replace(CONFIG, data_dir=str(path), dataset="")
    images = open_images(config, "train", training=True)
    assert len(images.dataset) == 12
    assert images.num_classes == 10
    images.dataset.transform = None
    image, label = images.dataset[0]
    assert image.size == (32, 32)
    assert label in range(10)


def test_a_class_map_orders_the_classes(folder: Path) -> None:
    names = folder / "names.txt"
    names.write_text("\n".join(f"digit{label}" for label in reversed(range(10))))
    config = replace(CONFIG, data_dir=str(folder), class_map=str(names))
    class_to_idx = open_splits(config)[0].class_to_idx
    assert class_to_idx is not None
    assert class_to_idx["digit9"] == 0


def test_classes_that_differ_between_the_splits_are_named(folder: Path) -> None:
    (folder / "validation" / "digit3").rename(folder / "validation" / "digitX")
    with pytest.raises(ConfigError, match="must have the same classes, got 10 and 10"):
        open_splits(replace(CONFIG, data_dir=str(folder)))


def test_a_missing_split_or_package_of_a_reader_is_named(folder: Path) -> None:
    (folder / "_info.json").write_text(json.dumps({"splits": {}}))
    for dataset in (f"hfds/{folder / 'nowhere'}", "wds/x"):
        config = replace(CONFIG, data_dir=str(folder), dataset=dataset)
        with pytest.raises(ConfigError, match=r"split 'train' of .* cannot be opened"):
            open_images(config, "train")


@pytest.mark.parametrize("allowed", [True, False])
def test_only_what_is_allowed_is_downloaded_or_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    asked = {}

    def spy(*args: object, **kwargs: object) -> object:
        asked.update(kwargs)
        return create_dataset(*args, **kwargs)

    monkeypatch.setattr("vit_ls.data.datasets.create_dataset", spy)
    config = replace(CONFIG, dataset_download=allowed, dataset_trust_remote_code=allowed)
    open_images(replace(config, data_dir=str(folder)), "validation")
    assert (asked["download"], asked["trust_remote_code"]) == (allowed, allowed)
