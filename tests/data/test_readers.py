"""Data sets whose readers need a package of the extra `data`: Hugging Face and WebDataset."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from data_config import DATA

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.data import Images, eval_loader, open_splits, train_batches
from vit_ls.data.digits import Digits
from vit_ls.engine import Ranks

# webdataset leaves its shards open to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*digits-.*tar:pytest.PytestUnraisableExceptionWarning"
)
CPU = Ranks(torch.device("cpu"))
CONFIG = TrainConfig(workers=0, batch_size=4, num_classes=10, no_aug=True)
COUNTS = {"train": 16, "validation": 11}


def _labels() -> dict[str, list[int]]:
    digits = Digits(held_out=True)
    return {split: sorted(digits[i][1] for i in range(count)) for split, count in COUNTS.items()}


def _read(held_out: Images, config: TrainConfig) -> list[int]:
    batches = eval_loader(held_out, config, DATA, CPU)
    return sorted(torch.cat([targets for _, targets in batches]).tolist())


def _trained_on(train: Images, config: TrainConfig) -> tuple[list[int], torch.Tensor]:
    batches = list(train_batches(train, config, DATA, CPU).epoch(0))
    return sorted(torch.cat([labels for _, labels in batches]).tolist()), batches[0][0]


def test_a_hugging_face_data_set_is_read_as_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra 'data'")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    digits = Digits(held_out=True)
    for split, count in COUNTS.items():
        for index in range(count):
            image, label = digits[index]
            place = tmp_path / "images" / split / str(label)
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{index}.png")
    folder = replace(CONFIG, data_dir=str(tmp_path / "images"))
    hub = replace(
        CONFIG, dataset=f"hfds/{tmp_path / 'images'}", data_dir=str(tmp_path / "prepared")
    )
    (tmp_path / "prepared").mkdir()
    (train, held_out, classes), (train_files, held_out_files, _) = map(open_splits, (hub, folder))
    assert classes == len(set(_labels()["train"]))
    assert _read(held_out, hub) == _read(held_out_files, folder) == _labels()["validation"]
    (labels, _), (labels_of_files, _) = _trained_on(train, hub), _trained_on(train_files, folder)
    assert labels == labels_of_files == _labels()["train"]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    pytest.importorskip("webdataset", reason="needs the extra 'data'")
    digits = Digits(held_out=True)
    splits = {}
    for split, count in COUNTS.items():
        shard = tmp_path / f"digits-{split}-0000.tar"
        with tarfile.open(shard, "w") as archive:
            for index in range(count):
                image, label = digits[index]
                picture = io.BytesIO()
                image.save(picture, "PNG")
                parts = {"png": picture.getvalue(), "cls": str(label).encode()}
                for ending, content in parts.items():
                    entry = tarfile.TarInfo(f"{index:05d}.{ending}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
        splits[split] = {
            "name": split,
            "num_samples": count,
            "filenames": [shard.name],
            "shard_lengths": [count],
        }
    (tmp_path / "_info.json").write_text(json.dumps({"splits": splits}))
    return tmp_path


def test_a_web_data_set_is_streamed(shards: Path) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=str(shards))
    train, held_out, _ = open_splits(config)
    assert train.streamed
    assert _read(held_out, config) == _labels()["validation"]
    labels, images = _trained_on(train, config)
    assert labels == _labels()["train"]
    assert images.shape == (4, 3, 32, 32)


def test_an_image_key_that_the_shards_do_not_have_is_refused(shards: Path) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=str(shards), input_key="jpeg")
    with pytest.raises(
        ConfigError, match=r"--input-key jpeg must be one of cls, png, as in digits-"
    ):
        open_splits(config)


def test_a_streamed_data_set_that_cannot_be_read_ends_with_one_line(shards: Path) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=str(shards), target_key="digit")
    train, _, _ = open_splits(config)
    with pytest.raises(ConfigError, match=r"the training data cannot be read: .*digit") as error:
        _trained_on(train, config)
    assert "\n" not in str(error.value)


def test_augmentation_splits_need_data_in_any_order(shards: Path) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=str(shards), aug_splits=2)
    train, _, _ = open_splits(config)
    with pytest.raises(ConfigError, match="--aug-splits needs a data set that is not streamed"):
        train_batches(train, config, DATA, CPU)
