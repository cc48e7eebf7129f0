"""ViL-LS: Vision Longformer's layout with long-short attention (arXiv:2107.02192, tables 4 and 5).

Two stages of long-short attention, then two of full attention, all with a relative position bias.
The released weights of `vil_ls_medium`, `vil_ls_base` and `vil_ls_medium_384` load through timm:

    timm.create_model("vil_ls_medium", pretrained=True,
    pretrained_cfg_overlay=dict(file="model_best.pth"))
"""

from dataclasses import replace
from typing import Any, Literal

from timm.models import generate_default_cfgs, register_model

from vit_ls.attention import Full, LongShort
from vit_ls.blocks import Embed, StageSpec
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.factory import change_attention, create, default_cfg
from vit_ls.models.spec import BackboneSpec

__all__ = [
    "test_vil_ls",
    "vil_ls_base",
    "vil_ls_base_384",
    "vil_ls_medium",
    "vil_ls_medium_384",
    "vil_ls_small",
    "vil_ls_tiny",
]


def _spec(
    img_size: int,
    heads: tuple[int, ...],
    dims: tuple[int, ...],
    depths: tuple[int, ...],
    window: int,
    rank: int = 8,
) -> BackboneSpec:
    long_short = LongShort(window, rank, position_table=True)
    full = Full(position_table=True)
    attentions = (long_short, long_short, full, full)
    strides = (4, 2, 2, 2)
    global_tokens = (1, 1, 1, 0)
    return BackboneSpec(
        stages=tuple(
            StageSpec(Embed(p, p), h, d, n, attention, g)
            for p, h, d, n, attention, g in zip(
                strides, heads, dims, depths, attentions, global_tokens, strict=True
            )
        ),
        img_size=img_size,
    )


VARIANTS = {
    #                          size  heads          dims                 depths         window
    "vil_ls_tiny": _spec(224, (1, 3, 3, 6), (48, 96, 192, 384), (1, 2, 8, 1), 7),
    "vil_ls_small": _spec(224, (3, 3, 6, 12), (96, 192, 384, 768), (1, 2, 8, 1), 7),
    "vil_ls_medium": _spec(224, (3, 3, 6, 12), (96, 192, 384, 768), (1, 4, 16, 1), 7),
    "vil_ls_base": _spec(224, (3, 3, 6, 12), (96, 192, 384, 768), (1, 8, 24, 1), 7),
    "vil_ls_medium_384": _spec(384, (3, 3, 6, 12), (96, 192, 384, 768), (1, 4, 16, 1), 8),
    "vil_ls_base_384": _spec(384, (3, 3, 6, 12), (96, 192, 384, 768), (1, 8, 24, 1), 8),
    "test_vil_ls": _spec(32, (1, 2, 3, 4), (32, 64, 96, 128), (1, 1, 2, 1), 4, rank=4),
}

default_cfgs = generate_default_cfgs(
    {
        "vil_ls_tiny.untrained": default_cfg(224),
        "vil_ls_small.untrained": default_cfg(224),
        "vil_ls_medium.in1k": default_cfg(
            224, url="https://www.dropbox.com/s/ng14pebstaaydug/model_best.pth?dl=1"
        ),
        "vil_ls_base.in1k": default_cfg(
            224, url="https://www.dropbox.com/s/80u5p5eh4txad10/model_best.pth?dl=1"
        ),
        "vil_ls_medium_384.in1k": default_cfg(
            384, url="https://www.dropbox.com/s/390tzi2ll3sfibl/model_best.pth?dl=1"
        ),
        "vil_ls_base_384.untrained": default_cfg(384),
        "test_vil_ls.untrained": default_cfg(32),
    }
)


def _create(
    variant: str,
    pretrained: bool,
    *,
    attention: Literal["long_short"] | None = None,
    **kwargs: Any,
) -> StagedTransformer:
    """Build a variant.

    `attention="long_short"` gives the last two stages the attention of the first, which makes the
    whole model linear in the area of the image; weights of the variant fit all but those stages.
    `rank=0, dual_ln=False` leaves windows and global tokens alone. Vision Longformer's windows see
    further: `vit_ls.models.vil`.
    """
    if attention not in (None, "long_short"):
        raise ValueError(f"attention must be 'long_short' where it is given, got {attention!r}.")
    spec = VARIANTS[variant]
    if attention == "long_short":
        first = spec.stages[0].attention
        spec = replace(spec, stages=tuple(replace(s, attention=first) for s in spec.stages))
    options = {name: kwargs.pop(name, None) for name in ("window", "rank", "dual_ln")}
    spec = change_attention(spec, LongShort, **options)
    return create(variant, spec, pretrained, **kwargs)


@register_model
def vil_ls_tiny(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-LS-Tiny: dims 48 to 384, 12 blocks."""
    return _create("vil_ls_tiny", pretrained, **kwargs)


@register_model
def vil_ls_small(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-LS-Small: dims 96 to 768, 12 blocks."""
    return _create("vil_ls_small", pretrained, **kwargs)


@register_model
def vil_ls_medium(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-LS-Medium: dims 96 to 768, 22 blocks."""
    return _create("vil_ls_medium", pretrained, **kwargs)


@register_model
def vil_ls_base(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-LS-Base: dims 96 to 768, 34 blocks."""
    return _create("vil_ls_base", pretrained, **kwargs)


@register_model
def vil_ls_medium_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-LS-Medium with windows and position tables for 384 x 384 pixels."""
    return _create("vil_ls_medium_384", pretrained, **kwargs)


@register_model
def vil_ls_base_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-LS-Base with windows and position tables for 384 x 384 pixels."""
    return _create("vil_ls_base_384", pretrained, **kwargs)


@register_model
def test_vil_ls(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """A small ViL-LS for tests and demos, at 32 x 32 pixels."""
    return _create("test_vil_ls", pretrained, **kwargs)
