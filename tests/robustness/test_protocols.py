import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as TF

from robustness.rules.protocols import protocol_for

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def config(side: int) -> dict[str, object]:
    return {
        "input_size": (3, side, side),
        "interpolation": "bicubic",
        "mean": MEAN,
        "std": STD,
        "crop_pct": 0.875,
        "crop_mode": "center",
    }


@pytest.fixture
def image() -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def test_at_224_images_are_fed_unchanged(image: Image.Image) -> None:
    protocol = protocol_for("unchanged", config(224), 224)
    expected = TF.normalize(TF.to_tensor(image), MEAN, STD)
    assert torch.equal(protocol.apply(image), expected)
    assert protocol.description.startswith("fed unchanged at 224x224")


def test_a_larger_model_gets_them_resized_without_crop_and_says_so(image: Image.Image) -> None:
    protocol = protocol_for("unchanged", config(384), 224)
    resized = image.resize((384, 384), Image.Resampling.BICUBIC)
    expected = TF.normalize(TF.to_tensor(resized), MEAN, STD)
    assert torch.equal(protocol.apply(image), expected)
    assert protocol.description.startswith("resized 224x224 -> 384x384 bicubic, no crop")


def test_the_paper_resizes_and_crops_once_more(image: Image.Image) -> None:
    protocol = protocol_for("paper", config(224) | {"crop_pct": 1.0}, 224)
    resized = image.resize((256, 256), Image.Resampling.BICUBIC)
    expected = TF.normalize(TF.to_tensor(TF.center_crop(resized, 224)), MEAN, STD)
    assert torch.equal(protocol.apply(image), expected)
    words = "resized 224x224 -> 256x256 bicubic, the centre 224x224 of 256x256 cut out; mean"
    assert protocol.description.startswith(words)


@pytest.mark.parametrize(
    ("mode", "crop_pct", "words"),
    [
        ("center", 0.875, "shorter side resized to 256 bicubic, the centre 224x224 cut out; mean"),
        ("squash", 1.0, "resized to 224x224 bicubic, whatever its proportions, the centre 224x224"),
        ("border", 1.0, "resized to fit into 224x224 bicubic, the centre 224x224 cut out, padded"),
    ],
)
def test_other_benchmarks_get_the_models_own_crop(mode: str, crop_pct: float, words: str) -> None:
    asked = config(224) | {"crop_mode": mode, "crop_pct": crop_pct}
    assert protocol_for("model", asked, None).description.startswith(words)


def test_images_of_any_size_are_not_said_to_be_fed_unchanged(image: Image.Image) -> None:
    protocol = protocol_for("unchanged", config(288), None)
    said = "shorter side resized to 288 bicubic, the centre 288x288 cut out; mean"
    assert protocol.description.startswith(said)
    wide = image.resize((448, 224))
    cut = TF.center_crop(wide.resize((576, 288), Image.Resampling.BICUBIC), 288)
    assert torch.equal(protocol.apply(wide), TF.normalize(TF.to_tensor(cut), MEAN, STD))


def test_grey_models_are_described_too() -> None:
    grey = config(32) | {"input_size": (1, 32, 32), "mean": (0.5,), "std": (0.5,)}
    grey |= {"crop_mode": "border", "crop_pct": 1.0}
    assert protocol_for("model", grey, 32).description.startswith("fed unchanged at 32x32")
