"""Vision backbones with long-short and composite slice attention, registered as timm models."""

from vit_ls import models
from vit_ls.layers import fuse

__all__ = ["fuse", "models"]
__version__ = "0.1.0"
