"""Window attention by explicit products; in inference on a CPU in pieces that fit the cache.

With a gradient to follow, the keys in front take part by one product for all windows, under the
windows' own softmax, and are copied for none of them.
"""

import torch
from torch import Tensor

from vit_ls.grid import (
    crop,
    cut,
    cut_halo,
    pad_halo,
    pad_to_multiple,
)
from vit_ls.ops import rules
from vit_ls.ops.impl import pieces
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.impl.front import attend_front
from vit_ls.ops.impl.masks import seen_keys
from vit_ls.ops.recording import hand_over
from vit_ls.ops.softmax_attention import drop_weights, softmax_float32


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
    """See `vit_ls.ops.impl.window_attention`, whose row of products this is."""
    H, W, halo = q.shape[1], q.shape[2], windows.halo
    if windows.window[0] == 0:
        return attend_front(q, front, positions.front, num_heads, "products", drop=drop)
    mask = seen_keys(H, W, windows, q.device, alone=front is None)
    if drop == 0 and rules.in_pieces(q):
        return pieces.window_attention(q, kv, front, mask, positions, windows, num_heads=num_heads)
    if front is not None:
        front = front.unflatten(-1, (num_heads, -1)).transpose(2, 3)  # [2,B,h,E,d]
    q = pad_to_multiple(q, windows.window)
    kv = pad_halo(kv.flatten(0, 1), windows.window, halo).unflatten(0, (2, -1))
    added = _added(mask, positions.bias, q.dtype)
    x = _all_windows(q, kv, front, added, positions, windows, num_heads=num_heads, drop=drop)
    return crop(x, H, W)


def _all_windows(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    added: Tensor,
    positions: Positions,
    windows: Windows,
    *,
    num_heads: int,
    drop: float,
) -> Tensor:
    """Queries [B,Nh*a,Nw*b,C], keys with their halo -> like the queries."""
    q = cut(q, windows.window)
    kv = cut_halo(kv.flatten(0, 1), windows.window, windows.halo).unflatten(0, (2, -1))
    k, v = kv.unbind()
    if positions.query is not None:
        q = q + positions.query
    if positions.key is not None:
        k = k + positions.key
    shape = q.shape
    q, k, v = (_heads_of_windows(x, num_heads) for x in (q, k, v))
    q = q * q.shape[-1] ** -0.5
    scores = q @ k.transpose(-2, -1)
    scores = scores + added
    if front is None:
        weights = softmax_float32(scores, -1)
        hand_over("windows", weights)
        x = drop_weights(weights, drop) @ v
    else:
        x = _with_front(q, v, scores, front, positions.front, drop)
    # [B,h,N,T,d] -> [B,h,Nh,Nw,a,b,d] -> [B,Nh,Nw,a,b,h,d] -> [B,Nh*a,Nw*b,h,d]
    x = x.unflatten(3, shape[3:5]).unflatten(2, shape[1:3]).permute(0, 2, 3, 4, 5, 1, 6)
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2).flatten(3)


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
    to_front, to_window = drop_weights(weights, drop).split(
        (front_scores.shape[-1], scores.shape[-1]), dim=-1
    )
    return to_window @ v + (to_front.flatten(2, 3) @ front_v).unflatten(2, q.shape[2:4])


def _heads_of_windows(x: Tensor, num_heads: int) -> Tensor:
    """[B,Nh,Nw,a,b,C] -> [B,h,N,T,d]: heads first, so that a head's windows are one matrix."""
    x = x.unflatten(-1, (num_heads, -1)).permute(0, 5, 1, 2, 3, 4, 6)
    return x.flatten(4, 5).flatten(2, 3)


def _added(mask: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Bool [1 or B,Nh,Nw,a+2sa,b+2sb], and [h,T,K] or None -> added to scores [B,h,N,T,K]."""
    mask = mask.flatten(3, 4).flatten(1, 2)[:, None, :, None]
    if bias is None:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)
    return torch.where(mask, bias[:, None], -torch.inf).to(dtype)
