"""Published numbers to stand beside ours: the Long-Short paper's rows and timm's table."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vit_ls.paper import LONG_SHORT_TABLE_5, LONG_SHORT_TABLE_6, LONG_SHORT_TEXT, RELEASED

_PAPER = "arXiv:2107.02192"
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
class Published:
    """One number in percent and where it is printed."""

    value: float
    source: str


def published(model: str, benchmark: str, metric: str) -> tuple[Published, ...]:
    """Find the numbers printed for a model: timm's first, then those of papers; each value once.

    Args:
        model: Full name with its options, and with the tag of its weights where they are released.
        benchmark: Name of the row.
        metric: Name of the metric.
    """
    found: dict[float, Published] = {}
    for known, row, name, number in _all():
        if (known, row, name) == (model, benchmark, metric):
            found.setdefault(number.value, number)
    return tuple(found.values())


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
    return (*_of_timm(), *_of_releases(), *_of_table_5(), *_of_table_6())


def _of_releases() -> Iterator[tuple[str, str, str, Published]]:
    for weights in RELEASED:
        yield weights.tag, "imagenet-val", "top-1", Published(weights.top1, weights.source)


def _of_table_5() -> Iterator[tuple[str, str, str, Published]]:
    for where, lines in (("table 5", LONG_SHORT_TABLE_5), ("in its text", LONG_SHORT_TEXT)):
        for line in lines:
            for row, name, value in (
                ("imagenet-val", "top-1", line.top1),
                ("imagenet-val", "ReaL top-1", line.real),
                (_V2_MF, "top-1", line.v2),
            ):
                if value is not None:
                    yield line.title, row, name, Published(value, f"{_PAPER}, {where}")


def _of_table_6() -> Iterator[tuple[str, str, str, Published]]:
    for entry in LONG_SHORT_TABLE_6:
        for row, name, value, table in (
            ("imagenet-c-paper", "mCE", entry.mce, 6),
            ("imagenet-a", "top-1", entry.a, 6),
            ("imagenet-r", "top-1", entry.r, 6),
            ("imagenet-9", "top-1 mixed_same", entry.in9_same, 6),
            ("imagenet-9", "top-1 mixed_rand", entry.in9_rand, 6),
            ("imagenet-9", "top-1 original", entry.in9_original, 14),
        ):
            if value is not None:
                doubt = f"; {entry.doubt}" if entry.doubt else ""
                source = f"{_PAPER}, table {table}{doubt}"
                yield entry.model, row, name, Published(value, source)


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
