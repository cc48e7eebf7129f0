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

    Of each digit's images, in the order of the file, every fifth is held out: the split is
    stratified and depends on no random number.

    Args:
        held_out: The held-out images instead of the training ones.
        mode: Pillow's colour mode, "RGB" or "L".
    """

    def __init__(self, *, held_out: bool, mode: str = "RGB") -> None:
        # Here, because training on other data does not need scikit-learn.
        from sklearn.datasets import load_digits

        digits = load_digits()
        rank = np.zeros(len(digits.target), dtype=int)
        for label in range(10):
            of_label = digits.target == label
            rank[of_label] = np.arange(of_label.sum())
        chosen = (rank % _HELD_OUT == 0) == held_out
        self.targets: list[int] = digits.target[chosen].tolist()
        self._images = [_enlarged(pixels, mode) for pixels in digits.images[chosen]]
        self.class_to_idx = {str(label): label for label in range(10)}
        self.transform: Callable[[Any], Any] | None = None

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self._images[index]
        return (self.transform(image) if self.transform else image), self.targets[index]


def _enlarged(pixels: "np.ndarray[Any, Any]", mode: str) -> Image.Image:
    grey = Image.fromarray((pixels * (255 / 16)).round().astype(np.uint8))
    return grey.resize((SIZE, SIZE), Image.Resampling.BICUBIC).convert(mode)
