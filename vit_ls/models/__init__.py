"""Backbones, registered with timm when this package is imported."""

from vit_ls.models import cst_vit, cvt, cvt_ls, vil, vil_ls

__all__ = ["cst_vit", "cvt", "cvt_ls", "vil", "vil_ls"]
