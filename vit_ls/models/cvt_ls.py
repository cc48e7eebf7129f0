"""CvT-LS: the convolutional vision transformer with long-short attention (arXiv:2107.02192).

Tables 5 and 12 of the paper, of whose code this part alone was not released. The architecture is
the one that has the parameters and FLOPs that the paper prints. Differs from the paper where it
contradicts itself: appendix E's last dim 768 is 384, CvT-LS-21S has the parameters of its depths
(30.8 M, not 30.1 M), and at 448 the rank of the text is taken (`tests/models/test_cvt_ls.py`).

There is no position encoding, so one set of weights runs at any image size. Weights move between
resolutions that share the rank; 448 has another, and there the last layer of each dynamic
projection starts anew (a warning names them).
"""

from dataclasses import replace
from typing import Any, Literal

from timm.models import generate_default_cfgs, register_model

from vit_ls.attention import Convolutions, Full, LongShort
from vit_ls.blocks import Embed, StageSpec
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.factory import change_attention, create, default_cfg
from vit_ls.models.spec import BackboneSpec

__all__ = [
    "cvt_ls_13",
    "cvt_ls_13_384",
    "cvt_ls_17",
    "cvt_ls_21",
    "cvt_ls_21_384",
    "cvt_ls_21_448",
    "cvt_ls_21s",
    "test_cvt_ls",
]


def _spec(
    img_size: int,
    dims: tuple[int, int, int],
    heads: tuple[int, int, int],
    depths: tuple[int, int, int],
    ranks: tuple[int, int, int],
    windows: tuple[int, int, int],
) -> BackboneSpec:
    embeds = (Embed(7, 4, 2), Embed(3, 2, 1), Embed(3, 2, 1))
    global_tokens = (0, 0, 1)
    return BackboneSpec(
        stages=tuple(
            StageSpec(embed, h, d, n, LongShort(w, r), g)
            for embed, d, h, n, r, w, g in zip(
                embeds, dims, heads, depths, ranks, windows, global_tokens, strict=True
            )
        ),
        img_size=img_size,
        global_pool="token",
        conv_projection=Convolutions(),
        norm_eps=1e-5,
    )


VARIANTS = {
    #                      size  dims           heads      depths      ranks        windows
    "cvt_ls_13": _spec(224, (64, 192, 384), (1, 3, 6), (1, 2, 10), (64, 16, 4), (8, 4, 2)),
    "cvt_ls_17": _spec(224, (128, 256, 384), (2, 4, 6), (3, 4, 10), (64, 16, 4), (8, 4, 2)),
    "cvt_ls_21": _spec(224, (64, 192, 384), (1, 3, 6), (1, 4, 16), (64, 16, 4), (8, 4, 2)),
    "cvt_ls_21s": _spec(224, (128, 256, 384), (2, 4, 6), (3, 4, 14), (64, 16, 4), (8, 4, 2)),
    "cvt_ls_13_384": _spec(384, (64, 192, 384), (1, 3, 6), (1, 2, 10), (64, 16, 4), (12, 6, 3)),
    "cvt_ls_21_384": _spec(384, (64, 192, 384), (1, 3, 6), (1, 4, 16), (64, 16, 4), (12, 6, 3)),
    "cvt_ls_21_448": _spec(448, (64, 192, 384), (1, 3, 6), (1, 4, 16), (128, 32, 8), (16, 8, 4)),
    "test_cvt_ls": _spec(32, (32, 64, 128), (1, 2, 4), (1, 1, 2), (8, 4, 4), (4, 2, 2)),
}


def _with_full_attention(spec: BackboneSpec) -> BackboneSpec:
    return replace(spec, stages=tuple(replace(stage, attention=Full()) for stage in spec.stages))


default_cfgs = generate_default_cfgs(
    {f"{name}.untrained": default_cfg(spec.img_size, stride=16) for name, spec in VARIANTS.items()}
)


def _create(
    variant: str,
    pretrained: bool,
    *,
    attention: Literal["long_short", "full"] | None = None,
    **kwargs: Any,
) -> StagedTransformer:
    """Build a variant.

    `dual_ln=False` leaves the layer norms of keys and values out, the paper's ablation on images.
    `rank=0`, the window alone, is none that it prints, and `window=0`, the projection alone, one
    that it prints of the Long Range Arena. `attention="full"` is the baseline, a CvT whose keys and
    values have no stride (`vit_ls.models.cvt` has Microsoft's).
    """
    if attention not in (None, "long_short", "full"):
        raise ValueError(f"attention must be 'long_short' or 'full', got {attention!r}.")
    options = {name: kwargs.pop(name, None) for name in ("window", "rank", "dual_ln")}
    spec = change_attention(VARIANTS[variant], LongShort, **options)
    if attention == "full":
        spec = _with_full_attention(spec)
    return create(variant, spec, pretrained, **kwargs)


@register_model
def cvt_ls_13(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-LS-13: CvT-13 with long-short attention."""
    return _create("cvt_ls_13", pretrained, **kwargs)


@register_model
def cvt_ls_17(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-LS-17: wider, 17 blocks."""
    return _create("cvt_ls_17", pretrained, **kwargs)


@register_model
def cvt_ls_21(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-LS-21: CvT-21 with long-short attention."""
    return _create("cvt_ls_21", pretrained, **kwargs)


@register_model
def cvt_ls_21s(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-LS-21S: wider, 21 blocks."""
    return _create("cvt_ls_21s", pretrained, **kwargs)


@register_model
def cvt_ls_13_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-LS-13 with the windows of 384 x 384 pixels."""
    return _create("cvt_ls_13_384", pretrained, **kwargs)


@register_model
def cvt_ls_21_384(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-LS-21 with the windows of 384 x 384 pixels."""
    return _create("cvt_ls_21_384", pretrained, **kwargs)


@register_model
def cvt_ls_21_448(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """CvT-LS-21 with the windows and ranks of 448 x 448 pixels."""
    return _create("cvt_ls_21_448", pretrained, **kwargs)


@register_model
def test_cvt_ls(pretrained: bool = False, **kwargs: Any) -> StagedTransformer:
    """A small CvT-LS for tests and demos, at 32 x 32 pixels."""
    return _create("test_cvt_ls", pretrained, **kwargs)
