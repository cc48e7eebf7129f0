"""The picture that is looked at."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from vit_ls.config import ConfigError
from vit_ls.data.pictures import PictureError, read_picture


def read_rgb(path: Path) -> Image.Image:
    """The picture of --image.

    Raises:
        ConfigError: Pillow does not read it.
    """
    try:
        return read_picture(path)
    except PictureError as error:
        raise ConfigError(
            f"--image must be an image that Pillow reads, got {path}: {error}"
        ) from error


def photograph(path: Path | None) -> Image.Image:
    """The picture of --image; None for scikit-learn's of a temple.

    Raises:
        ConfigError: Pillow does not read it, or scikit-learn is not there.
    """
    if path is None:
        if find_spec("sklearn") is None:
            raise ConfigError("--image must be given, or scikit-learn be there for its picture.")
        import sklearn.datasets

        path = Path(sklearn.datasets.__file__).parent / "images" / "china.jpg"
    return read_rgb(path)


def cropped(image: Image.Image, size: tuple[int, ...]) -> Image.Image:
    """The middle of an image at (height, width), bicubic."""
    height, width = size
    scale = max(height / image.height, width / image.width)
    around = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    image = image.resize(around, Image.Resampling.BICUBIC)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def as_input(image: Image.Image, model: Any) -> Tensor:
    """An image as a model takes it [1,C,H,W], normalised by its pretrained config."""
    from torchvision.transforms.functional import normalize, rgb_to_grayscale, to_tensor

    cfg = model.pretrained_cfg
    x: Tensor = to_tensor(image)
    if cfg["input_size"][0] == 1:
        x = rgb_to_grayscale(x)
    return normalize(x, cfg["mean"], cfg["std"])[None]
