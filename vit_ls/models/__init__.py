"""Backbones, registered with timm when this package is imported."""

from vit_ls.models import cvt_ls, vil_ls

__all__ = ["cvt_ls", "vil_ls"]
