"""The picture that is looked at."""

from pathlib import Path

from PIL import Image

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
