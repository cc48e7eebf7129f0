"""Window attention by explicit products; in inference on a CPU in pieces that fit the cache.

With a gradient to follow, the keys in front take part by one product for all windows, under the
windows' own softmax, and are copied for none of them. Without one they are copied before those of
each window: that is less than to put their scores there would be, and scores and weights are one
matrix from the first product to the second.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vit_ls.grid import (
    crop,
    cut,
    cut_halo,
    merge,
    num_windows,
    pad_halo,
    pad_halo_of_rows,
    pad_to_multiple,
    partition,
    partition_halo,
)
from vit_ls.ops import rules
from vit_ls.ops.impl.arguments import Positions, Windows, bias_of_keys
from vit_ls.ops.rows import rows_of_a_piece
from vit_ls.ops.rules import hand_over
from vit_ls.ops.softmax_attention import Scratch, dropped, softmax_float32, split_heads


def window_attention(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    drop: float = 0.0,
    *,
    num_heads: int,
) -> Tensor:
    """See `vit_ls.ops.window_attention`, whose row of products this is."""
    plan = rules.plan(q, "products") if windows.plan is None else windows.plan
    if drop == 0 and plan.piece:
        return _in_pieces(q, kv, front, positions, windows._replace(plan=plan), num_heads)
    H, W = q.shape[1], q.shape[2]
    q = partition(q, windows.window)
    kv = partition_halo(kv.flatten(0, 1), windows.window, windows.halo).unflatten(0, (2, -1))
    k, v = kv.unbind()
    if positions.query is not None:
        q = q + positions.query
    if positions.key is not None:
        k = k + positions.key
    shape = q.shape
    q, k, v = (_heads_of_windows(x, num_heads) for x in (q, k, v))
    q = q * q.shape[-1] ** -0.5
    scores = q @ k.transpose(-2, -1)
    E = 0 if front is None else front.shape[2]
    mask = windows.outside
    bias = None if positions.bias is None else positions.bias[:, None].to(q.dtype)
    if mask is not None:  # [1 or B,N,h,1,E+K] -> [1 or B,h,N,1,K]
        mask = mask[..., E:].transpose(1, 2)
        bias = mask if bias is None else mask + bias
    if bias is not None:
        scores = scores + bias
    if front is None:
        weights = softmax_float32(scores, -1)
        hand_over("windows", weights)
        x = dropped(weights, drop) @ v
    else:
        x = _with_front(q, v, scores, split_heads(front, num_heads), positions.front, drop)
    # [B,h,N,T,d] -> [B,h,Nh,Nw,a,b,d] -> [B,Nh,Nw,a,b,h,d] -> [B,H,W,h,d] -> [B,H,W,C]
    x = x.unflatten(3, shape[3:5]).unflatten(2, shape[1:3]).permute(0, 2, 3, 4, 5, 1, 6)
    return merge(x, H, W).flatten(3)


def _with_front(
    q: Tensor, v: Tensor, scores: Tensor, front: Tensor, bias: Tensor | None, drop: float
) -> Tensor:
    """One softmax over the keys in front [2,B,h,E,d] and the scores [B,h,N,T,K] -> [B,h,N,T,d]."""
    front_k, front_v = front.unbind()
    front_scores = (q.flatten(2, 3) @ front_k.transpose(-2, -1)).unflatten(2, q.shape[2:4])
    if bias is not None:
        front_scores = front_scores + bias[:, None, None].to(q.dtype)
    weights = softmax_float32(torch.cat((front_scores, scores), dim=-1), -1)
    hand_over("windows", weights)
    to_front, to_window = dropped(weights, drop).split(
        (front_scores.shape[-1], scores.shape[-1]), dim=-1
    )
    return to_window @ v + (to_front.flatten(2, 3) @ front_v).unflatten(2, q.shape[2:4])


def _heads_of_windows(x: Tensor, num_heads: int) -> Tensor:
    """[B,Nh,Nw,a,b,C] -> [B,h,N,T,d]: heads first, so that a head's windows are one matrix."""
    x = x.unflatten(-1, (num_heads, -1)).permute(0, 5, 1, 2, 3, 4, 6)
    return x.flatten(4, 5).flatten(2, 3)


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


def _in_pieces(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    num_heads: int,
) -> Tensor:
    """As `window_attention` without a gradient, some windows at a time."""
    (B, H, W, C), (window, halo, *_) = q.shape, windows
    assert windows.plan is not None
    if not windows.plan.large:
        whole = H % window[0] == 0 and W % window[1] == 0
        y = _of_padded(
            q if whole else pad_to_multiple(q, window),
            pad_halo(kv.flatten(0, 1), window, halo),
            *(front, positions, windows, num_heads),
        )
        return y if whole else crop(y, H, W)
    x = torch.empty_like(q, memory_format=torch.contiguous_format)
    Nh, Nw = num_windows(H, window[0]), num_windows(W, window[1])
    few = max(rows_of_a_piece(q, B * W * 3 * C) // window[0], 1)
    for rows in (slice(n, min(n + few, Nh)) for n in range(0, Nh, few)):
        y = _of_padded(
            pad_halo_of_rows(q, window, (0, 0), rows),
            pad_halo_of_rows(kv.flatten(0, 1), window, halo, rows),
            *(front, positions, _of_rows(windows, rows, Nw), num_heads),
        )
        part = x[:, rows.start * window[0] : rows.stop * window[0]]
        part.copy_(y[:, : part.shape[1], :W])
    return x


def _of_rows(windows: Windows, rows: slice, Nw: int) -> Windows:
    """Some rows of windows, Nw in each."""
    made = windows.outside
    if made is None:
        return windows
    return windows._replace(outside=made[:, rows.start * Nw : rows.stop * Nw])


def _of_padded(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    num_heads: int,
) -> Tensor:
    """Of whole windows: q padded as by `pad_to_multiple`, kv [2*B,...] as by `pad_halo`."""
    (B, _, _, C), (a, b) = q.shape, windows.window
    x = torch.empty_like(q, memory_format=torch.contiguous_format)
    tiles = _tiles(q, kv, front, x, positions, windows, num_heads)
    Nh, Nw = tiles.q.shape[2:4]
    E = 0 if front is None else front.shape[2]
    T, K = a * b, E + tiles.k.shape[4] * tiles.k.shape[5]
    plan = windows.plan
    assert plan is not None
    dtype, piece = plan.dtype, plan.piece
    numbers = T * K + (T + 2 * K) * C // num_heads  # of a window and a head
    row = num_heads * Nw * numbers * dtype.itemsize
    rows = min(max(piece // row, 1), Nh)
    images = min(max(piece // (row * rows), 1), B)
    most = images * num_heads * rows * Nw
    scratch = Scratch(most * T * K, dtype)
    memory = torch.empty(most * (T + 2 * K) * C // num_heads, dtype=dtype)
    bias = None
    if positions.bias is not None or positions.front is not None:
        bias = bias_of_keys(positions, E, K - E, dtype)
    bias = None if bias is None else bias[:, None, None]  # [h,1,1,T or 1,E+K]
    mask = windows.outside
    if mask is not None:  # [1 or B,N,h,1,E+K] -> [1 or B,h,Nh,Nw,1,E+K]
        mask = mask.transpose(1, 2).unflatten(2, (Nh, Nw))
    for r in range(0, Nh, rows):
        band = slice(r, r + rows)
        for i in range(0, B, images):
            few = slice(i, i + images)
            seen = None if mask is None else mask[few if len(mask) > 1 else slice(None), :, band]
            _piece(tiles, (bias, seen), few, band, scratch, memory)
    return x


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
    keys = cut_halo(kv, window, halo).unflatten(0, (2, -1))
    if positions.query is not None:
        queries = queries + positions.query
    k, v = keys[0], keys[1]
    if positions.key is not None:
        k = k + positions.key
    if front is not None:
        front = split_heads(front, num_heads)[:, :, :, None, None]
    # [B,Nh,Nw,a,b,C] -> [B,h,Nh,Nw,a,b,d]
    return _Tiles(
        queries.unflatten(5, (num_heads, -1)).movedim(5, 1),
        k.unflatten(5, (num_heads, -1)).movedim(5, 1),
        v.unflatten(5, (num_heads, -1)).movedim(5, 1),
        front,
        cut(x, window).unflatten(5, (num_heads, -1)).movedim(5, 1),
    )


def _piece(
    tiles: _Tiles,
    added: tuple[Tensor | None, ...],
    few: slice,
    band: slice,
    scratch: Scratch,
    memory: Tensor,
) -> None:
    """Some images and some rows of windows, from the views of queries and keys to that of x."""
    queries, k, v = tiles.q[few, :, band], tiles.k[few, :, band], tiles.v[few, :, band]
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
    x = scratch.attend(q.flatten(4, 5), kv[0], kv[1], *added)
    tiles.x[few, :, band] = x.view(queries.shape)
