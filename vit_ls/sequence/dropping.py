"""Long-short attention on rows with dropout of its weights, for training."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.ops import merge_heads, softmax_float32, split_heads
from vit_ls.sequence.spans import heads_to_tiles, tiles, tiles_behind, tiles_to_heads, untile


def attend_dropping(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    real: Tensor,
    *,
    window: int,
    halo: int,
    num_heads: int,
    p: float,
) -> Tensor:
    """Attend as `long_short_attention` does, and drop each weight with probability p.

    After the softmax, as the released code of arXiv:2107.02192. The weights of all queries are in
    memory at once, which is why this is for training with dropout alone.

    Args:
        q: Queries [B,N,C].
        kv: Keys and values [2,B,N,C].
        front: Those in front of the window [2,B,F,C], or None.
        real: Which tokens are real, bool [B,N].
        window: w, in tokens; 0 for the keys in front alone.
        halo: Keys that a window sees to each side of it.
        num_heads: h.
        p: Probability of dropping a weight.

    Returns:
        [B,N,C]
    """
    q = q * (q.shape[-1] // num_heads) ** -0.5
    scores, vectors = [], 0
    if front is not None:
        vectors = front.shape[2]
        scores.append(split_heads(q, num_heads) @ split_heads(front[0], num_heads).mT)
    if window:
        scores.append(_window_scores(q, kv[0], real, window, halo, num_heads))
    weights = F.dropout(softmax_float32(torch.cat(scores, dim=-1), -1), p)
    y = torch.zeros_like(q)
    if front is not None:
        y = merge_heads(weights[..., :vectors] @ split_heads(front[1], num_heads))
    if window:
        # [B,h,N,K] -> [B,N,h*K] -> [B,n,w,h*K] -> [B,n*h,w,K]
        near = tiles_to_heads(tiles(merge_heads(weights[..., vectors:]), window), num_heads)
        v = tiles_to_heads(_around(kv[1], window, halo), num_heads)
        y = y + untile(heads_to_tiles(near @ v, num_heads), q.shape[1])
    return y


def _window_scores(
    q: Tensor, k: Tensor, real: Tensor, window: int, halo: int, num_heads: int
) -> Tensor:
    """[B,N,C] and [B,N,C] -> [B,h,N,K], lowest where a key is outside or not real."""
    keys = tiles_to_heads(_around(k, window, halo), num_heads)
    scores = tiles_to_heads(tiles(q, window), num_heads) @ keys.mT
    # [B,N,1] -> [B,n,K,1] -> [B,n*h,1,K]
    seen = _around(real.unsqueeze(2), window, halo).mT.repeat_interleave(num_heads, dim=1)
    # not -inf: where nothing is real, a softmax of nothing else would be NaN
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    # [B,n*h,w,K] -> [B,n,w,h*K] -> [B,N,h*K] -> [B,h,N,K]
    return split_heads(untile(heads_to_tiles(scores, num_heads), q.shape[1]), num_heads)


def _around(x: Tensor, window: int, halo: int) -> Tensor:
    """Tiles with `halo` tokens on each side, 0 outside: [B,N,C] -> [B,n,w+2*halo,C]."""
    return tiles_behind(F.pad(x, (0, 0, halo, halo)), window, 2 * halo)
