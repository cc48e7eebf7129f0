"""Backbones, registered with timm when this package is imported."""

from vit_ls.models import vil_ls

__all__ = ["vil_ls"]
