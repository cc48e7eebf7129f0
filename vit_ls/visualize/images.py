"""The picture that is looked at."""

from pathlib import Path

from PIL import Image

from vit_ls.config import ConfigError


def read_rgb(path: Path) -> Image.Image:
    """The picture of --image.

    Raises:
        ConfigError: Pillow does not read it.
    """
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ConfigError(
            f"--image must be an image that Pillow reads, got {path}: {error}"
        ) from error
