"""The plain formulation that our implementations are measured against.

Keys are copied for each window, those in front too; scores are explicit and in float32.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from vit_ls.grid import halo_mask, merge, partition, partition_halo
from vit_ls.ops import Positions, Windows, rules, use_implementation
from vit_ls.ops.impl import IMPLEMENTATIONS
from vit_ls.ops.softmax_attention import split_heads


@contextmanager
def plain() -> Iterator[None]:
    """All attention by explicit scores: that of windows as below, full attention in one piece."""
    piece = rules.PIECE
    IMPLEMENTATIONS["plain"] = window_attention
    rules.PIECE = rules.ANY
    try:
        with use_implementation(windows="plain", attention="products"):
            yield
    finally:
        rules.PIECE = piece
        del IMPLEMENTATIONS["plain"]


def window_attention(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    *,
    num_heads: int,
    drop: float = 0.0,
) -> Tensor:
    """As `vit_ls.ops.window_attention`, where every token is real and windows have tokens."""
    assert drop == 0  # it is for inference
    H, W = q.shape[1:3]
    tiles = partition(q, windows.window)
    keys, values = (partition_halo(x, windows.window, windows.halo) for x in kv)
    if positions.query is not None:
        tiles = tiles + positions.query
    if positions.key is not None:
        keys = keys + positions.key
    shape = tiles.shape[1:5]
    tiles, keys, values = (_heads(x, num_heads) for x in (tiles, keys, values))
    mask = halo_mask(H, W, windows.window, windows.halo, q.device)
    seen = mask.flatten(2, 3).flatten(0, 1)[:, None, None, :]  # [N,1,1,K]
    added = torch.zeros_like(seen, dtype=torch.float32).masked_fill(~seen, -torch.inf)
    if positions.bias is not None:
        added = added + positions.bias.float()
    if front is not None:
        N = mask.shape[0] * mask.shape[1]
        keys, values = (
            torch.cat((split_heads(f, num_heads)[:, None].expand(-1, N, -1, -1, -1), x), 3)
            for f, x in zip(front, (keys, values), strict=True)
        )
        added = torch.nn.functional.pad(added, (front.shape[2], 0))
        if positions.front is not None:
            bias = torch.nn.functional.pad(positions.front, (0, mask[0, 0].numel()))
            added = added + bias[:, None]
    scores = (tiles.float() * tiles.shape[-1] ** -0.5) @ keys.float().transpose(-2, -1)
    weights = torch.nn.functional.dropout((scores + added).softmax(-1), drop)
    x = weights.to(q.dtype) @ values
    # [B,N,h,T,d] -> [B,Nh,Nw,h,a,b,d] -> [B,Nh,Nw,a,b,h,d] -> [B,H,W,h,d] -> [B,H,W,C]
    x = x.unflatten(3, (shape[2], shape[3])).unflatten(1, (shape[0], shape[1]))
    return merge(x.permute(0, 1, 2, 4, 5, 3, 6), H, W).flatten(3)


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """[B,Nh,Nw,a,b,C] -> [B,N,h,T,d]."""
    x = x.flatten(3, 4).flatten(1, 2).unflatten(-1, (num_heads, -1))
    return x.transpose(2, 3).contiguous()
