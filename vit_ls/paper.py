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
    Row("cvt_ls_21", 384, 32.0, 45.0, None, full_attention=True),
)
"""Table 5 of the Long-Short Transformer (arXiv:2107.02192), with the latencies it gives.

What it calls CvT has keys and values without stride; that of Microsoft, `vit_ls.models.cvt`, has
4.5 and 7.1 GFLOPs.
"""
