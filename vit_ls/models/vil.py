"""ViL as Microsoft released it: Vision Longformer (arXiv:2103.15358).

The layout of `vit_ls.models.vil_ls`, whose attention it is with other options: in the two stages
with windows each token sees its window, the eight windows around it and the global tokens, which
see all keys and values themselves; there is no projection. Positions are biases ("relative") or
embeddings of rows and columns ("absolute"); the tag of released weights says which:

    timm.create_model("vil_small.msft_in1k", pretrained=True)
    timm.create_model("vil_small.msft_abs_in1k", pretrained=True)
    timm.create_model("vil_small", position="absolute")

The released weights load through timm from a file too. Differs from the released code: an absolute
model's embedding of a global token is added to the token on loading, and is no parameter; there is
no training by random shifts, in which a token sees its window and one of the eight.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from timm.models import PretrainedCfg, generate_default_cfgs, register_model

from vit_ls.attention import Full, LongShort
from vit_ls.blocks import Embed, StageSpec
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.factory import change_attention, create, default_cfg
from vit_ls.models.spec import BackboneSpec

__all__ = [
    "test_vil",
    "vil_base",
    "vil_base_384",
    "vil_base_wide",
    "vil_base_wide_384",
    "vil_medium",
    "vil_medium_384",
    "vil_medium_wide",
    "vil_medium_wide_384",
    "vil_small",
    "vil_tiny",
]

Position = Literal["relative", "absolute"]


def _spec(
    img_size: int,
    position: Position,
    heads: tuple[int, ...],
    dims: tuple[int, ...],
    depths: tuple[int, ...],
    windows: tuple[int, int],
) -> BackboneSpec:
    attentions = (
        *(LongShort(w, 0, False, whole_halo=True, tokens_read="keys") for w in windows),
        *(Full(), Full()),
    )
    strides = (4, 2, 2, 2)
    global_tokens = (1, 1, 1, 0)
    spec = BackboneSpec(
        stages=tuple(
            StageSpec(Embed(p, p), h, d, n, attention, g)
            for p, h, d, n, attention, g in zip(
                strides, heads, dims, depths, attentions, global_tokens, strict=True
            )
        ),
        img_size=img_size,
        released="vil",
    )
    return _with_position(spec, position)


def _with_position(spec: BackboneSpec, position: Position) -> BackboneSpec:
    relative = position == "relative"
    stages = []
    for stage in spec.stages:
        attention: LongShort | Full = Full(relative)
        if isinstance(stage.attention, LongShort):
            attention = replace(stage.attention, position_table=relative, token_bias=relative)
        embed = replace(stage.embed, position=None if relative else "axes")
        stages.append(replace(stage, embed=embed, attention=attention))
    return replace(spec, stages=tuple(stages))


_REL: Position = "relative"
_ABS: Position = "absolute"  # the wide models were released with no other
_NARROW = (3, 3, 6, 12), (96, 192, 384, 768)
_WIDE_MEDIUM = (3, 6, 8, 12), (192, 384, 512, 768)
_WIDE_BASE = (3, 6, 12, 16), (192, 384, 768, 1024)

VARIANTS = {
    #                    size  position  heads and dims                         depths       windows
    "vil_tiny": _spec(224, _REL, (1, 3, 3, 6), (48, 96, 192, 384), (1, 1, 9, 1), (7, 7)),
    "vil_small": _spec(224, _REL, *_NARROW, (1, 2, 8, 1), (7, 7)),
    "vil_medium": _spec(224, _REL, *_NARROW, (1, 4, 16, 1), (7, 7)),
    "vil_base": _spec(224, _REL, *_NARROW, (1, 8, 24, 1), (7, 7)),
    "vil_medium_wide": _spec(224, _ABS, *_WIDE_MEDIUM, (1, 2, 8, 1), (7, 7)),
    "vil_base_wide": _spec(224, _ABS, *_WIDE_BASE, (1, 2, 8, 1), (7, 7)),
    "vil_medium_384": _spec(384, _REL, *_NARROW, (1, 4, 16, 1), (7, 7)),
    "vil_base_384": _spec(384, _REL, *_NARROW, (1, 8, 24, 1), (6, 8)),
    "vil_medium_wide_384": _spec(384, _ABS, *_WIDE_MEDIUM, (1, 2, 8, 1), (8, 12)),
    "vil_base_wide_384": _spec(384, _ABS, *_WIDE_BASE, (1, 2, 8, 1), (8, 8)),
    "test_vil": _spec(32, _REL, (1, 2, 3, 4), (32, 64, 96, 128), (1, 1, 2, 1), (4, 4)),
}
"""The windows at 384 are those of the published evaluation commands, which exist for the absolute
models; a relative model's file shows its own, and `window=` takes it."""

_STORE = "https://penzhanwu2.blob.core.windows.net/imagenet/msvit"
_IN22K = "IN384_IN22kpretrained/msvit"


def _cfg(img_size: int, folder: str | None = None) -> dict[str, Any]:
    """As the released models were evaluated."""
    crop_pct = 0.875 if img_size < 384 else 0.922
    released: dict[str, Any] = {}
    if folder is not None:
        released = {
            "url": f"{_STORE}/{folder}/model_best.pth",
            "origin_url": "https://github.com/microsoft/vision-longformer",
            "paper_ids": "arXiv:2103.15358",
        }
    return default_cfg(img_size, crop_pct=crop_pct, **released)


default_cfgs = generate_default_cfgs(
    {
        "vil_tiny.msft_in1k": _cfg(
            224, "visionlongformer/longtiny1191_ape0_exact0_nglo1_mode1_swith075"
        ),
        "vil_tiny.msft_abs_in1k": _cfg(224, "visionlongformer/msvit_tiny_longformersw_1191_train"),
        "vil_small.msft_in1k": _cfg(224, "visionlongformer/small1281_relative"),
        "vil_small.msft_abs_in1k": _cfg(
            224, "visionlongformer/msvit_small_longformersw_1281_train"
        ),
        "vil_medium.msft_in1k": _cfg(
            224, "visionlongformer/longdeepmedium_ape0_exact0_mode1_switch075"
        ),
        "vil_medium.msft_abs_in1k": _cfg(224, "visionlongformer/deepmedium_14161_lr8e-4"),
        "vil_base.untrained": _cfg(224),
        "vil_medium_wide.msft_abs_in1k": _cfg(224, "visionlongformer/wide_medium_1281"),
        "vil_base_wide.untrained": _cfg(224),
        "vil_medium_384.msft_in22k_ft_in1k": _cfg(
            384, f"{_IN22K}deepmedium_imagenet384_finetune_bsz256_lr001_wd1e-7_ape0"
        ),
        "vil_medium_384.msft_abs_in22k_ft_in1k": _cfg(
            384, f"{_IN22K}deepmedium_imagenet384_finetune_bsz256_lr001_wd0"
        ),
        "vil_base_384.msft_in22k_ft_in1k": _cfg(
            384, f"{_IN22K}deepbase_imagenet384_finetune_bsz320_lr0015_wd0_ape0"
        ),
        "vil_base_384.msft_abs_in22k_ft_in1k": _cfg(
            384, f"{_IN22K}deepbase_imagenet384_finetune_bsz640_lr003_wd0"
        ),
        "vil_medium_wide_384.msft_abs_in22k_ft_in1k": _cfg(
            384, f"{_IN22K}widemedium_imagenet384_finetune_bsz512_lr004_wd0"
        ),
        "vil_base_wide_384.msft_abs_in22k_ft_in1k": _cfg(
            384, f"{_IN22K}widebase_imagenet384_finetune_bsz768_lr001_wd1e-7"
        ),
        "test_vil.untrained": _cfg(32),
    }
)


def _create(
    variant: str,
    pretrained: bool,
    *,
    position: Position | None = None,
    window: int | Sequence[int] | None = None,
    **kwargs: Any,
) -> StagedTransformer:
    """Build a variant.

    `position` is that of the tag, or else the variant's own; `window` is one for both stages with
    windows, or one for each.
    """
    if position not in (None, "relative", "absolute"):
        raise ValueError(f"position must be 'relative' or 'absolute', got {position!r}.")
    spec = change_attention(VARIANTS[variant], LongShort, window=window)
    if position is None and "_abs_" in _tag(kwargs.get("pretrained_cfg")):
        position = "absolute"
    if position is not None:
        spec = _with_position(spec, position)
    return create(variant, spec, pretrained, **kwargs)


def _tag(cfg: str | dict[str, Any] | PretrainedCfg | None) -> str:
    """The tag in what timm hands on of a model's name or of a saved model's config."""
    if isinstance(cfg, dict):
        cfg = cfg.get("tag")
    return (cfg.tag if isinstance(cfg, PretrainedCfg) else cfg) or ""


@register_model
def vil_tiny(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Tiny: dims 48 to 384, 12 blocks."""
    return _create("vil_tiny", pretrained, **kwargs)


@register_model
def vil_small(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Small: dims 96 to 768, 12 blocks."""
    return _create("vil_small", pretrained, **kwargs)


@register_model
def vil_medium(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Medium-Deep: dims 96 to 768, 22 blocks."""
    return _create("vil_medium", pretrained, **kwargs)


@register_model
def vil_base(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Base-Deep: dims 96 to 768, 34 blocks."""
    return _create("vil_base", pretrained, **kwargs)


@register_model
def vil_medium_wide(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Medium-Wide: dims 192 to 768, 12 blocks."""
    return _create("vil_medium_wide", pretrained, **kwargs)


@register_model
def vil_base_wide(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Base-Wide: dims 192 to 1024, 12 blocks."""
    return _create("vil_base_wide", pretrained, **kwargs)


@register_model
def vil_medium_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Medium-Deep for 384 x 384 pixels."""
    return _create("vil_medium_384", pretrained, **kwargs)


@register_model
def vil_base_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Base-Deep for 384 x 384 pixels."""
    return _create("vil_base_384", pretrained, **kwargs)


@register_model
def vil_medium_wide_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Medium-Wide for 384 x 384 pixels."""
    return _create("vil_medium_wide_384", pretrained, **kwargs)


@register_model
def vil_base_wide_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """ViL-Base-Wide for 384 x 384 pixels."""
    return _create("vil_base_wide_384", pretrained, **kwargs)


@register_model
def test_vil(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """A small ViL for tests and demos, at 32 x 32 pixels."""
    return _create("test_vil", pretrained, **kwargs)
