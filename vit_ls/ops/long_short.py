"""Long-short attention: a window and a dynamic projection under one softmax (arXiv:2107.02192)."""

import torch
from timm.layers import register_notrace_function
from torch import Tensor

from vit_ls.ops.impl import window_attention
from vit_ls.ops.softmax_attention import attend, merge_heads, softmax_float32, split_heads


@register_notrace_function
def dynamic_projection(
    logits: Tensor, k: Tensor, v: Tensor, *, num_heads: int
) -> tuple[Tensor, Tensor]:
    """Project keys and values onto R tokens: P = softmax over tokens, K_bar = P^T K, V_bar = P^T V.

    "Long-range attention via dynamic projection" in section 3 of the paper, where R is r.

    Args:
        logits: [B,H,W,h*R], channel head * R + r.
        k: Keys [B,H,W,C].
        v: Values [B,H,W,C].
        num_heads: h.

    Returns:
        K_bar and V_bar, [B,R,C] each.
    """
    # [B,H,W,h*R] -> [B,h,N,R] -> [B,h,R,N]
    P = softmax_float32(split_heads(logits.flatten(1, 2), num_heads).transpose(2, 3), -1).to(
        k.dtype
    )
    k_bar = P @ split_heads(k.flatten(1, 2), num_heads)
    v_bar = P @ split_heads(v.flatten(1, 2), num_heads)
    return merge_heads(k_bar), merge_heads(v_bar)


@register_notrace_function
def long_short_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    projected_k: Tensor | None = None,
    projected_v: Tensor | None = None,
    global_k: Tensor | None = None,
    global_v: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    impl: str = "auto",
    *,
    num_heads: int,
    window: tuple[int, int],
    halo: tuple[int, int],
) -> Tensor:
    """One softmax over [projected | global | window] keys.

    "Aggregating long-range and short-term attentions" in section 3 of the paper.

    Args:
        q: Queries [B,H,W,C].
        k: Keys [B,H,W,C].
        v: Values [B,H,W,C].
        projected_k: [B,R,C], or None for no projection (rank 0).
        projected_v: [B,R,C], or None.
        global_k: Keys of the global tokens [B,G,C], or None for no global tokens.
        global_v: Their values [B,G,C], or None.
        bias: Added to the scores of the window's keys [h,T,K], or None.
        mask: `vit_ls.grid.halo_mask` of this grid if it has been made already.
        impl: "auto", or a name in `vit_ls.ops.impl.IMPLEMENTATIONS`.
        num_heads: h.
        window: (a, b) in tokens; (0, 0) for projected and global keys only.
        halo: (sa, sb), how far a window's keys reach beyond it, in tokens.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: window 0 without projected or global keys, or an unknown impl.
    """
    front_k, front_v = _concat(projected_k, global_k), _concat(projected_v, global_v)
    if window[0] == 0 and front_k is None:
        raise ValueError(
            "Without a window there must be projected or global keys, "
            "got window=0, rank=0 and no global tokens."
        )
    return window_attention(
        q,
        k,
        v,
        front_k,
        front_v,
        bias,
        None,
        None,
        mask,
        impl,
        num_heads=num_heads,
        window=window,
        halo=halo,
    )


@register_notrace_function
def global_attention(q: Tensor, k: Tensor, v: Tensor, outputs: Tensor, *, num_heads: int) -> Tensor:
    """The global tokens attend to each other and to the grid.

    Differs from the paper, as its released image code does: they see the OUTPUTS of the grid's own
    attention, as keys and as values, instead of the grid's keys and values.

    Args:
        q: Queries of the global tokens [B,G,C].
        k: Their keys [B,G,C].
        v: Their values [B,G,C].
        outputs: Of `long_short_attention`, [B,H,W,C].
        num_heads: h.

    Returns:
        [B,G,C]
    """
    outputs = outputs.flatten(1, 2)
    g = attend(
        split_heads(q, num_heads),
        split_heads(torch.cat((k, outputs), dim=1), num_heads),
        split_heads(torch.cat((v, outputs), dim=1), num_heads),
    )
    return merge_heads(g)


def _concat(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """[B,R,C] and [B,G,C] -> [B,R+G,C], where either may be missing."""
    if first is None:
        return second
    if second is None:
        return first
    return torch.cat((first, second), dim=1)
