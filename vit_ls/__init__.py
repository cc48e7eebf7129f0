"""Vision backbones with attention linear in the image area, registered as timm models."""

__version__ = "0.1.0"
