"""Every released file of weights that models here take: the table of docs/weights.md.

    python -m papers.weights_table

Addresses, licences and evaluation settings come from timm's registry, accuracies from those who
released the files; of plain ViTs, from timm's own evaluation.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm

import vit_ls  # noqa: F401  registers the models
from vit_ls.paper import RELEASED, Released
from vit_ls.style import markdown_table

COLUMNS = (
    "weights",
    "licence",
    "top-1, published (%)",
    "evaluated at (px)",
    "starts, for training",
    "checked",
)
PLAIN = {
    "deit_tiny_patch16_224.fb_in1k": "`cst_vit_tiny_patch16_*`",
    "deit_small_patch16_224.fb_in1k": "`cst_vit_small_patch16_*`",
    "vit_small_patch16_224.augreg_in21k_ft_in1k": "`cst_vit_small_patch16_*`",
    "deit_base_patch16_224.fb_in1k": "`cst_vit_base_patch16_*`",
    "vit_base_patch16_224.augreg_in21k_ft_in1k": "`cst_vit_base_patch16_*`",
}
"""timm's weights of plain ViTs that it has published an accuracy of, and what they start."""

_ACCURACIES = Path(__file__).parents[1] / "robustness/reporting/tables/reference_accuracies.csv"


def table() -> str:
    """The table of released files, as Markdown."""
    return markdown_table(COLUMNS, [*map(_cells, RELEASED), *_plain()])


def _plain() -> list[Sequence[str]]:
    with _ACCURACIES.open(newline="") as file:
        top1 = {row["model"]: float(row["in1k_top1"]) for row in csv.DictReader(file)}
    rows: list[Sequence[str]] = []
    for tag, starts in PLAIN.items():
        cfg: Any = timm.get_pretrained_cfg(tag)
        weights = f"[`{tag}`](https://huggingface.co/{cfg.hf_hub_id})"
        size = f"{cfg.input_size[-1]}, crop {cfg.crop_pct:g}"
        rows.append((weights, cfg.license, f"{top1[tag]:.2f}", size, starts, "timm"))
    return rows


def _cells(released: Released) -> Sequence[str]:
    cfg: Any = timm.get_pretrained_cfg(released.tag)
    address = f"https://huggingface.co/{cfg.hf_hub_id}" if cfg.hf_hub_id else cfg.url
    size = cfg.input_size[-1]
    squash = ", squash" if cfg.crop_mode == "squash" else ""
    checked = "fixture, transformers" if "cvt_" in released.tag else "fixture"
    if "w24" in released.tag:
        checked = "fixture"
    return (
        f"[`{released.tag}`]({address})",
        cfg.license or "not stated",
        str(released.top1),
        f"{size}, crop {cfg.crop_pct:g}{squash}",
        _starts(cfg.architecture),
        f"{checked}, layout",
    )


def _starts(architecture: str) -> str:
    depth = {"13": "`cvt_ls_13`", "21": "`cvt_ls_21`", "small": "small", "medium": "medium"}
    kind = architecture.removesuffix("_384").partition("_")[2]
    if architecture.startswith("cvt_"):
        return depth.get(kind, "")
    if kind in ("small", "medium"):
        return f"`vil_ls_{kind}`, `cst_vil_{kind}`"
    return "`vil_ls_base`" if kind == "base" else ""


def main() -> None:
    """Write the table as Markdown."""
    sys.stdout.write(f"{table()}\n")


if __name__ == "__main__":
    main()
