"""Published numbers to stand beside ours: the Long-Short paper's rows and timm's table."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vit_ls.paper import LONG_SHORT_TABLE_5, RELEASED

_V2_MF = "imagenet-v2-matched-frequency"
_TIMM_COLUMNS = {
    ("imagenet-val", "top-1"): "in1k_top1",
    ("imagenet-val", "top-5"): "in1k_top5",
    ("imagenet-val", "ReaL top-1"): "real_top1",
    ("imagenet-val", "top-1 on the 200 classes of ImageNet-A"): "a_clean200_top1",
    ("imagenet-val", "top-1 on the 200 classes of ImageNet-R"): "r_clean200_top1",
    (_V2_MF, "top-1"): "v2_mf_top1",
    (_V2_MF, "top-5"): "v2_mf_top5",
    ("imagenet-sketch", "top-1"): "sketch_top1",
    ("imagenet-sketch", "top-5"): "sketch_top5",
    ("imagenet-a", "top-1"): "a_top1",
    ("imagenet-a", "top-5"): "a_top5",
    ("imagenet-r", "top-1"): "r_top1",
    ("imagenet-r", "top-5"): "r_top5",
}


@dataclass(frozen=True)
class RobustnessRow:
    """One row of table 6 of the Long-Short Transformer (arXiv:2107.02192), percent.

    Its accuracies on the original images of ImageNet-9 stand in table 14.
    """

    model: str
    mce: float
    a: float | None = None
    r: float | None = None
    in9_same: float | None = None
    in9_rand: float | None = None
    in9_original: float | None = None


TABLE_6 = (
    RobustnessRow("resnet50.tv_in1k", 78.9),
    RobustnessRow("deit_small_patch16_224.fb_in1k", 57.1),
    RobustnessRow('cvt_ls_13(attention="full")', 59.6, 25.4, 42.9, 90.5, 85.7),
    RobustnessRow('cvt_ls_21(attention="full")', 56.2, 31.1, 42.6, 90.5, 85.0),
    RobustnessRow("cvt_ls_13", 58.7, 27.0, 42.6, 90.7, 85.6, 97.0),
    RobustnessRow("cvt_ls_21", 55.2, 29.3, 45.0, 91.5, 85.8, 97.2),
)
"""Its mCE fits images that were resized and cropped once more: the row "imagenet-c-paper".

The paper's table 13 is left out: its values per corruption are sorted within each row, so that the
names above the columns do not belong to them.
"""


@dataclass(frozen=True)
class Published:
    """One number in percent and where it is printed."""

    value: float
    source: str


def published(model: str, benchmark: str, metric: str) -> Published | None:
    """The number printed for a model, or None.

    Args:
        model: Full name with its options; timm's table is of released weights and asks for their
            tag.
        benchmark: Name of the row.
        metric: Name of the metric.
    """
    for known, row, name, number in _all():
        if (known, row, name) == (model, benchmark, metric):
            return number
    return None


def published_pairs(benchmark: str) -> list[tuple[float, float]]:
    """Top-1 on the validation set and on a benchmark, of the models of timm's table, percent."""
    column = _TIMM_COLUMNS.get((benchmark, "top-1"))
    if column is None or benchmark == "imagenet-val":
        return []
    return [
        (float(line["in1k_top1"]), float(line[column]))
        for line in _timm_lines()
        if line["in1k_top1"] and line[column]
    ]


@cache
def _all() -> tuple[tuple[str, str, str, Published], ...]:
    return (*_of_papers(), *_of_timm())


def _of_papers() -> Iterator[tuple[str, str, str, Published]]:
    for line in LONG_SHORT_TABLE_5:
        for row, name, value in (
            ("imagenet-val", "top-1", line.top1),
            ("imagenet-val", "ReaL top-1", line.real),
            (_V2_MF, "top-1", line.v2),
        ):
            if value is not None:
                yield line.title, row, name, Published(value, "arXiv:2107.02192, table 5")
    for weights in RELEASED:
        yield weights.tag, "imagenet-val", "top-1", Published(weights.top1, weights.source)
    for entry in TABLE_6:
        for row, name, value, table in (
            ("imagenet-c-paper", "mCE", entry.mce, 6),
            ("imagenet-a", "top-1", entry.a, 6),
            ("imagenet-r", "top-1", entry.r, 6),
            ("imagenet-9", "top-1 mixed_same", entry.in9_same, 6),
            ("imagenet-9", "top-1 mixed_rand", entry.in9_rand, 6),
            ("imagenet-9", "top-1 original", entry.in9_original, 14),
        ):
            if value is not None:
                yield entry.model, row, name, Published(value, f"arXiv:2107.02192, table {table}")


def _of_timm() -> Iterator[tuple[str, str, str, Published]]:
    for line in _timm_lines():
        source = f"timm's results at {line['img_size']}, crop {float(line['crop_pct']):.3g}"
        for (row, name), column in _TIMM_COLUMNS.items():
            if line[column]:
                yield line["model"], row, name, Published(float(line[column]), source)


@cache
def _timm_lines() -> tuple[dict[str, str], ...]:
    table = Path(__file__).parent / "tables" / "reference_accuracies.csv"
    with table.open(newline="") as file:
        return tuple(csv.DictReader(file))
