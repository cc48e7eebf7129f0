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
from vit_ls.paper import LONG_SHORT_TABLE_5, LONG_SHORT_TABLE_6, LONG_SHORT_TEXT, Row
from vit_ls.style import markdown_table

_logger = logging.getLogger(__name__)


def cost_table() -> Iterator[tuple[str, ...]]:
    """Parameters and FLOPs of this package's models, printed and counted."""
    yield "model", "side (px)", "params (M), paper", "ours", "FLOPs (G), paper", "ours"
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
    """Every accuracy of table 5, and what the text adds."""
    yield *_NAMES, "side (px)", "top-1", "ReaL", "V2"
    for row in (*LONG_SHORT_TABLE_5, *LONG_SHORT_TEXT):
        if row.top1 is not None:
            yield (*_named(row), *map(_tenths, (row.top1, row.real, row.v2)))


def printed_costs() -> Iterator[tuple[str, ...]]:
    """Every cost of table 5 as printed, those of peers too."""
    yield *_NAMES, "side (px)", "params (M)", "GFLOPs", "latency (s)"
    for row in LONG_SHORT_TABLE_5:
        numbers = ("" if value is None else f"{value:g}" for value in (row.params, row.flops))
        yield *_named(row), *numbers, "" if row.latency is None else f"{row.latency:.3f}"


def robustness_table() -> Iterator[tuple[str, ...]]:
    """Table 6."""
    yield *_NAMES, "mCE", "A", "R"
    for row in LONG_SHORT_TABLE_6:
        yield row.printed, f"`{row.model}`", *map(_tenths, (row.mce, row.a, row.r))


def background_table() -> Iterator[tuple[str, ...]]:
    """ImageNet-9 of tables 6 and 14."""
    yield *_NAMES, "original", "mixed-same", "mixed-rand"
    for row in LONG_SHORT_TABLE_6:
        numbers = (row.in9_original, row.in9_same, row.in9_rand)
        yield row.printed, f"`{row.model}`", *map(_tenths, numbers)


_NAMES = ("printed as", "here or in timm")


def _named(row: Row) -> tuple[str, ...]:
    return row.printed, "-" if row.model is None else f"`{row.title}`", str(row.img_size)


def _tenths(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _is_ours(model: str) -> bool:
    return timm.model_entrypoint(model).__module__.startswith("vit_ls.")


def main() -> None:
    """Write the tables as Markdown."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for table in (cost_table, *TABLES):
        sys.stdout.write(f"{as_markdown(table())}\n\n")


def as_markdown(table: Iterator[tuple[str, ...]]) -> str:
    """A table, whose columns are numbers but for the names of models."""
    head, *rows = table
    numbers = [place for place, name in enumerate(head) if name not in ("model", *_NAMES)]
    return markdown_table(head, rows, numbers=numbers)


TABLES = (accuracy_table, printed_costs, robustness_table, background_table)
"""Those that need no counting."""


if __name__ == "__main__":
    main()
