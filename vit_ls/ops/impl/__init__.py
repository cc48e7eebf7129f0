"""Implementations of window attention: one file and one row each, all of one signature.

`vit_ls.ops.window_attention` chooses among them, and makes the mask that they want.
"""

from collections.abc import Callable

from torch import Tensor

from vit_ls.ops.impl import dense, gathered, products, tiled, triton
from vit_ls.ops.impl.arguments import Positions, Windows

__all__ = ["IMPLEMENTATIONS", "WHY_NOT", "Positions", "Windows"]

IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "dense": dense.window_attention,
    "gathered": gathered.window_attention,
    "products": products.window_attention,
    "tiled": tiled.window_attention,
    "triton": triton.window_attention,
}

WHY_NOT: dict[str, Callable[..., str | None]] = {"triton": triton.why_not}
"""For rows that do not run everywhere: why not on such queries with such a dropout, or None."""
