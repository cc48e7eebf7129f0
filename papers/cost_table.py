"""What composite slices cost beside full attention: the table of docs/evidence/speed.md.

    python -m papers.cost_table

FLOPs as `vit_ls.count.count_flops` counts them, a multiply-add once, and the activations that one
training step of one image keeps for the backward pass, in float32. These are given twice: with the
attention that PyTorch fuses, which keeps no scores, and with explicit scores, as on a device that
has no fused kernel. Takes 11 GB of memory and two minutes on a CPU.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import timm
import torch
from timm.layers import set_fused_attn

import vit_ls  # noqa: F401  registers the models
from vit_ls.count import count_flops, count_params, saved_activations
from vit_ls.style import markdown_table

SIZES = (224, 384, 448, 1024)
COLUMNS = (
    "model",
    "size (px), slice (patches)",
    "params (M)",
    "GFLOPs",
    "fused (MB)",
    "explicit (MB)",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the table as Markdown, row by row."""
    parser = argparse.ArgumentParser(description="The cost of composite slices, as a table.")
    parser.add_argument(
        "--sizes", type=int, nargs="+", choices=SIZES, default=SIZES, help="side of the image"
    )
    sizes = parser.parse_args(argv).sizes
    rows = [_row(name, size, kwargs) for size in sizes for name, kwargs in _models(size)]
    sys.stdout.write(markdown_table(COLUMNS, rows, numbers=range(1, len(COLUMNS))) + "\n")


def _models(size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "deit_small_patch16_224", {"img_size": size}
    for patch in (16, 8):
        if size == 1024:  # has no variant of its own
            yield f"cst_vit_small_patch{patch}_448", {"img_size": size, "slice_size": 8}
        else:
            yield f"cst_vit_small_patch{patch}_{size}", {}


def _row(name: str, size: int, kwargs: dict[str, Any]) -> list[str]:
    image = torch.zeros(1, 3, size, size)
    activations = []
    for fused in (True, False):
        set_fused_attn(fused)  # timm's own blocks ask when they are made
        model = timm.create_model(name, **kwargs)
        activations.append(saved_activations(model.train(), image))
    slices = {str(m.slice_size) for m in model.modules() if hasattr(m, "slice_size")}
    return [
        f"`{name.rsplit('_', 1)[0]}`",
        ", ".join([str(size), *slices]),
        f"{count_params(model) / 1e6:.2f}",
        # the trace keeps every tensor: half precision, which counts the same, takes half the memory
        f"{count_flops(model.eval().bfloat16(), (size, size)) / 1e9:.2f}",
        *(f"{bytes_ / 1e6:.0f}" for bytes_ in activations),
    ]


if __name__ == "__main__":
    main()
