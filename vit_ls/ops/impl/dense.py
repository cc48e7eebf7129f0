"""Window attention as its definition says it: every query against every token, under an N x N mask.

Quadratic in the area of the grid: for tests and small grids.
"""

import torch
from torch import Tensor

from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.softmax_attention import attend, merge_heads, split_heads


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
    """See `vit_ls.ops.window_attention`, whose dense row this is."""
    H, W = q.shape[1:3]
    query, key, seen = _pairs(H, W, windows, q.device)
    q = q.flatten(1, 2)
    if positions.query is not None:
        q = q + positions.query.flatten(0, 1)[query[:, 0]]
    q, k, v = (split_heads(x, num_heads) for x in (q, *kv.flatten(2, 3).unbind()))
    seen = seen[None, None]
    if windows.valid is not None:
        seen = seen & windows.valid.flatten(1)[:, None, None, :]
        if front is None:  # a softmax needs a key, also where no token is real
            seen = seen | ~seen.any(-1, keepdim=True)
    scores = torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, -torch.inf)
    if positions.bias is not None:
        scores = scores + positions.bias[:, query, key]
    if positions.key is not None:
        scores = scores + _scores_of_positions(
            q, split_heads(positions.key.flatten(0, 1)[None], num_heads), key
        )
    if front is not None:
        k = torch.cat((split_heads(front[0], num_heads), k), dim=2)
        v = torch.cat((split_heads(front[1], num_heads), v), dim=2)
        scores = torch.nn.functional.pad(scores, (front.shape[2], 0))
        if positions.front is not None:
            scores = scores + torch.nn.functional.pad(positions.front, (0, H * W))[:, None]
    return merge_heads(attend(q, k, v, scores, drop=drop)).unflatten(1, (H, W))


def _pairs(H: int, W: int, windows: Windows, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """For each pair of tokens: place of query and of key in the query's window, and "seen".

    Returns:
        Three [H*W,H*W] tensors: long in [0,T), long in [0,K) (0 where not seen), bool.
    """
    (a, b), (sa, sb) = windows.window, windows.halo
    if a == 0:
        nothing = torch.zeros(H * W, H * W, dtype=torch.long, device=device)
        return nothing, nothing, nothing.bool()
    y, x = (
        i.flatten()
        for i in torch.meshgrid(*(torch.arange(n, device=device) for n in (H, W)), indexing="ij")
    )
    query = (y % a * b + x % b)[:, None].expand(-1, H * W)
    from_top = y[None, :] - (y // a * a)[:, None] + sa
    from_left = x[None, :] - (x // b * b)[:, None] + sb
    seen = (from_top >= 0) & (from_top < a + 2 * sa) & (from_left >= 0) & (from_left < b + 2 * sb)
    key = from_top * (b + 2 * sb) + from_left
    return query, key.where(seen, 0), seen


def _scores_of_positions(q: Tensor, key_pos: Tensor, key: Tensor) -> Tensor:
    """q_i . p_{key(i,j)} / sqrt(d): [B,h,H*W,d], [1,h,K,d], [H*W,H*W] -> [B,h,H*W,H*W]."""
    by_place = (q * q.shape[-1] ** -0.5) @ key_pos.transpose(-2, -1)
    return by_place.gather(-1, key.expand(*by_place.shape[:2], -1, -1))
