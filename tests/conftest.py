"""What every test starts from: one thread, a fixed seed, hypothesis without deadlines."""

from pathlib import Path

import pytest
import torch
from hypothesis import settings

import vit_ls  # noqa: F401  registers the models
from vit_ls.data.digits import Digits

torch.set_num_threads(1)
settings.register_profile("vit_ls", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("vit_ls")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def digit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders train (96 images) and validation (37) with the digits 0 to 9."""
    root = tmp_path_factory.mktemp("digits")
    for split, held_out, count in (("train", False, 96), ("validation", True, 37)):
        digits = Digits(held_out=held_out)
        for index in range(count):
            image, label = digits[index]
            folder = root / split / str(label)
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{index}.png")
    return root
