"""The Long-Short paper's tables beside this code: the tables of docs/papers.md.

    python -m papers.paper_table

Takes a few minutes on a CPU: fvcore counts by running each model once.
"""

import logging
import sys
from collections.abc import Iterator

import timm

import vit_ls  # noqa: F401  registers the models
from vit_ls.count import count_flops, count_params
from vit_ls.paper import LONG_SHORT_TABLE_5, LONG_SHORT_TABLE_6, LONG_SHORT_TEXT
from vit_ls.style import markdown_table

_logger = logging.getLogger(__name__)


def cost_table() -> Iterator[tuple[str, ...]]:
    """Parameters and FLOPs of this package's models, printed and counted."""
    yield "model", "size", "params (M), paper", "ours", "FLOPs (G), paper", "ours"
    for row in LONG_SHORT_TABLE_5:
        if row.model is None or row.flops is None or not _is_ours(row.model):
            continue
        _logger.info("%s", row.title)
        model = timm.create_model(row.model, **row.options).eval()
        flops = count_flops(model, (row.img_size, row.img_size))
        yield (
            f"`{row.title}`",
            str(row.img_size),
            f"{row.params:g}",
            f"{count_params(model) / 1e6:.2f}",
            f"{row.flops:g}",
            f"{flops / 1e9:.2f}",
        )


def accuracy_table() -> Iterator[tuple[str, ...]]:
    """Every row of table 5, and what the text adds; of peers the costs as printed."""
    yield (
        *("printed as", "here or in timm", "size", "params (M)", "GFLOPs"),
        *("top-1", "ReaL", "V2", "latency (s)"),
    )
    for row in (*LONG_SHORT_TABLE_5, *LONG_SHORT_TEXT):
        yield (
            row.printed,
            "-" if row.model is None else f"`{row.title}`",
            str(row.img_size),
            *("" if value is None else f"{value:g}" for value in (row.params, row.flops)),
            *("" if value is None else f"{value:.1f}" for value in (row.top1, row.real, row.v2)),
            "" if row.latency is None else f"{row.latency:.3f}",
        )


def robustness_table() -> Iterator[tuple[str, ...]]:
    """Tables 6 and 14."""
    yield (
        *("printed as", "here or in timm", "mCE", "A", "R"),
        *("ImageNet-9 original", "mixed-same", "mixed-rand"),
    )
    for row in LONG_SHORT_TABLE_6:
        numbers = (row.mce, row.a, row.r, row.in9_original, row.in9_same, row.in9_rand)
        cells = ("" if value is None else f"{value:.1f}" for value in numbers)
        yield row.printed, f"`{row.model}`", *cells


def _is_ours(model: str) -> bool:
    return timm.model_entrypoint(model).__module__.startswith("vit_ls.")


def main() -> None:
    """Write the three tables as Markdown."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for table in (cost_table, accuracy_table, robustness_table):
        head, *rows = table()
        sys.stdout.write(f"{markdown_table(head, rows)}\n\n")


if __name__ == "__main__":
    main()
