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
    assert "crop_pct 0.875, bicubic" in protocol.description


def test_other_benchmarks_get_the_models_own_crop() -> None:
    assert "crop_pct 0.875" in protocol_for("model", config(224), None).description
