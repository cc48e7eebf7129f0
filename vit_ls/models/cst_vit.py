"""CST-ViT and CST-ViL: composite slice attention (Lee et al., ICLR 2023) on images.

https://openreview.net/forum?id=nWTzIsgrYNN treats sequences; these models are ours.

`cst_vit_*` has DeiT's layout (arXiv:2012.12877) and takes weights of a plain ViT. Its blocks stand
on one grid, with one P_l and P_g, and each block gives a feature map. `cst_vil_*` has Vision
Longformer's layout with composite slice attention in the two stages that have windows; their dims
differ, so each has its own P_l and P_g.

The paper's ablations are arguments of every model, the fields of
`vit_ls.attention.CompositeSlice`:

    timm.create_model("cst_vit_small_patch16_224", slice_size=(1, 14), composition="parallel")

and of `cst_vil_*`, which has two stages with slices, one for each where they differ:

    timm.create_model("cst_vil_small", slice_size=((7, 7), (4, 4)), alpha=(1.0, 2.0))
"""

from dataclasses import fields, replace
from math import prod
from typing import Any

from timm.models import generate_default_cfgs, register_model

from vit_ls.attention import CompositeSlice, Full, Options
from vit_ls.blocks import Embed, StageSpec
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.factory import change_attention, create, default_cfg
from vit_ls.models.spec import BackboneSpec

__all__ = [
    "cst_vil_medium",
    "cst_vil_small",
    "cst_vit_base_patch16_224",
    "cst_vit_base_patch16_384",
    "cst_vit_base_patch16_448",
    "cst_vit_small_patch8_224",
    "cst_vit_small_patch8_384",
    "cst_vit_small_patch8_448",
    "cst_vit_small_patch16_224",
    "cst_vit_small_patch16_384",
    "cst_vit_small_patch16_448",
    "cst_vit_tiny_patch16_224",
    "cst_vit_tiny_patch16_384",
    "cst_vit_tiny_patch16_448",
    "test_cst_vil",
    "test_cst_vit",
]


def _plain(
    img_size: int, patch: int, dim: int, depth: int, heads: int, slice_size: int
) -> BackboneSpec:
    embed = Embed(patch, patch, norm=False)
    return BackboneSpec(
        stages=(StageSpec(embed, heads, dim, depth, CompositeSlice(slice_size)),),
        img_size=img_size,
        maps_of_blocks=True,
        features=tuple(i * depth // 4 - 1 for i in (1, 2, 3, 4)),
    )


def _pyramid(
    img_size: int,
    heads: tuple[int, ...],
    dims: tuple[int, ...],
    depths: tuple[int, ...],
    slice_size: int,
) -> BackboneSpec:
    composite = CompositeSlice(slice_size)
    full = Full(position_table=True)
    attentions: tuple[Options, ...] = (composite, composite, full, full)
    strides = (4, 2, 2, 2)
    return BackboneSpec(
        stages=tuple(
            StageSpec(Embed(p, p), h, d, n, attention)
            for p, h, d, n, attention in zip(strides, heads, dims, depths, attentions, strict=True)
        ),
        img_size=img_size,
    )


VARIANTS = {
    #                                   size patch dim depth heads slice
    "cst_vit_tiny_patch16_224": _plain(224, 16, 192, 12, 3, 7),
    "cst_vit_tiny_patch16_384": _plain(384, 16, 192, 12, 3, 6),
    "cst_vit_tiny_patch16_448": _plain(448, 16, 192, 12, 3, 7),
    "cst_vit_small_patch16_224": _plain(224, 16, 384, 12, 6, 7),
    "cst_vit_small_patch16_384": _plain(384, 16, 384, 12, 6, 6),
    "cst_vit_small_patch16_448": _plain(448, 16, 384, 12, 6, 7),
    "cst_vit_base_patch16_224": _plain(224, 16, 768, 12, 12, 7),
    "cst_vit_base_patch16_384": _plain(384, 16, 768, 12, 12, 6),
    "cst_vit_base_patch16_448": _plain(448, 16, 768, 12, 12, 7),
    "cst_vit_small_patch8_224": _plain(224, 8, 384, 12, 6, 4),
    "cst_vit_small_patch8_384": _plain(384, 8, 384, 12, 6, 6),
    "cst_vit_small_patch8_448": _plain(448, 8, 384, 12, 6, 7),
    "test_cst_vit": _plain(32, 4, 96, 6, 3, 4),
    #                           size  heads          dims                 depths         slice
    "cst_vil_small": _pyramid(224, (3, 3, 6, 12), (96, 192, 384, 768), (1, 2, 8, 1), 7),
    "cst_vil_medium": _pyramid(224, (3, 3, 6, 12), (96, 192, 384, 768), (1, 4, 16, 1), 7),
    "test_cst_vil": _pyramid(32, (1, 2, 3, 4), (32, 64, 96, 128), (1, 1, 2, 1), 2),
}

default_cfgs = generate_default_cfgs(
    {
        f"{name}.untrained": default_cfg(
            spec.img_size, stride=prod(s.embed.stride for s in spec.stages), crop_pct=0.9
        )
        for name, spec in VARIANTS.items()
    }
)


def _create(variant: str, pretrained: bool, **kwargs: Any) -> StagedTransformer:
    options = {f.name: kwargs.pop(f.name) for f in fields(CompositeSlice) if f.name in kwargs}
    spec = change_attention(VARIANTS[variant], CompositeSlice, **options)
    if "pos_embed" in options:
        absolute = any(_is_absolute(stage.attention) for stage in spec.stages)
        bottom = replace(spec.stages[0].embed, position="grid" if absolute else None)
        first = replace(spec.stages[0], embed=bottom)
        spec = replace(spec, stages=(first, *spec.stages[1:]))
    return create(variant, spec, pretrained, **kwargs)


def _is_absolute(attention: Options) -> bool:
    return isinstance(attention, CompositeSlice) and attention.pos_embed == "absolute"


@register_model
def cst_vit_tiny_patch16_224(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Tiny/16 for 224 x 224 pixels."""
    return _create("cst_vit_tiny_patch16_224", pretrained, **kwargs)


@register_model
def cst_vit_tiny_patch16_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Tiny/16 for 384 x 384 pixels."""
    return _create("cst_vit_tiny_patch16_384", pretrained, **kwargs)


@register_model
def cst_vit_tiny_patch16_448(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Tiny/16 for 448 x 448 pixels."""
    return _create("cst_vit_tiny_patch16_448", pretrained, **kwargs)


@register_model
def cst_vit_small_patch16_224(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Small/16 for 224 x 224 pixels."""
    return _create("cst_vit_small_patch16_224", pretrained, **kwargs)


@register_model
def cst_vit_small_patch16_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Small/16 for 384 x 384 pixels."""
    return _create("cst_vit_small_patch16_384", pretrained, **kwargs)


@register_model
def cst_vit_small_patch16_448(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Small/16 for 448 x 448 pixels."""
    return _create("cst_vit_small_patch16_448", pretrained, **kwargs)


@register_model
def cst_vit_base_patch16_224(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Base/16 for 224 x 224 pixels."""
    return _create("cst_vit_base_patch16_224", pretrained, **kwargs)


@register_model
def cst_vit_base_patch16_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Base/16 for 384 x 384 pixels."""
    return _create("cst_vit_base_patch16_384", pretrained, **kwargs)


@register_model
def cst_vit_base_patch16_448(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Base/16 for 448 x 448 pixels."""
    return _create("cst_vit_base_patch16_448", pretrained, **kwargs)


@register_model
def cst_vit_small_patch8_224(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Small/8 for 224 x 224 pixels."""
    return _create("cst_vit_small_patch8_224", pretrained, **kwargs)


@register_model
def cst_vit_small_patch8_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Small/8 for 384 x 384 pixels."""
    return _create("cst_vit_small_patch8_384", pretrained, **kwargs)


@register_model
def cst_vit_small_patch8_448(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViT-Small/8 for 448 x 448 pixels."""
    return _create("cst_vit_small_patch8_448", pretrained, **kwargs)


@register_model
def cst_vil_small(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViL-Small: dims 96 to 768, 12 blocks."""
    return _create("cst_vil_small", pretrained, **kwargs)


@register_model
def cst_vil_medium(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CST-ViL-Medium: dims 96 to 768, 22 blocks."""
    return _create("cst_vil_medium", pretrained, **kwargs)


@register_model
def test_cst_vit(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """A small CST-ViT for tests and demos, at 32 x 32 pixels."""
    return _create("test_cst_vit", pretrained, **kwargs)


@register_model
def test_cst_vil(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """A small CST-ViL for tests and demos, at 32 x 32 pixels."""
    return _create("test_cst_vil", pretrained, **kwargs)
