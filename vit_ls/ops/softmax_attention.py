"""Softmax attention of one set of queries over one set of keys: what every other op ends in."""

import torch
import torch.nn.functional as F
from timm.layers import register_notrace_function, use_fused_attn
from torch import Tensor


@register_notrace_function
def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(q k^T / sqrt(d) + mask) v, with the softmax in float32 or wider.

    Goes through `scaled_dot_product_attention`, or through explicit products where timm's fused
    attention is off (`timm.layers.set_fused_attn(False)`), which is how FLOPs are counted, and in
    an export to ONNX.

    Args:
        q: Queries [B,h,T,d].
        k: Keys [B,h,K,d].
        v: Values [B,h,K,d].
        mask: Added to the scores (float), or True where a key may be seen (bool). Broadcasts to
            [B,h,T,K], and has four dimensions: with fewer the fused kernel for CPUs is not taken.
            Every query must see at least one key.

    Returns:
        [B,h,T,d]
    """
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
    if not torch.jit.is_scripting():  # noqa: SIM102  TorchScript must not see the inner one
        # for ONNX, since the exporter's passes disagree on the layout of the fused kernel's output
        if not use_fused_attn() or torch.onnx.is_in_onnx_export():
            return _explicit(q, k, v, mask)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def softmax_float32(scores: Tensor, dim: int) -> Tensor:
    """Softmax in float32 where `scores` are narrower, in their own type where they are not."""
    if scores.dtype == torch.float16 or scores.dtype == torch.bfloat16:
        return scores.softmax(dim, dtype=torch.float32).to(scores.dtype)
    return scores.softmax(dim)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B,N,C] -> [B,h,N,d]. A view."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B,h,N,d] -> [B,N,C]. The inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)


def _explicit(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    return softmax_float32(scores, -1) @ v
