"""Long-short attention: a window and a dynamic projection under one softmax (arXiv:2107.02192)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.ops.impl import Positions, Windows, window_attention
from vit_ls.ops.recording import hand_over
from vit_ls.ops.softmax_attention import attend, merge_heads, softmax_float32, split_heads


def dynamic_projection(logits: Tensor, kv: Tensor, *, num_heads: int) -> Tensor:
    """Project keys and values onto R tokens: P = softmax over tokens, K_bar = P^T K, V_bar = P^T V.

    "Long-range attention via dynamic projection" in section 3 of the paper, where R is r.

    Args:
        logits: [B,H,W,h*R], channel head * R + r.
        kv: Keys and values [2,B,H,W,C].
        num_heads: h.

    Returns:
        K_bar and V_bar [2,B,R,C].
    """
    # [B,H,W,h*R] -> [B,h,N,R] -> [B,h,R,N]
    P = softmax_float32(split_heads(logits.flatten(1, 2), num_heads).transpose(2, 3), -1).to(
        kv.dtype
    )
    hand_over("projection", P)
    k, v = kv.flatten(2, 3).unbind()
    k_bar = P @ split_heads(k, num_heads)
    v_bar = P @ split_heads(v, num_heads)
    return torch.stack((merge_heads(k_bar), merge_heads(v_bar)))


def long_short_attention(
    q: Tensor,
    kv: Tensor,
    projected: Tensor | None,
    tokens: Tensor | None,
    positions: Positions,
    windows: Windows,
    impl: str = "auto",
    drop: float = 0.0,
    *,
    num_heads: int,
) -> Tensor:
    """One softmax over [projected | global | window] keys.

    "Aggregating long-range and short-term attentions" in section 3 of the paper.

    Args:
        q: Queries [B,H,W,C].
        kv: Keys and values [2,B,H,W,C].
        projected: Of `dynamic_projection` [2,B,R,C], or None for no projection (rank 0).
        tokens: Keys and values of the global tokens [2,B,G,C], or None for no global tokens.
        positions: The bias of the window's keys, if any.
        windows: The windows of the grid; (0, 0) for projected and global keys only.
        impl: "auto", or a name in `vit_ls.ops.impl.IMPLEMENTATIONS`.
        num_heads: h.
        drop: Probability that a weight of the softmax is dropped, in training; P keeps its own.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: window 0 without projected or global keys, or an unknown impl.
    """
    front = _concat(projected, tokens)
    if windows.window[0] == 0 and front is None:
        raise ValueError(
            "Without a window there must be projected or global keys, "
            "got window=0, rank=0 and no global tokens."
        )
    return window_attention(
        q, kv, front, positions, windows, num_heads=num_heads, impl=impl, drop=drop
    )


def global_attention(
    q: Tensor,
    kv: Tensor,
    grid_k: Tensor,
    grid_v: Tensor,
    bias: Tensor | None = None,
    valid: Tensor | None = None,
    drop: float = 0.0,
    *,
    num_heads: int,
) -> Tensor:
    """The global tokens attend to each other and to the grid.

    The paper's released image code, unlike its text, has the OUTPUTS of `long_short_attention` as
    keys and as values; Vision Longformer (arXiv:2103.15358) has the grid's keys and values.

    Args:
        q: Queries of the global tokens [B,G,C].
        kv: Their keys and values [2,B,G,C].
        grid_k: What they see of the grid, as keys [B,H,W,C].
        grid_v: What they see of the grid, as values [B,H,W,C].
        bias: Added to the scores [h,G,G+H*W], or None.
        valid: Which tokens of the grid are real, bool [B,H,W]; None for all.
        num_heads: h.
        drop: Probability that a weight of the softmax is dropped, in training.

    Returns:
        [B,G,C]
    """
    mask: Tensor | None = None if bias is None else bias[None]
    if valid is not None:
        mask = F.pad(valid.flatten(1), (q.shape[1], 0), value=1.0)[:, None, None, :]
        if bias is not None:
            mask = torch.where(mask, bias, -torch.inf)
    k, v = kv.unbind()
    g = attend(
        split_heads(q, num_heads),
        split_heads(torch.cat((k, grid_k.flatten(1, 2)), dim=1), num_heads),
        split_heads(torch.cat((v, grid_v.flatten(1, 2)), dim=1), num_heads),
        mask,
        drop=drop,
    )
    return merge_heads(g)


def _concat(projected: Tensor | None, tokens: Tensor | None) -> Tensor | None:
    """[2,B,R,C] and [2,B,G,C] -> [2,B,R+G,C], where either may be missing."""
    if projected is None:
        return tokens
    if tokens is None:
        return projected
    return torch.cat((projected, tokens), dim=2)
