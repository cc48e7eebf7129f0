"""Softmax attention of one set of queries over one set of keys: what every other op ends in."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.ops import rules
from vit_ls.ops.rules import hand_over


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    impl: str = "auto",
    drop: float = 0.0,
    plan: rules.Plan | None = None,
) -> Tensor:
    """softmax(q k^T / sqrt(d) + mask) v, with the softmax in float32 or wider.

    Goes through `scaled_dot_product_attention`, or through explicit products where
    `vit_ls.ops.rules` says that these are faster, where timm's fused attention is off
    (`timm.layers.set_fused_attn(False)`), which is how FLOPs are counted, and in an export to ONNX.

    Args:
        q: Queries [B,h,T,d].
        k: Keys [B,h,K,d].
        v: Values [B,h,K,d].
        mask: Added to the scores (float), or True where a key may be seen (bool). Broadcasts to
            [B,h,T,K], and has four dimensions: with fewer the fused kernel for CPUs is not taken.
            Every query must see at least one key.
        impl: "fused", "products", or "auto" for the rules.
        drop: Probability that a weight of the softmax is dropped, in training; the others are
            scaled by 1 / (1 - drop). A recording gets them before.
        plan: Of the grid that these are of, where that has been made.

    Returns:
        [B,h,T,d]

    Raises:
        ValueError: an unknown impl.
    """
    learned = mask
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
    if rules.choose_attention(impl, q, k, mask, drop, plan) == "products":
        if drop == 0 and _is_large(q, k) and rules.in_pieces(q):
            return _products_in_pieces(q, k, v, mask)
        return _products(q, k, v, mask, drop)
    few = rules.images_at_a_time(q, k, learned)
    if few < q.shape[0]:  # each with a copy of the mask, so that their gradients meet unrounded
        pieces = zip(q.split(few), k.split(few), v.split(few), strict=True)
        return torch.cat([attend(*piece, learned, "fused", drop) for piece in pieces])
    # an export would bake the comparison in as a limit of the image's size
    if not torch.compiler.is_exporting() and q.shape[1] > rules.FUSED_HEADS:
        return _fused_in_parts(q, k, v, mask, drop)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)


def softmax_float32(scores: Tensor, dim: int) -> Tensor:
    """Softmax in float32 where `scores` are narrower, in their own type where they are not."""
    if scores.dtype == torch.float16 or scores.dtype == torch.bfloat16:
        if _rounds_once(scores):
            return scores.softmax(dim).to(scores.dtype)
        return scores.softmax(dim, dtype=torch.float32).to(scores.dtype)
    return scores.softmax(dim)


def dropped(weights: Tensor, drop: float) -> Tensor:
    """Weights of a softmax, some of them dropped; without dropout no graph has a trace of it."""
    return F.dropout(weights, drop) if drop > 0 else weights


def _rounds_once(scores: Tensor) -> bool:
    """Whether to leave it to a kernel that computes in float32: for CPUs, with a backward pass.

    It keeps half of the memory. Without a backward pass a float32 copy in the cache takes 0.4 to 1
    times its time, least for rows that are no multiple of 32 numbers.
    """
    return not torch.compiler.is_compiling() and scores.is_cpu and torch.is_grad_enabled()


def check_heads(dim: int, num_heads: int) -> None:
    """Raise ValueError unless `num_heads` heads share `dim` channels evenly."""
    if num_heads < 1 or dim % num_heads:
        raise ValueError(
            f"dim must be divisible by num_heads, got dim={dim}, num_heads={num_heads}."
        )


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[...,N,C] -> [...,h,N,d]. A view."""
    return x.unflatten(-1, (num_heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """[...,h,N,d] -> [...,N,C]. The inverse of `split_heads`."""
    return x.transpose(-3, -2).flatten(-2)


def _fused_in_parts(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, drop: float) -> Tensor:
    parts = []
    for start in range(0, q.shape[1], rules.FUSED_HEADS):
        heads = slice(start, start + rules.FUSED_HEADS)
        some = mask if mask is None or mask.shape[1] == 1 else mask[:, heads]
        few = q[:, heads], k[:, heads], v[:, heads]
        parts.append(F.scaled_dot_product_attention(*few, attn_mask=some, dropout_p=drop))
    return torch.cat(parts, dim=1)


def _is_large(q: Tensor, k: Tensor) -> bool:
    """Whether the scores of these queries and keys are more than one piece."""
    B, h, T, _ = q.shape
    return B * h * T * k.shape[2] * q.element_size() > rules.piece()


def _products(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, drop: float) -> Tensor:
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        mask = as_numbers(mask, q.dtype)
        # the sum of a forward that nothing has to remember takes no memory of its own
        scores = scores + mask if torch.is_grad_enabled() else scores.add_(mask)
    weights = softmax_float32(scores, -1)
    hand_over("tokens", weights)
    return (dropped(weights, drop) if drop > 0 else weights) @ v


def as_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What a mask adds to scores."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, -torch.inf)


def _products_in_pieces(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Without a gradient: some images at a time, or some queries of one."""
    (B, h, T, d), K = q.shape, k.shape[2]
    dtype = rules.dtype_of_products(q)
    most = rules.piece() // dtype.itemsize
    images = min(max(most // (h * T * K), 1), B)
    queries = min(max(most // (images * h * K), 1), T)
    scratch = Scratch(images * h * queries * K, dtype)
    x = q.new_empty(B, T, h, v.shape[-1]).transpose(1, 2)
    if mask is not None:
        mask = as_numbers(mask, q.dtype).expand(B, h, T, K)
    for i in range(0, B, images):
        few = slice(i, i + images)
        keys, values = k[few].to(dtype).contiguous(), v[few].to(dtype).contiguous()
        for t in range(0, T, queries):
            some = slice(t, t + queries)
            scaled = (q[few, :, some] * d**-0.5).to(dtype).contiguous()
            added = None if mask is None else mask[few, :, some]
            x[few, :, some] = scratch.attend(scaled, keys, values, added)
    return x


class Scratch:
    """Memory for the scores of inference on a CPU, piece after piece, in which they become weights.

    Fresh memory for each piece costs more than the softmax of it wherever the allocator gives
    memory back to the system in between: the system then clears each page anew.

    Args:
        numbers: Scores of the largest piece.
        dtype: Of queries, keys, values and scores; the softmax is in float32 or wider.
    """

    def __init__(self, numbers: int, dtype: torch.dtype) -> None:
        self.scores = torch.empty(numbers, dtype=dtype)
        self.narrow = dtype in (torch.float16, torch.bfloat16)
        wide = torch.float32 if self.narrow else dtype
        # not in place: a softmax into its own input takes up to twice the time
        self.weights = torch.empty(numbers, dtype=wide)
        self.wide = torch.empty(numbers if self.narrow else 0, dtype=wide)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *added: Tensor | None) -> Tensor:
        """softmax(q k^T + added) v of one piece.

        Args:
            q: Queries, scaled, [...,T,d], contiguous.
            k: Keys [...,K,d], contiguous.
            v: Values [...,K,d], contiguous.
            *added: Each broadcasts to the scores [...,T,K], or is None.

        Returns:
            [...,T,d]
        """
        batch, T, K = q.shape[:-2], q.shape[-2], k.shape[-2]
        n = batch.numel() * T * K
        scores = self.scores[:n].view(-1, T, K)
        torch.bmm(q.flatten(0, -3), k.flatten(0, -3).mT, out=scores)
        for one in added:
            if one is not None:
                scores.view(*batch, T, K).add_(one)
        weights = self.weights[:n].view(-1, T, K)
        if self.narrow:
            wide = self.wide[:n].view(-1, T, K).copy_(scores)
            weights = scores.copy_(torch.softmax(wide, -1, out=weights))
        else:
            torch.softmax(scores, -1, out=weights)
        return torch.bmm(weights, v.flatten(0, -3)).view(*batch, T, -1)
