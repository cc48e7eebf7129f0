"""scikit-learn's handwritten digits: 1797 real images that come with a dependency."""

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

SIZE = 32
_HELD_OUT = 5  # one of so many images of each digit


class Digits(Dataset[tuple[Any, int]]):
    """One split of the digits, enlarged bicubically from 8x8 to 32x32.

    Args:
        held_out: The held-out images instead of the training ones.
        mode: Pillow's colour mode, "RGB" or "L".
    """

    def __init__(self, *, held_out: bool, mode: str = "RGB") -> None:
        # Here, because training on other data does not need scikit-learn.
        from sklearn.datasets import load_digits

        digits = load_digits()
        chosen = is_held_out(digits.target) == held_out
        self.targets: list[int] = digits.target[chosen].tolist()
        self._images = [_enlarged(pixels, mode) for pixels in digits.images[chosen]]
        self.class_to_idx = {str(label): label for label in range(10)}
        self.transform: Callable[[Any], Any] | None = None

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self._images[index]
        return (self.transform(image) if self.transform else image), self.targets[index]


def is_held_out(labels: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Which of the digits are held out, by their labels in the order of the file.

    Of each digit's images it is every fifth: stratified, and by no random number.
    """
    rank = np.zeros(len(labels), dtype=int)
    for label in range(10):
        rank[labels == label] = np.arange((labels == label).sum())
    return np.asarray(rank % _HELD_OUT == 0)


def _enlarged(pixels: "np.ndarray[Any, Any]", mode: str) -> Image.Image:
    grey = Image.fromarray((pixels * (255 / 16)).round().astype(np.uint8))
    return grey.resize((SIZE, SIZE), Image.Resampling.BICUBIC).convert(mode)
