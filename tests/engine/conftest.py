"""A small image folder of real images, for runs of a second."""

from pathlib import Path

import pytest

from vit_ls.data.digits import Digits


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
