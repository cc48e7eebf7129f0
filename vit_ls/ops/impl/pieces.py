"""Window attention of inference on a CPU: some windows at a time, in memory that is used again.

The keys in front are copied before those of each window. That is less than to put their scores
there would be, and scores and weights are one matrix from the first product to the second.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vit_ls.grid import crop, cut, cut_halo, pad_halo, pad_to_multiple
from vit_ls.ops import rules
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.kept import LARGEST, kept
from vit_ls.ops.scratch import Scratch, dtype_of_products


def window_attention(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    mask: Tensor,
    positions: Positions,
    windows: Windows,
    *,
    num_heads: int,
) -> Tensor:
    """As `vit_ls.ops.impl.window_attention`, without a gradient.

    Args:
        q: [B,H,W,C].
        kv: [2,B,H,W,C].
        front: [2,B,E,C] or None.
        mask: Which keys a window sees, bool [1 or B,Nh,Nw,a+2sa,b+2sb].
        positions: What places add.
        windows: With a window.
        num_heads: h.

    Returns:
        [B,H,W,C]
    """
    (B, H, W, C), (Nh, Nw) = q.shape, mask.shape[1:3]
    T, E = windows.window[0] * windows.window[1], 0 if front is None else front.shape[2]
    K = E + mask.shape[3] * mask.shape[4]
    q = pad_to_multiple(q, windows.window)
    x = torch.empty_like(q, memory_format=torch.contiguous_format)
    tiles = _tiles(q, kv, front, x, positions, windows, num_heads)
    dtype = dtype_of_products(q)
    numbers = T * K + (T + 2 * K) * C // num_heads  # of a window and a head
    row = num_heads * Nw * numbers * dtype.itemsize
    rows = min(max(rules.piece() // row, 1), Nh)
    images = min(max(rules.piece() // (row * rows), 1), B)
    most = images * num_heads * rows * Nw
    scratch = Scratch(most * T * K, dtype)
    memory = torch.empty(most * (T + 2 * K) * C // num_heads, dtype=dtype)
    whole = _kept_added(mask, positions, E, dtype)
    for r in range(0, Nh, rows):
        band = slice(r, r + rows)
        added = _added(mask[:, band], positions, E, dtype) if whole is None else whole[:, :, band]
        for i in range(0, B, images):
            few = slice(i, i + images)
            some = added if len(added) == 1 else added[few]
            _piece(tiles, some, few, band, scratch, memory)
    return crop(x, H, W)


class _Tiles(NamedTuple):
    """Views by window."""

    q: Tensor
    """[B,h,Nh,Nw,a,b,d]"""
    k: Tensor
    """[B,h,Nh,Nw,a+2sa,b+2sb,d]"""
    v: Tensor
    """Like k."""
    front: Tensor | None
    """[2,B,h,1,1,E,d]"""
    x: Tensor
    """The outputs, to be written to, like q."""


def _tiles(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    x: Tensor,
    positions: Positions,
    windows: Windows,
    num_heads: int,
) -> _Tiles:
    window, halo = windows.window, windows.halo
    queries = cut(q, window)
    keys = cut_halo(pad_halo(kv.flatten(0, 1), window, halo), window, halo).unflatten(0, (2, -1))
    k, v = keys[0], keys[1]
    if positions.query is not None:
        queries = queries + positions.query
    if positions.key is not None:
        k = k + positions.key
    if front is not None:
        front = front.unflatten(-1, (num_heads, -1)).transpose(2, 3)[:, :, :, None, None]
    queries, k, v, x = (_by_head(tiles, num_heads) for tiles in (queries, k, v, cut(x, window)))
    return _Tiles(queries, k, v, front, x)


def _by_head(x: Tensor, num_heads: int) -> Tensor:
    """[...,Nh,Nw,a,b,C] -> [...,h,Nh,Nw,a,b,d], a view."""
    return x.unflatten(-1, (num_heads, -1)).movedim(-2, -6)


def _piece(
    tiles: _Tiles, added: Tensor, few: slice, band: slice, scratch: Scratch, memory: Tensor
) -> None:
    """Some images and some rows of windows, from the views of queries and keys to that of x."""
    queries, k, v = (x[few, :, band] for x in (tiles.q, tiles.k, tiles.v))
    E = 0 if tiles.front is None else tiles.front.shape[5]
    shape = torch.Size((2, *k.shape[:4], E + k.shape[4] * k.shape[5], k.shape[6]))
    q = memory[: queries.numel()].view(queries.shape)
    kv = memory[queries.numel() :][: shape.numel()].view(shape)
    torch.mul(queries, queries.shape[-1] ** -0.5, out=q)
    if tiles.front is not None:
        kv[..., :E, :] = tiles.front[:, few]
    near = kv[..., E:, :].unflatten(5, k.shape[4:6])
    near[0].copy_(k)
    near[1].copy_(v)
    x = scratch.attend(q.flatten(4, 5), kv[0], kv[1], added)
    tiles.x[few, :, band] = x.view(queries.shape)


def _kept_added(mask: Tensor, positions: Positions, E: int, dtype: torch.dtype) -> Tensor | None:
    """`_added` of the whole grid, where it is small enough and the same for each image."""
    bias = positions.bias
    if bias is None or len(mask) > 1 or mask[0, ..., 0, 0].numel() * bias.numel() > LARGEST:
        return None
    front = bias.new_zeros(len(bias), E) if positions.front is None else positions.front
    return kept(_of_bias, (bias, front, mask), E, dtype)


def _of_bias(bias: Tensor, front: Tensor, mask: Tensor, E: int, dtype: torch.dtype) -> Tensor:
    return _added(mask, Positions(bias, front=front), E, dtype)


def _added(mask: Tensor, positions: Positions, E: int, dtype: torch.dtype) -> Tensor:
    """Added to the scores [1 or B,1 or h,Nh,Nw,1 or T,E+K]: -inf outside, biases inside."""
    mask = mask.flatten(3, 4)[:, None, :, :, None]
    if positions.bias is None:
        added = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)
    else:
        added = torch.where(mask, positions.bias[:, None, None], -torch.inf).to(dtype)
    if positions.front is None or E == 0:
        return torch.nn.functional.pad(added, (E, 0)) if E else added
    front = positions.front[:, None, None, None].to(dtype)
    shape = torch.broadcast_shapes(added.shape[:-1], front.shape[:-1])
    return torch.cat((front.expand(*shape, -1), added.expand(*shape, -1)), dim=-1)
