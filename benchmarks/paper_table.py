"""Parameters and FLOPs as the paper prints them and as this code has them: docs/papers.md.

    python benchmarks/paper_table.py

Takes a few minutes on a CPU: fvcore counts by running each model once.
"""

import sys

import timm

import vit_ls  # noqa: F401  registers the models
from vit_ls.count import count_flops, count_params
from vit_ls.paper import LONG_SHORT_TABLE_5, Row

COLUMNS = (
    "model",
    "size",
    "params (M), paper",
    "ours",
    "FLOPs (G), paper",
    "ours",
    "top-1, paper",
    "ReaL, paper",
    "V2, paper",
)


def main() -> None:
    """Write the table as Markdown, row by row."""
    _write(COLUMNS)
    _write(("---", *["---:"] * (len(COLUMNS) - 1)))
    for row in LONG_SHORT_TABLE_5:
        _write(_cells(row))


def _cells(row: Row) -> tuple[str, ...]:
    model = timm.create_model(row.model, **row.options).eval()
    flops = count_flops(model, (row.img_size, row.img_size))
    printed = (row.top1, row.real, row.v2)
    return (
        f"`{row.title}`",
        str(row.img_size),
        f"{row.params:g}",
        f"{count_params(model) / 1e6:.2f}",
        f"{row.flops:g}",
        f"{flops / 1e9:.2f}",
        *("" if value is None else f"{value:.1f}" for value in printed),
    )


def _write(cells: tuple[str, ...]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
