"""Data sets whose readers need a package of the extra `data`: Hugging Face and WebDataset."""

import io
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from data_config import DATA
from PIL import Image
from shards import write_split

from vit_ls.config import ConfigError, TrainConfig
from vit_ls.data import Images, eval_loader, open_splits, train_batches
from vit_ls.data.digits import Digits
from vit_ls.data.streaming.images import Part
from vit_ls.job import Ranks

# webdataset leaves its shards open to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*digits-.*tar:pytest.PytestUnraisableExceptionWarning"
)
CPU = Ranks(torch.device("cpu"))
CONFIG = TrainConfig(workers=0, batch_size=4, num_classes=10, no_aug=True)
COUNTS = {"train": 16, "validation": 11}
SIDES = {"train": "train", "val": "validation"}


def _labels() -> dict[str, list[int]]:
    digits = Digits(held_out=True)
    return {split: sorted(digits[i][1] for i in range(count)) for split, count in COUNTS.items()}


def _read(held_out: Images, config: TrainConfig) -> list[int]:
    batches = eval_loader(held_out, config, DATA, CPU)
    return sorted(torch.cat([targets for _, targets in batches]).tolist())


def _trained_on(train: Images, config: TrainConfig) -> tuple[list[int], torch.Tensor]:
    batches = list(train_batches(train, config, DATA, CPU).epoch(0))
    return sorted(torch.cat([labels for _, labels in batches]).tolist()), batches[0][0]


def test_a_hugging_face_data_set_is_read_as_its_folder(hub: Path) -> None:
    folder, config = replace(CONFIG, data_dir=str(hub / "images")), _of_hub(hub, "hfds")
    (train, held_out, classes), (train_files, held_out_files, _) = map(
        open_splits, (config, folder)
    )
    assert classes == len(set(_labels()["train"]))
    assert _read(held_out, config) == _read(held_out_files, folder) == _labels()["validation"]
    (labels, _), (labels_of_files, _) = _trained_on(train, config), _trained_on(train_files, folder)
    assert labels == labels_of_files == _labels()["train"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of digits that Hugging Face's package reads."""
    datasets = pytest.importorskip("datasets", reason="needs the extra 'data'")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    digits = Digits(held_out=True)
    for split, count in COUNTS.items():
        for index in range(count):
            image, label = digits[index]
            place = tmp_path / "images" / split / str(label)
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{index}.png")
    (tmp_path / "prepared").mkdir()
    return tmp_path


def _of_hub(hub: Path, kind: str, **more: object) -> TrainConfig:
    place = {"dataset": f"{kind}/{hub / 'images'}", "data_dir": str(hub / "prepared")}
    if kind == "hfids":
        more |= {f"{name}_num_samples": COUNTS[split] for name, split in SIDES.items()}
    return replace(CONFIG, **place, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["hfds", "hfids"])
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"input_key": "img"}, "--input-key img must be one of image, label."),
        ({"target_key": "digit"}, "--target-key digit must be one of image, label."),
    ],
)
def test_keys_that_hugging_face_data_does_not_have_are_refused(
    hub: Path, kind: str, key: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        open_splits(_of_hub(hub, kind, **key))
    assert str(error.value) == message


def test_a_hugging_face_stream_counts_damaged_images_and_turns_as_its_package_does(
    hub: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for split in COUNTS:
        first = min((hub / "images" / split / "0").iterdir())
        first.write_bytes(first.read_bytes()[:70])
    turned = min((hub / "images" / "validation" / "1").iterdir())
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter
    Digits(held_out=True)[0][0].resize((16, 32)).save(turned, exif=exif)
    config = _of_hub(hub, "hfids", max_unreadable=1)
    train, held_out, classes = open_splits(config)
    assert classes == 10
    wanted = sorted([-1, *_labels()["validation"]])
    wanted.remove(0)
    assert _read(held_out, config) == wanted
    stream = held_out.dataset.samples(held_out.dataset.reader, Part(0, 1, 0))
    found = next(one for one in stream if one.name == str(turned))
    assert held_out.dataset._decoded(found).size == (32, 16)
    labels, _ = _trained_on(train, config)
    assert len(labels) == COUNTS["train"]
    assert "counted as wrong" in caplog.text
    assert "left out" in caplog.text
    with pytest.raises(ConfigError, match=r"--max-unreadable 0 is exceeded: .*png"):
        _trained_on(open_splits(config)[0], replace(config, max_unreadable=0))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    pytest.importorskip("webdataset", reason="needs the extra 'data'")
    digits = Digits(held_out=True)
    for split, count in COUNTS.items():
        samples = []
        for index in range(count):
            image, label = digits[index]
            picture = io.BytesIO()
            image.save(picture, "PNG")
            samples.append({"png": picture.getvalue(), "cls": str(label).encode()})
        write_split(tmp_path, split, samples)
    return tmp_path


@pytest.mark.parametrize("place", ["{}", "file://{}"])
def test_a_web_data_set_is_read_from_a_disk_and_streamed_from_an_address(
    shards: Path, place: str
) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=place.format(shards))
    train, held_out, _ = open_splits(config)
    assert train.streamed == ("file" in place)
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


def test_a_label_key_that_the_shards_do_not_have_is_refused(shards: Path) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=str(shards), target_key="digit")
    with pytest.raises(ConfigError, match=r"--target-key digit needs a JSON file for .*: digits-"):
        open_splits(config)


def test_a_streamed_data_set_that_cannot_be_read_ends_with_one_line(shards: Path) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=f"file://{shards}")
    train, _, _ = open_splits(config)
    train.dataset.samples = _broken  # as a package may fail
    with pytest.raises(ConfigError, match="training data cannot be read: no such host") as error:
        _trained_on(train, config)
    assert "\n" not in str(error.value)


def _broken(*_: object) -> NoReturn:
    raise OSError("no such host")


def test_augmentation_splits_need_data_in_any_order(shards: Path) -> None:
    config = replace(CONFIG, dataset="wds/digits", data_dir=f"file://{shards}", aug_splits=2)
    train, _, _ = open_splits(config)
    with pytest.raises(ConfigError, match="--aug-splits needs a data set that is not streamed"):
        train_batches(train, config, DATA, CPU)
