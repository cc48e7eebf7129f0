"""Pixels against those of the authors' own program, which made the released files."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from robustness.corruptions import CORRUPTIONS, SEVERITIES, corrupt, filters, weather

RELEASED = json.loads((Path(__file__).parent / "released_pixels.json").read_text())


def picture() -> Image.Image:
    """The picture that the authors' program was given."""
    rows, columns = np.indices((224, 224))
    waves = [
        (rows * a + columns * b + (rows * columns) // c) % 256
        for a, b, c in ((1, 2, 37), (3, 1, 53), (2, 5, 91))
    ]
    blocks = ((rows // 28 + columns // 28) % 2)[..., None]
    stacked = np.where(blocks, np.stack(waves, -1), 255 - np.stack(waves, -1) // 3)
    return Image.fromarray(stacked.astype(np.uint8))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The six files of frost that it was given."""
    folder = tmp_path_factory.mktemp("frost")
    rows, columns = np.indices((240, 260))
    for number in range(1, 7):
        waves = [(rows * number + columns * k) % 256 for k in (1, 2, 3)]
        Image.fromarray(np.stack(waves, -1).astype(np.uint8)).save(folder / f"frost{number}.png")
    return folder


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_pixels_are_those_of_the_release(name: str, photographs: Path) -> None:
    for severity in SEVERITIES:
        rng = np.random.RandomState(severity)
        ours = np.asarray(corrupt(picture(), name, severity, rng, frost_dir=photographs))
        theirs = np.array(RELEASED["pixels"][name][severity - 1])
        found = ours.reshape(-1, 3)[RELEASED["places"]].ravel().astype(int)
        assert np.abs(found - theirs).max() <= 1
        assert ours.mean() == pytest.approx(RELEASED["means"][name][severity - 1], abs=0.03)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_flakes_of_snow_are_cut_to_the_picture_and_to_8_bits_before_the_blur(severity: int) -> None:
    loc, scale, zoom, threshold, radius, sigma, _ = weather._SNOW[severity - 1]
    rng = np.random.RandomState(severity)
    black = np.zeros((224, 224, 3), np.uint8)
    ours = weather.snow(black, severity, rng)

    rng = np.random.RandomState(severity)
    layer = rng.normal(size=(224, 224), loc=loc, scale=scale)
    kept = int(np.ceil(224 / zoom))
    first = (224 - kept) // 2
    layer = ndimage.zoom(layer[first : first + kept, first : first + kept], zoom, order=1)
    extra = (len(layer) - 224) // 2
    layer = layer[extra : extra + 224, extra : extra + 224]
    layer[layer < threshold] = 0
    drawn = (np.clip(layer, 0, 1) * 255).astype(np.uint8)
    streaks = filters.motion_blur(
        drawn, radius=radius, sigma=sigma, angle=rng.uniform(-135, -45)
    ).astype(float)
    flakes = (streaks + streaks[::-1, ::-1]) / 255
    # On black the picture itself is whitened to (1 - weight) / 2.
    whitened = (1 - weather._SNOW[severity - 1][-1]) * 0.5
    assert np.allclose(ours, flakes[..., None] + whitened, atol=1e-6)


def test_frost_draws_among_the_five_files_that_the_release_draws_from(photographs: Path) -> None:
    names = [path.name for path in weather.frost_photographs(photographs)]
    assert names == [f"frost{number}.png" for number in range(1, 6)]


def test_frost_of_ones_own_photographs_draws_among_all_of_them(tmp_path: Path) -> None:
    for number in range(6):
        Image.new("RGB", (8, 8)).save(tmp_path / f"window{number}.png")
    assert len(weather.frost_photographs(tmp_path)) == 6


def test_what_a_blur_gives_back_is_cut_to_8_bits_and_not_rounded() -> None:
    half = np.zeros((1, 64), np.uint8)
    half[:, 32:] = 255
    blurred = filters.motion_blur(half, radius=3, sigma=2.0, angle=0.0)
    weights = np.exp(-(np.arange(7) ** 2) / 8)
    exact = np.convolve(np.pad(half[0].astype(float), (0, 6), mode="edge"), weights[::-1], "valid")
    assert np.array_equal(blurred[0], np.floor(exact / weights.sum() + 1e-6))
