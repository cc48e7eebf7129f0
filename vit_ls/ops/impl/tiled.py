"""Window attention by windows with a halo: the portable default, linear in the grid's area."""

import torch
from torch import Tensor

from vit_ls.grid import merge, partition, partition_halo
from vit_ls.ops.impl.arguments import Positions, Windows, mask_with_bias, mask_with_front
from vit_ls.ops.softmax_attention import attend, split_heads


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
    """See `vit_ls.ops.window_attention`, whose tiled row this is."""
    H, W = q.shape[1], q.shape[2]
    window, halo = windows.window, windows.halo
    q = partition(q, window)
    # k and v in one move: [2,B,H,W,C] -> [2*B,Nh,Nw,a+2sa,b+2sb,C] -> [2,B,Nh,Nw,a+2sa,b+2sb,C]
    kv = partition_halo(kv.flatten(0, 1), window, halo).unflatten(0, (2, -1))
    k, v = kv.unbind()
    grid = q.shape[1:5]
    query_pos, key_pos = positions.query, positions.key
    if query_pos is not None:
        q = q + query_pos
    if key_pos is not None:
        k = k + key_pos
    q, k, v = (
        _windows_to_heads(q, num_heads),
        _windows_to_heads(k, num_heads),
        _windows_to_heads(v, num_heads),
    )
    N = grid[0] * grid[1]
    mask = mask_with_bias(windows.mask, positions.bias, num_heads, N)
    if front is not None:
        mask = mask_with_front(mask, positions.front, (front.shape[2], N, k.shape[2]))
        k = torch.cat((_front_to_heads(front[0], N, num_heads), k), dim=2)
        v = torch.cat((_front_to_heads(front[1], N, num_heads), v), dim=2)
    x = attend(q, k, v, mask, "fused", drop=drop)
    # [B,N*h,T,d] -> [B,Nh,Nw,h,a,b,d] -> [B,Nh,Nw,a,b,h,d] -> [B,H,W,h,d] -> [B,H,W,C]
    x = x.unflatten(2, (grid[2], grid[3])).unflatten(1, (grid[0], grid[1], num_heads))
    return merge(x.permute(0, 1, 2, 4, 5, 3, 6), H, W).flatten(3)


def _windows_to_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B,Nh,Nw,a,b,C] -> [B,N*h,T,d].

    Windows stand beside heads, so that one mask [N*h,T,K] serves the whole batch unexpanded.
    """
    x = x.unflatten(-1, (num_heads, -1)).permute(0, 1, 2, 5, 3, 4, 6)
    return x.flatten(4, 5).flatten(1, 3)


def _front_to_heads(x: Tensor, N: int, num_heads: int) -> Tensor:
    """[B,E,C] -> [B,h,E,d] -> [B,N*h,E,d]: the same front keys for each window."""
    return split_heads(x, num_heads).repeat(1, N, 1, 1)
