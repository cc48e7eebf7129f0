"""Mean and standard deviation of images, against all pixels at once."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vit_ls.config import ConfigError, TrainConfig, read
from vit_ls.config.reading import Parser
from vit_ls.data import open_images
from vit_ls.data.errors import DataError
from vit_ls.data.statistics import main, statistics


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five pictures of different sizes."""
    generator = np.random.default_rng(0)
    for number in range(5):
        place = tmp_path / "train" / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        size = (8 + number, 20 - number, 3)
        pixels = generator.integers(0, 40 * number + 60, size, dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path


def _pixels(folder: Path, mode: str = "RGB") -> list["np.ndarray"]:
    files = sorted((folder / "train").rglob("*.png"))
    return [np.asarray(Image.open(file).convert(mode)) / 255 for file in files]


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_each_image_counts_alike(
    folder: Path, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = [x.reshape(x.shape[0] * x.shape[1], -1) for x in _pixels(folder, mode)]
    mean = np.mean([x.mean(0) for x in pictures], 0)
    std = np.sqrt(np.mean([((x - mean) ** 2).mean(0) for x in pictures], 0))
    flags = {}
    for workers in ("0", "2"):
        main([str(folder), "--input-img-mode", mode, "--workers", workers])
        flags[workers] = capsys.readouterr().out
    assert flags["0"] == flags["2"]
    # They are flags that train.py reads.
    config, _ = read(Parser(TrainConfig, "train.py", ""), TrainConfig, flags["0"].split())
    assert config.mean == pytest.approx(mean.tolist(), abs=6e-5)
    assert config.std == pytest.approx(std.tolist(), abs=6e-5)


def test_an_unreadable_image_is_named_and_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = folder / "train" / "0" / "0.png"
    first.write_bytes(first.read_bytes()[:60])
    images = open_images(TrainConfig(data_dir=str(folder)), "train", training=True)
    found = statistics(images, max_unreadable=1)
    assert (found.images, found.unreadable) == (5, 1)
    assert f"left out: {first}" in caplog.text
    rest = [x.mean((0, 1)) for x in _pixels_but_first(folder)]
    assert found.mean == pytest.approx(np.mean(rest, 0).tolist(), abs=1e-12)
    with pytest.raises(DataError, match=r"--max-unreadable 0 is exceeded: .*0\.png"):
        statistics(images)


def _pixels_but_first(folder: Path) -> list["np.ndarray"]:
    (folder / "train" / "0" / "0.png").unlink()
    return _pixels(folder)


def test_images_without_a_difference_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train" / "0").mkdir(parents=True)
    Image.new("RGB", (9, 7), (51, 0, 255)).save(tmp_path / "train" / "0" / "a.png")
    with pytest.raises(ConfigError, match=r"more than one value .* 0\.200000 0\.000000 1\.000000"):
        main([str(tmp_path), "--workers", "0"])
    (tmp_path / "train" / "0" / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="none of the 1 images can be read"):
        main([str(tmp_path), "--workers", "0"])


def test_what_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder or file"):
        main([str(tmp_path / "absent")])
    with pytest.raises(ConfigError, match="--workers must not be negative, got -1"):
        main([str(tmp_path), "--workers", "-1"])
