import numpy as np
import pytest
from PIL import Image

from robustness.corruptions import (
    CORRUPTIONS,
    SEVERITIES,
    blur,
    corrupt,
    filters,
    random_state,
    spatter,
)
from vit_ls.config import ConfigError


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((299, 224), Image.Resampling.BICUBIC)


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (32, 32), (60, 41), (320, 230)])
def test_any_size_is_corrupted_and_kept(
    name: str, size: tuple[int, int], picture: Image.Image
) -> None:
    for severity in (1, 5):
        rng = random_state("x", name, severity)
        changed = corrupt(picture.resize(size), name, severity, rng)
        assert (changed.size, changed.mode) == (size, "RGB")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_image_gets_the_same_corruption_and_another_one_another(
    name: str, picture: Image.Image
) -> None:
    def draw(key: str, seed: int = 0) -> np.ndarray:
        return pixels(corrupt(picture, name, 3, random_state(key, name, 3, seed=seed)))

    assert np.array_equal(draw("a"), draw("a"))
    assert not np.array_equal(draw("a"), pixels(picture))
    fixed = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate",
             "jpeg_compression", "gaussian_blur", "saturate"}  # fmt: skip
    for other in (draw("b"), draw("a", seed=1)):
        assert np.array_equal(draw("a"), other) == (name in fixed)


@pytest.mark.parametrize("name", ["gaussian_noise", "gaussian_blur", "contrast", "fog"])
def test_a_higher_severity_is_further_from_the_picture(name: str, picture: Image.Image) -> None:
    distances = [
        np.abs(
            pixels(corrupt(picture, name, s, random_state("x", name, s))) - pixels(picture)
        ).mean()
        for s in SEVERITIES
    ]
    assert distances == sorted(distances)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_shuffles_as_the_published_loop_does(reach: int, picture: Image.Image) -> None:
    image = np.asarray(picture.resize((40, 30)))
    slow, rng = image.copy(), np.random.RandomState(5)
    for row in range(30 - reach, reach, -1):
        for column in range(40 - reach, reach, -1):
            dx, dy = rng.randint(-reach, reach, size=2)
            slow[row, column] = slow[row + dy, column + dx]
    fast = blur.shuffle_locally(image, reach, np.random.RandomState(5))
    assert np.array_equal(slow, fast)


def test_impulse_noise_hits_the_published_share_of_elements() -> None:
    grey = Image.new("RGB", (224, 224), (128, 128, 128))
    changed = pixels(corrupt(grey, "impulse_noise", 5, random_state("x", "impulse_noise", 5)))
    assert np.mean(changed != 128) == pytest.approx(0.27, abs=0.005)
    assert np.mean(changed == 255) == pytest.approx(0.135, abs=0.005)


def test_zoom_counts_are_the_published_ones() -> None:
    counts = [len(np.arange(1, *row)) for row in blur._ZOOM_STOP_STEP]
    assert counts == [12, 16, 11, 13, 11]


def test_reflected_gaussian_is_the_filter_of_scipy() -> None:
    from scipy import ndimage

    field = np.random.default_rng(0).normal(size=(20, 33))
    for sigma in (0.7, 5.0, 40.0):
        expected = ndimage.gaussian_filter(field, sigma, mode="reflect", truncate=3)
        assert np.allclose(filters.gaussian_reflect(field, sigma), expected, atol=1e-12)


def test_chamfer_distance_is_near_the_euclidean_one() -> None:
    from scipy import ndimage

    mask = np.zeros((40, 50), bool)
    mask[20, 10] = mask[3, 44] = True
    exact = ndimage.distance_transform_edt(~mask)
    assert np.abs(spatter.distance_from(mask) - exact).max() < 0.03 * exact.max()


def test_frost_takes_photographs_from_a_folder(tmp_path, picture: Image.Image) -> None:
    Image.new("RGB", (30, 20), (0, 0, 0)).save(tmp_path / "black.png")
    rng = random_state("x", "frost", 5)
    changed = pixels(corrupt(picture, "frost", 5, rng, frost_dir=tmp_path))
    assert np.array_equal(changed, (pixels(picture) * 0.6 / 255 * 255).astype(int))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="must hold"):
        corrupt(picture, "frost", 5, rng, frost_dir=tmp_path / "empty")


@pytest.mark.parametrize(("name", "severity"), [("fogg", 1), ("fog", 0), ("fog", 6)])
def test_unknown_corruptions_and_severities_are_refused(name: str, severity: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        corrupt(Image.new("RGB", (8, 8)), name, severity, np.random.RandomState(0))
