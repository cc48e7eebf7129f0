"""Window attention as its definition says it: every query against every token, under an N x N mask.

Quadratic in the area of the grid: for tests and small grids.
"""

import torch
from torch import Tensor

from vit_ls.ops.softmax_attention import attend, merge_heads, split_heads


def window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    front_k: Tensor | None = None,
    front_v: Tensor | None = None,
    bias: Tensor | None = None,
    query_pos: Tensor | None = None,
    key_pos: Tensor | None = None,
    mask: Tensor | None = None,  # noqa: ARG001  the definition needs no help to find the keys
    *,
    num_heads: int,
    window: tuple[int, int],
    halo: tuple[int, int],
) -> Tensor:
    """See `vit_ls.ops.impl.window_attention`, whose dense row this is."""
    H, W = q.shape[1:3]
    query, key, seen = _pairs(H, W, window, halo, q.device)
    q = q.flatten(1, 2)
    if query_pos is not None:
        q = q + query_pos.flatten(0, 1)[query[:, 0]]
    q, k, v = (split_heads(x, num_heads) for x in (q, k.flatten(1, 2), v.flatten(1, 2)))
    scores = torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, -torch.inf)[None, None]
    if bias is not None:
        scores = scores + bias[:, query, key]
    if key_pos is not None:
        scores = scores + _scores_of_positions(
            q, split_heads(key_pos.flatten(0, 1)[None], num_heads), key
        )
    if front_k is not None and front_v is not None:
        k = torch.cat((split_heads(front_k, num_heads), k), dim=2)
        v = torch.cat((split_heads(front_v, num_heads), v), dim=2)
        scores = torch.nn.functional.pad(scores, (front_k.shape[1], 0))
    return merge_heads(attend(q, k, v, scores)).unflatten(1, (H, W))


def _pairs(
    H: int, W: int, window: tuple[int, int], halo: tuple[int, int], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """For each pair of tokens: place of query and of key in the query's window, and "seen".

    Returns:
        Three [H*W,H*W] tensors: long in [0,T), long in [0,K) (0 where not seen), bool.
    """
    if window[0] == 0:
        nothing = torch.zeros(H * W, H * W, dtype=torch.long, device=device)
        return nothing, nothing, nothing.bool()
    y, x = (
        i.flatten()
        for i in torch.meshgrid(*(torch.arange(n, device=device) for n in (H, W)), indexing="ij")
    )
    (a, b), (sa, sb) = window, halo
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
