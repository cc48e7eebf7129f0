"""What works row by row of a grid, in pieces where whole tensors would be large."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vit_ls.ops import rules
from vit_ls.ops.softmax_attention import merge_heads, split_heads

Rows = tuple[slice, slice]
"""Images, and rows of the grid in each."""


def by_rows(
    function: Callable[[Tensor], Tensor], x: Tensor, row: int, *, out: Tensor | None = None
) -> Tensor:
    """`function` of x; in inference of some rows of a large grid at a time.

    With a gradient, in graphs, in exports, in traces and in recordings x is taken whole. Products
    of fewer rows may differ in the last bits, and a hook on a module within sees pieces.

    Args:
        function: Makes each row of that row alone: [B,H,...] -> [B,H,...].
        x: The grid [B,H,...].
        row: Numbers that a row has in the largest tensor within.
        out: Where to write the result, x itself perhaps.
    """
    if not rules.is_large(x, row):
        return function(x) if out is None else out.copy_(function(x))
    for piece in pieces(x, row):
        some = function(x[piece])
        if out is None:
            out = some.new_empty(*x.shape[:2], *some.shape[2:])
        out[piece] = some
    assert out is not None
    return out


def pieces(x: Tensor, row: int) -> Iterator[Rows]:
    """Some images at a time, or some rows of one."""
    B, H = x.shape[:2]
    most = rows_of_a_piece(x, row)
    images = min(max(most // H, 1), B)
    for i in range(0, B, images):
        for r in range(0, H, most):
            yield slice(i, i + images), slice(r, r + most)


def rows_of_a_piece(x: Tensor, row: int) -> int:
    """How many rows with `row` numbers each fit into a piece, and one in any case."""
    return max(rules.ROWS_PIECE // (row * x.element_size()), 1)


def dynamic_projection_by_rows(logits: Tensor, kv: Tensor, *, num_heads: int) -> Tensor:
    """`vit_ls.ops.dynamic_projection` of a large grid, without P as a whole.

    The sums over the tokens of exp(logits), and of its products with keys and values, grow from
    piece to piece; their quotient is the result.

    Args:
        logits: [B,H,W,h*R], channel head * R + r.
        kv: Keys and values [2,B,H,W,C].
        num_heads: h.

    Returns:
        [2,B,R,C]
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    B, _, W, hR = logits.shape
    most = logits.amax((1, 2), keepdim=True)
    total = logits.new_zeros(B, hR, dtype=wide)
    sums = kv.new_zeros(2, B, num_heads, hR // num_heads, kv.shape[4] // num_heads, dtype=wide)
    for few, rows in pieces(logits, W * max(hR, kv.shape[4])):
        weights = (logits[few, rows].to(wide) - most[few]).exp_().flatten(1, 2)
        total[few] += weights.sum(1)
        # [b,n,h*R] -> [b,h,R,n]
        P = split_heads(weights.to(kv.dtype), num_heads).transpose(2, 3)
        for one, added in zip(kv[:, few, rows].flatten(2, 3), sums[:, few], strict=True):
            added += P @ split_heads(one, num_heads)
    return merge_heads(sums / total.view(B, num_heads, -1, 1)).to(kv.dtype)
