"""Numbers that the papers print, as rows: what tests and reports compare with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One model of a table. None where the paper prints nothing, or what it prints is another's."""

    printed: str
    """Its name in the paper."""
    model: str | None
    """timm's name, with a tag where the accuracies are of released weights; None: timm has none."""
    img_size: int
    """Side of the square images, in pixels."""
    params: float | None = None
    """In millions."""
    flops: float | None = None
    """In billions, a multiply-add counted once."""
    top1: float | None = None
    """ImageNet-1K validation, percent."""
    real: float | None = None
    """Top-1 with ReaL labels, percent."""
    v2: float | None = None
    """Top-1 on ImageNet-V2, percent."""
    latency: float | None = None
    """Seconds for a batch of 32 on one V100."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that make the model of its name."""

    @property
    def title(self) -> str:
        """The call that makes the model, or its name in the paper where timm has none."""
        return self.printed if self.model is None else named(self.model, self.options)


def named(model: str, options: Mapping[str, object]) -> str:
    """A model with its options, such as cvt_ls_13(attention="full")."""
    inside = ", ".join(f"{key}={json.dumps(value, default=str)}" for key, value in options.items())
    return f"{model}({inside})" if inside else model


_FULL = {"attention": "full"}

LONG_SHORT_TABLE_5 = (
    Row("ResNet-50", "resnet50.tv_in1k", 224, 25, 4.1, 76.2, 82.5, 63.3),
    Row("ResNet-101", "resnet101.tv_in1k", 224, 45, 7.9, 77.4, 83.7, 65.7),
    Row("ResNet-152", "resnet152.tv_in1k", 224, 60, 11, 78.3, 84.1, 67.0),
    Row("DeiT-S", "deit_small_patch16_224.fb_in1k", 224, 22, 4.6, 79.8, 85.7, 68.5),
    Row("DeiT-B", "deit_base_patch16_224.fb_in1k", 224, 86, 17.6, 81.8, 86.7, 70.9),
    Row("PVT-Medium", None, 224, 44, 6.7, 81.2),
    Row("PVT-Large", None, 224, 61, 9.8, 81.7),
    Row("Swin-S", "swin_small_patch4_window7_224.ms_in1k", 224, 50, 8.7, 83.2),
    Row("Swin-B", "swin_base_patch4_window7_224.ms_in1k", 224, 88, 15.4, 83.5, latency=0.115),
    Row("PVTv2-B4", "pvt_v2_b4.in1k", 224, 62.6, 10.1, 83.6),
    Row("PVTv2-B5", "pvt_v2_b5.in1k", 224, 82.0, 11.8, 83.8),
    Row("ViT-B/16", None, 384, 86, 55.5, 77.9),
    Row("ViT-L/16", None, 384, 307, 191.1, 76.5),
    Row("DeiT-B", "deit_base_patch16_384.fb_in1k", 384, 86, 55.5, 83.1),
    Row("Swin-B", "swin_base_patch4_window12_384.ms_in1k", 384, 88, 47.1, 84.5, latency=0.378),
    Row("CvT-13", "cvt_13.msft_in1k", 224, 20, None, 81.6, 86.7, 70.4),
    Row("CvT-13", "cvt_ls_13", 224, 20, 6.7, latency=0.122, options=_FULL),
    Row("CvT-21", "cvt_21.msft_in1k", 224, 32, None, 82.5, 87.2, 71.3),
    Row("CvT-21", "cvt_ls_21", 224, 32, 10.1, latency=0.165, options=_FULL),
    Row("CvT*-LS-13", "cvt_ls_13", 224, 20.3, 4.9, 81.9, 87.0, 70.5, 0.083),
    Row("CvT*-LS-17", "cvt_ls_17", 224, 23.7, 9.8, 82.5, 87.2, 71.6),
    Row("CvT*-LS-21", "cvt_ls_21", 224, 32.1, 7.9, 82.7, 87.5, 71.9, 0.122),
    Row("CvT*-LS-21S", "cvt_ls_21s", 224, 30.1, 11.3, 82.9, 87.4, 71.7),
    Row("CvT-13", "cvt_13_384.msft_in1k", 384, 20, None, 83.0, 87.9, 71.9),
    Row("CvT-13", "cvt_ls_13", 384, 20, 31.9, options=_FULL),
    Row("CvT-21", "cvt_21_384.msft_in1k", 384, 32, None, 83.3, 87.7, 71.9),
    Row("CvT-21", "cvt_ls_21", 384, 32, 45.0, options=_FULL),
    Row("CvT*-LS-21", "cvt_ls_21_384", 384, 32.1, 23.9, 83.2, 88.0, 72.5),
    Row("CvT*-LS-21", "cvt_ls_21_448", 448, 32.1, 34.2, 83.6, 88.2, 72.9),
    Row("ViL-Small", "vil_small", 224, 24.6, 4.9, 82.4),
    Row("ViL-Medium", "vil_medium", 224, 39.7, 8.7, 83.5, latency=0.106),
    Row("ViL-Base", "vil_base", 224, 55.7, 13.4, 83.7, latency=0.164),
    Row("ViL-LS-Medium", "vil_ls_medium", 224, 39.8, 8.7, 83.8, latency=0.075),
    Row("ViL-LS-Base", "vil_ls_base", 224, 55.8, 13.4, 84.1, latency=0.113),
    Row("ViL-LS-Medium", "vil_ls_medium_384", 384, 39.9, 28.7, 84.4, latency=0.271),
)
"""Table 5 of the Long-Short Transformer (arXiv:2107.02192), in its order.

Each of its CvT rows holds numbers of two models and is two rows here. Appendix E says that the
authors' own CvT, with full attention and keys of stride 1, tested worse than Wu et al.'s, and that
the accuracies listed are Wu et al.'s best: those of Microsoft's models. FLOPs and latencies are of
the authors' own. The appendix does not say whose ReaL and V2 are; they stand with the accuracy.

timm has no PVT, and its weights of ViT at 384 are others than those of 77.9 and 76.5. The FLOPs of
ViL fit windows of 15 x 15 keys, where ViL computes 21 x 21, and its parameters are those of ViL's
absolute form.
"""

LONG_SHORT_TEXT = (
    Row("CvT-13, the authors' own", "cvt_ls_13", 224, top1=81.1, options=_FULL),
    Row("CvT*-LS-13 without DualLN", "cvt_ls_13", 224, top1=81.3, options={"dual_ln": False}),
)
"""Accuracies that its text gives and no table: the first in section 4.3."""


@dataclass(frozen=True)
class RobustnessRow:
    """One row of table 6, percent. None where the paper prints nothing."""

    printed: str
    """Its name in the paper."""
    model: str
    """timm's name, with the tag of released weights."""
    mce: float
    """On ImageNet-C."""
    a: float
    """Top-1 on ImageNet-A."""
    r: float
    """Top-1 on ImageNet-R."""
    in9_original: float | None
    """Top-1 on ImageNet-9; of table 14."""
    in9_same: float
    """The same with mixed-same backgrounds."""
    in9_rand: float
    """The same with mixed-rand backgrounds."""
    doubt: str = ""
    """How sure it is that the row is of these weights, where the paper does not say so."""


_MICROSOFT = "most likely of these weights, whose top-1 the row has"
_ANOTHER = "perhaps of other weights: torchvision's have 0.0 on ImageNet-A"

LONG_SHORT_TABLE_6 = (
    RobustnessRow("ResNet-50", "resnet50.tv_in1k", 78.9, 6.2, 35.3, 94.9, 87.1, 81.6, _ANOTHER),
    RobustnessRow("DeiT-S", "deit_small_patch16_224.fb_in1k", 57.1, 19.0, 41.9, 97.1, 89.1, 84.2),
    RobustnessRow("CvT-13", "cvt_13.msft_in1k", 59.6, 25.4, 42.9, None, 90.5, 85.7, _MICROSOFT),
    RobustnessRow("CvT-21", "cvt_21.msft_in1k", 56.2, 31.1, 42.6, None, 90.5, 85.0, _MICROSOFT),
    RobustnessRow("CvT*-LS-13", "cvt_ls_13", 58.7, 27.0, 42.6, 97.0, 90.7, 85.6),
    RobustnessRow("CvT*-LS-21", "cvt_ls_21", 55.2, 29.3, 45.0, 97.2, 91.5, 85.8),
)
"""Tables 6 and 14 of arXiv:2107.02192. Parameters and clean accuracies there are table 5's.

The CvT rows carry the top-1 of Wu et al., 81.6 and 82.5, where the authors' own CvT-13 has 81.1: so
they are most likely of the weights that Microsoft released. ImageNet-A was made of images that
ResNet-50 gets wrong, so that torchvision's weights have 0.0 there; the paper prints 6.2.

The mCE fits images that were resized and cropped once more. Table 13 is left out: its values per
corruption are sorted within each row, so that the names above the columns do not belong to them.
"""


@dataclass(frozen=True)
class SequenceRow:
    """One system on the Long Range Arena: accuracies in percent, None where nothing is printed."""

    system: str
    listops: float | None
    text: float | None
    retrieval: float | None
    image: float | None
    pathfinder: float | None


LONG_SHORT_LRA = (
    SequenceRow("Full attention", 37.13, 65.35, 82.30, 42.44, 74.16),
    SequenceRow("Linformer", 37.38, 56.12, 79.37, 38.56, 76.34),
    SequenceRow("Nystromformer", 37.34, 65.75, 81.29, 41.58, 70.94),
    SequenceRow("Dynamic projection, best", 37.79, 66.28, 81.86, None, None),
    SequenceRow("Transformer-LS, w,r = 8,32", 37.50, 66.01, 81.79, None, None),
    SequenceRow("Transformer-LS, best", 38.36, 68.40, 81.95, 45.05, 76.48),
)
"""Of arXiv:2107.02192: means of four seeds. ListOps without closing brackets. Image and Pathfinder
of all but Transformer-LS are taken from others there."""

COMPOSITE_SLICE_LRA = (
    SequenceRow("Transformer", 39.92, 64.20, 82.11, 44.25, 74.79),
    SequenceRow("Long-Short Transformer", 38.86, 64.93, 83.88, 47.45, 75.28),
    SequenceRow("CST, L = 8", 37.45, 77.23, 84.15, 51.27, 76.32),
    SequenceRow("CST, L = 16", 37.90, 73.60, 84.00, 51.39, 76.97),
    SequenceRow("CST, L = 32", 39.01, 69.24, 83.92, 54.21, 76.73),
    SequenceRow("CST, L = 64", 38.91, 66.87, 83.59, 51.83, 78.12),
    SequenceRow("CST, L = 16, alpha = 2", 37.90, 72.81, 84.62, 53.41, 74.87),
    SequenceRow("CST, L = 16, alpha = 3", 37.60, 70.08, 84.42, 48.95, 74.52),
)
"""Of the Composite Slice Transformer (ICLR 2023). ListOps with closing brackets."""


@dataclass(frozen=True)
class SequenceCost:
    """GFLOPs of a two-layer encoder on the Long Range Arena, a multiply-add counted once."""

    system: str
    listops: float
    """At 2 048 tokens."""
    text: float
    """At 4 096 tokens."""
    retrieval: float
    """At twice 4 096 tokens."""


LONG_SHORT_TABLE_1 = (
    SequenceCost("full", 1.21, 4.57, 9.14),
    SequenceCost("projection, best", 0.15, 0.69, 2.17),
    SequenceCost("w,r = 8,32", 0.20, 0.40, 0.80),
    SequenceCost("best", 0.16, 0.29, 2.17),
)
"""Table 1 of arXiv:2107.02192. The best w,r are 16,2 and 1,1 and 1,254; of the projection alone r
is 4, 128 and 256."""


@dataclass(frozen=True)
class LanguageRow:
    """A language model of the papers."""

    system: str
    data: str
    valid: float | None
    test: float | None
    unit: str
    """"bits" per character, or "perplexity" per word."""


LANGUAGE_MODELS = (
    LanguageRow("Transformer-LS, 44M", "text8", 1.03, 1.09, "bits"),
    LanguageRow("Transformer-LS, 44M", "enwik8", 1.01, 0.99, "bits"),
    LanguageRow("Transformer-LS, 110M", "enwik8", None, 0.97, "bits"),
    LanguageRow("Transformer, N = 256", "wikitext-103", 33.15, 34.29, "perplexity"),
    LanguageRow("CST, N = 256, L = 16, alpha = 3", "wikitext-103", 35.28, 36.04, "perplexity"),
    LanguageRow("CST, N = 256, L = 32, alpha = 3", "wikitext-103", 34.18, 34.98, "perplexity"),
    LanguageRow("Transformer, N = 256", "pg19", 19.66, 18.70, "perplexity"),
    LanguageRow("CST, N = 2048, L = 16, alpha = 3", "pg19", 15.93, 15.01, "perplexity"),
)
"""Of arXiv:2107.02192 (bits) and of the Composite Slice Transformer (perplexity)."""


@dataclass(frozen=True)
class Released:
    """Weights that exist, and the accuracy that those who released them print."""

    tag: str
    """Name in timm's registry."""
    top1: float
    """ImageNet-1K validation, percent."""
    source: str


_CVT = "Microsoft's README of CvT"
_VIL = "Microsoft's README of Vision Longformer"

RELEASED = (
    Released("cvt_13.msft_in1k", 81.6, _CVT),
    Released("cvt_21.msft_in1k", 82.5, _CVT),
    Released("cvt_13_384.msft_in1k", 83.0, _CVT),
    Released("cvt_21_384.msft_in1k", 83.3, _CVT),
    Released("cvt_13_384.msft_in22k_ft_in1k", 83.3, _CVT),
    Released("cvt_21_384.msft_in22k_ft_in1k", 84.9, _CVT),
    Released("cvt_w24_384.msft_in22k_ft_in1k", 87.6, _CVT),
    Released("vil_tiny.msft_in1k", 76.65, _VIL),
    Released("vil_tiny.msft_abs_in1k", 76.3, _VIL),
    Released("vil_small.msft_in1k", 82.39, _VIL),
    Released("vil_small.msft_abs_in1k", 82.0, _VIL),
    Released("vil_medium.msft_in1k", 83.52, _VIL),
    Released("vil_medium.msft_abs_in1k", 83.3, _VIL),
    Released("vil_medium_wide.msft_abs_in1k", 82.9, _VIL),
    Released("vil_medium_384.msft_in22k_ft_in1k", 85.73, _VIL),
    Released("vil_medium_384.msft_abs_in22k_ft_in1k", 85.6, _VIL),
    Released("vil_base_384.msft_in22k_ft_in1k", 86.11, _VIL),
    Released("vil_base_384.msft_abs_in22k_ft_in1k", 86.0, _VIL),
    Released("vil_medium_wide_384.msft_abs_in22k_ft_in1k", 84.7, _VIL),
    Released("vil_base_wide_384.msft_abs_in22k_ft_in1k", 86.2, _VIL),
    *(
        Released(f"{row.model}.in1k", row.top1, "arXiv:2107.02192, table 5")
        for row in LONG_SHORT_TABLE_5
        if row.printed.startswith("ViL-LS") and row.top1 is not None
    ),
)
