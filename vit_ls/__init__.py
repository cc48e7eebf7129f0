"""Vision backbones with long-short and composite slice attention, registered as timm models."""

from vit_ls import models
from vit_ls.layers import fuse
from vit_ls.recording import Attention, record

__all__ = ["Attention", "fuse", "models", "record"]
__version__ = "0.1.0"
