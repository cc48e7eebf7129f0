"""CvT as Microsoft released it: the convolutional vision transformer (arXiv:2103.15808).

Three stages of full attention whose queries, keys and values come from convolutions, those of keys
and values with stride 2. Here attention has a scale of head_dim^-0.5, where the released code has
dim^-0.5: the difference goes into the queries' weights when a file is loaded.

An image whose sides are 0 or 3 modulo 4 gives a first map of the sides divided by 4 and rounded up,
as everywhere in this package. At 1 or 2 modulo 4 it has one row or column less, as in the released
code, which does not pad for the stride: floor((side + 1) / 4), from 3 pixels on.

The released weights load by name, or from a file with Microsoft's or Hugging Face's names:

    timm.create_model("cvt_13.msft_in1k", pretrained=True)
    timm.create_model("cvt_13", pretrained=True, pretrained_cfg_overlay=dict(file="CvT-13.pth"))

The stride makes CvT-13 a model of 4.5 GFLOPs. The baseline that arXiv:2107.02192 compares CvT-LS
with has none, and 6.7: that is `cvt_ls_13(attention="full")`.

Differs from the released code in training alone: drop path rises over all blocks, where there it
rises in the last stage and is 0 before.
"""

from dataclasses import replace
from typing import Any

from timm.models import generate_default_cfgs, register_model

from vit_ls.attention import Convolutions, Full
from vit_ls.blocks import Activation, Embed, StageSpec
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.factory import create, default_cfg
from vit_ls.models.spec import BackboneSpec

__all__ = ["cvt_13", "cvt_13_384", "cvt_21", "cvt_21_384", "cvt_w24_384", "test_cvt"]


def _spec(
    img_size: int,
    dims: tuple[int, int, int],
    heads: tuple[int, int, int],
    depths: tuple[int, int, int],
) -> BackboneSpec:
    embeds = (Embed(7, 4, 2, cut=True), Embed(3, 2, 1), Embed(3, 2, 1))
    global_tokens = (0, 0, 1)
    return BackboneSpec(
        stages=tuple(
            StageSpec(embed, h, d, n, Full(), g)
            for embed, d, h, n, g in zip(embeds, dims, heads, depths, global_tokens, strict=True)
        ),
        img_size=img_size,
        global_pool="token",
        conv_projection=Convolutions(kv_stride=2, depthwise_bias=False),
        activation="quick_gelu",
        norm_eps=1e-5,
        released="cvt",
    )


VARIANTS = {
    #                    size  dims              heads        depths
    "cvt_13": _spec(224, (64, 192, 384), (1, 3, 6), (1, 2, 10)),
    "cvt_21": _spec(224, (64, 192, 384), (1, 3, 6), (1, 4, 16)),
    "cvt_13_384": _spec(384, (64, 192, 384), (1, 3, 6), (1, 2, 10)),
    "cvt_21_384": _spec(384, (64, 192, 384), (1, 3, 6), (1, 4, 16)),
    "cvt_w24_384": _spec(384, (192, 768, 1024), (3, 12, 16), (2, 2, 20)),
    "test_cvt": _spec(32, (32, 64, 128), (1, 2, 4), (1, 1, 2)),
}


def _cfg(img_size: int, hub_id: str | None = None) -> dict[str, Any]:
    """As the released models were evaluated: at 384 the whole image, whatever its aspect."""
    crop = {"crop_pct": 0.875} if img_size < 384 else {"crop_pct": 1.0, "crop_mode": "squash"}
    released: dict[str, Any] = {}
    if hub_id is not None:
        released = {
            "hf_hub_id": hub_id,
            "license": "apache-2.0",
            "origin_url": "https://github.com/microsoft/CvT",
            "paper_ids": "arXiv:2103.15808",
        }
    return default_cfg(img_size, stride=16, **crop, **released)


default_cfgs = generate_default_cfgs(
    {
        "cvt_13.msft_in1k": _cfg(224, "microsoft/cvt-13"),
        "cvt_21.msft_in1k": _cfg(224, "microsoft/cvt-21"),
        "cvt_13_384.msft_in22k_ft_in1k": _cfg(384, "microsoft/cvt-13-384-22k"),
        "cvt_13_384.msft_in1k": _cfg(384, "microsoft/cvt-13-384"),
        "cvt_21_384.msft_in22k_ft_in1k": _cfg(384, "microsoft/cvt-21-384-22k"),
        "cvt_21_384.msft_in1k": _cfg(384, "microsoft/cvt-21-384"),
        "cvt_w24_384.msft_in22k_ft_in1k": _cfg(384, "microsoft/cvt-w24-384-22k"),
        "test_cvt.untrained": _cfg(32),
    }
)


def _create(
    variant: str, pretrained: bool, *, activation: Activation | None = None, **kwargs: Any
) -> StagedTransformer:
    """Build a variant.

    `activation="gelu"` gives what transformers computes from the same weights. They were trained,
    and their published accuracies measured, with the quick_gelu that is the default.
    """
    spec = VARIANTS[variant]
    if activation is not None:
        spec = replace(spec, activation=activation)
    return create(variant, spec, pretrained, **kwargs)


@register_model
def cvt_13(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-13."""
    return _create("cvt_13", pretrained, **kwargs)


@register_model
def cvt_21(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-21."""
    return _create("cvt_21", pretrained, **kwargs)


@register_model
def cvt_13_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-13 for 384 x 384 pixels: the same architecture, other weights."""
    return _create("cvt_13_384", pretrained, **kwargs)


@register_model
def cvt_21_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-21 for 384 x 384 pixels: the same architecture, other weights."""
    return _create("cvt_21_384", pretrained, **kwargs)


@register_model
def cvt_w24_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-W24, wide, for 384 x 384 pixels."""
    return _create("cvt_w24_384", pretrained, **kwargs)


@register_model
def test_cvt(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """A small CvT for tests and demos, at 32 x 32 pixels."""
    return _create("test_cvt", pretrained, **kwargs)
