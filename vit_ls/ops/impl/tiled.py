"""Window attention by windows with a halo: the portable default, linear in the grid's area."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.grid import merge, partition, partition_halo
from vit_ls.ops.impl.arguments import Positions, Windows, added_to_scores
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
    (Nh, Nw, a, b), N = q.shape[1:5], q.shape[1] * q.shape[2]
    q = _to_heads(q, num_heads)
    # k and v in one move: [2,B,H,W,C] -> [2*B,Nh,Nw,a+2sa,b+2sb,C] -> [2,B,N,h,K,d]
    kv = _to_heads(partition_halo(kv.flatten(0, 1), window, halo), num_heads).unflatten(0, (2, -1))
    E, K = 0 if front is None else front.shape[2], kv.shape[4]
    if front is not None:
        few = split_heads(front, num_heads)[:, :, None].expand(-1, -1, N, -1, -1, -1)
        kv = torch.cat((few, kv), dim=4)
    k, v = kv.unbind()
    if positions.query is not None:
        q = q + split_heads(positions.query.flatten(0, 1), num_heads)
    if positions.key is not None:
        k = k + _in_front(split_heads(positions.key.flatten(0, 1), num_heads), E)
    mask = added_to_scores(windows, positions, (E, N, K), q)
    # windows beside heads, so that one mask [N*h,T,K] serves the whole batch unexpanded
    x = attend(q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2), mask, "fused", drop=drop)
    # [B,N*h,T,d] -> [B,Nh,Nw,h,a,b,d] -> [B,Nh,Nw,a,b,h,d] -> [B,H,W,h,d] -> [B,H,W,C]
    x = x.unflatten(2, (a, b)).unflatten(1, (Nh, Nw, num_heads))
    return merge(x.permute(0, 1, 2, 4, 5, 3, 6), H, W).flatten(3)


def _to_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B,Nh,Nw,a,b,C] -> [B,N,h,T,d]."""
    x = x.unflatten(-1, (num_heads, -1)).permute(0, 1, 2, 5, 3, 4, 6)
    return x.flatten(4, 5).flatten(1, 2)


def _in_front(places: Tensor, E: int) -> Tensor:
    """[h,K,d] -> [h,E+K,d]: keys in front have no place."""
    return F.pad(places, (0, 0, E, 0)) if E else places
