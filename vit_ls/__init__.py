"""Vision backbones with attention linear in the image area, registered as timm models."""

from vit_ls import models

__all__ = ["models"]
__version__ = "0.1.0"
