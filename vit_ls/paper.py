"""Numbers that the papers print, as rows: what tests and reports compare with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One model of a table. None where the paper prints nothing."""

    model: str
    img_size: int
    """Side of the square images, in pixels."""
    params: float
    """In millions."""
    flops: float
    """In billions, a multiply-add counted once."""
    top1: float | None
    """ImageNet-1K validation, percent."""
    real: float | None = None
    """Top-1 with ReaL labels, percent."""
    v2: float | None = None
    """Top-1 on ImageNet-V2, percent."""
    latency: float | None = None
    """Seconds for a batch of 32 on one V100."""
    full_attention: bool = False
    """The model is the baseline of that name: the same without the paper's attention."""

    @property
    def options(self) -> dict[str, Any]:
        """Arguments that make the model of its name."""
        return {"attention": "full"} if self.full_attention else {}

    @property
    def title(self) -> str:
        """The call that makes the model."""
        return named(self.model, self.options)


def named(model: str, options: Mapping[str, object]) -> str:
    """A model with its options, such as cvt_ls_13(attention="full")."""
    inside = ", ".join(f"{key}={json.dumps(value, default=str)}" for key, value in options.items())
    return f"{model}({inside})" if inside else model


LONG_SHORT_TABLE_5 = (
    Row("vil_small", 224, 24.6, 4.9, 82.4),
    Row("vil_medium", 224, 39.7, 8.7, 83.5, latency=0.106),
    Row("vil_base", 224, 55.7, 13.4, 83.7, latency=0.164),
    Row("vil_ls_medium", 224, 39.8, 8.7, 83.8),
    Row("vil_ls_base", 224, 55.8, 13.4, 84.1),
    Row("vil_ls_medium_384", 384, 39.9, 28.7, 84.4),
    Row("cvt_ls_13", 224, 20.3, 4.9, 81.9, 87.0, 70.5, 0.083),
    Row("cvt_ls_17", 224, 23.7, 9.8, 82.5, 87.2, 71.6),
    Row("cvt_ls_21", 224, 32.1, 7.9, 82.7, 87.5, 71.9, 0.122),
    Row("cvt_ls_21s", 224, 30.1, 11.3, 82.9, 87.4, 71.7),
    Row("cvt_ls_21_384", 384, 32.1, 23.9, 83.2, 88.0, 72.5),
    Row("cvt_ls_21_448", 448, 32.1, 34.2, 83.6, 88.2, 72.9),
    Row("cvt_ls_13", 224, 20.0, 6.7, None, latency=0.122, full_attention=True),
    Row("cvt_ls_21", 224, 32.0, 10.1, None, latency=0.165, full_attention=True),
    Row("cvt_ls_13", 384, 20.0, 31.9, None, full_attention=True),
    Row("cvt_ls_21", 384, 32.0, 45.0, None, full_attention=True),
)
"""Table 5 of the Long-Short Transformer (arXiv:2107.02192), with the latencies it gives.

It prints accuracies of CvT and latencies of ViL-LS, too; the figures were not at hand, and these
fields are None. What it calls CvT has keys and values without stride; that of Microsoft,
`vit_ls.models.cvt`, has 4.5 and 7.1 GFLOPs. Its FLOPs of ViL fit windows of 15 x 15 keys, where ViL
computes 21 x 21, and its parameters are those of ViL's absolute form.
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
_VIL_LS = "arXiv:2107.02192, table 5"

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
    Released("vil_ls_medium.in1k", 83.8, _VIL_LS),
    Released("vil_ls_base.in1k", 84.1, _VIL_LS),
    Released("vil_ls_medium_384.in1k", 84.4, _VIL_LS),
)
