"""Speed and memory of a family: what its card says of the committed measurements and the paper."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from vit_ls.paper import LONG_SHORT_TABLE_5
from vit_ls.style import markdown_table

MEASURED = Path(__file__).parents[1] / "benchmarks" / "results" / "speed_amd_epyc_avx512.csv"
NAMES = {
    "vil_ls_small long_short": 'vil_ls_small(attention="long_short")',
    "cvt_21": 'cvt_ls_21(attention="full")',
    "cst_vit_small_patch16": "cst_vit_small_patch16_224",
}
"""Of a file's names those that are no call of timm (`benchmarks.speed.subjects`)."""

COLUMNS = ("model", "side (px)", "what", "batch", "images/s", "peak memory (MB)")
_MODES = {"forward": "inference", "step": "training"}
_SETTINGS = {"float32": "float32", "bf16": "bfloat16"}


def speed_table(prefixes: Sequence[str]) -> str:
    """The newest measurements of models whose names begin so, and the paper's; "" for none."""
    rows = sorted({**dict(_here(prefixes)), **dict(_printed(prefixes))}.items())
    cells = [(*key[:1], str(key[1]), key[2], *values) for key, values in rows]
    return markdown_table(COLUMNS, cells, numbers=(1, 3, 4, 5)) if cells else ""


_Key = tuple[str, int, str]
"""A call that makes the model, the side of the images, and what was timed."""


def _here(prefixes: Sequence[str]) -> Iterator[tuple[_Key, tuple[str, ...]]]:
    with MEASURED.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:  # a later row takes the place of an earlier one
        name = NAMES.get(row["model"], row["model"])
        if not name.startswith(tuple(prefixes)) or " " in name.partition("(")[0]:
            continue
        if row["setting"] in _SETTINGS and row["mode"] in _MODES:
            what = f"{_MODES[row['mode']]}, {_SETTINGS[row['setting']]}"
            values = (row["batch"], row["images_per_s"], row["peak_mb"])
            yield (f"`{name}`", int(row["size"]), what), values


def _printed(prefixes: Sequence[str]) -> Iterator[tuple[_Key, tuple[str, ...]]]:
    for row in LONG_SHORT_TABLE_5:
        if row.latency is not None and row.title.startswith(tuple(prefixes)):
            what = "the paper's, one V100"
            yield (f"`{row.title}`", row.img_size, what), ("32", f"{32 / row.latency:.0f}", "")


def machine() -> str:
    """Where the file was measured, in words."""
    with MEASURED.open(newline="", encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    threads = last["threads"].partition(",")[0]
    return f"{last['machine']}, {threads} threads, {last['versions']}"
