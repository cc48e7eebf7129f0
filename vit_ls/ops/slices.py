"""The steps of composite slice attention on a grid (Lee et al., ICLR 2023, section 4).

https://openreview.net/forum?id=nWTzIsgrYNN treats sequences; the form on a grid is ours. A slice is
a window of L = a * b tokens; slices of (1, b), where b divides the width and nothing extends them,
are the paper's slices of the flattened grid. One step is one function, since the layer projects
between the local and the global attention, by the same weights. The causal form (Eq. 12) has no
meaning on a grid.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.grid import merge, partition, partition_halo
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.softmax_attention import attend, merge_heads, split_heads
from vit_ls.ops.window import inside, window_attention


def slice_halo(slice_size: tuple[int, int], alpha: float) -> tuple[int, int]:
    """How far the keys of an extended slice reach beyond it, in tokens, on each axis (Eq. 11).

    Alpha counts on each axis, so that a slice has up to alpha^2 L keys; halves round to even.

    Raises:
        ValueError: a slice without tokens, or alpha outside [1, 3].
    """
    a, b = slice_size
    if a < 1 or b < 1:
        raise ValueError(f"slice_size must be positive, got {slice_size}.")
    if not 1 <= alpha <= 3:
        raise ValueError(f"alpha must lie in [1, 3], got {alpha}.")
    return round((alpha - 1) * a / 2), round((alpha - 1) * b / 2)


def slice_attention(
    q: Tensor,
    kv: Tensor,
    pos_q: Tensor | None,
    pos_k: Tensor | None,
    windows: Windows,
    impl: str = "auto",
    drop: float = 0.0,
    *,
    num_heads: int,
) -> Tensor:
    """Y_l: attention inside each slice, or inside its extension (Eq. 14, and Eq. 11).

    Differs from the paper: keys outside the grid get no attention instead of being zeros.

    Args:
        q: S W_q, the queries [B,H,W,C].
        kv: S W_k and S W_v [2,B,H,W,C].
        pos_q: P_l W_q [a+2sa,b+2sb,C], of which queries take the middle, or None.
        pos_k: P_l W_k [a+2sa,b+2sb,C], or None.
        windows: The slices of the grid, with the halo of `slice_halo`.
        impl: "auto", or a name in `vit_ls.ops.impl.IMPLEMENTATIONS`.
        num_heads: h.
        drop: Probability that a weight of the softmax is dropped, in training.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: an unknown impl.
    """
    (a, b), (sa, sb) = windows.window, windows.halo
    if pos_q is not None:
        pos_q = pos_q[sa : sa + a, sb : sb + b]
    positions = Positions(None, pos_q, pos_k)
    return window_attention(
        q, kv, None, positions, windows, num_heads=num_heads, impl=impl, drop=drop
    )


def project_positions(positions: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
    """P W_q and P W_k, to be added to X W_q and X W_k: (X + P) W = X W + P W.

    Args:
        positions: P [...,C].
        weight: Of q, k and v [3C,C].

    Returns:
        [...,C] each.
    """
    assert positions is not None
    q, k = F.linear(positions, weight[: 2 * positions.shape[-1]]).chunk(2, dim=-1)
    return q, k


def slice_tokens(x: Tensor, windows: Windows) -> Tensor:
    """The tokens of each extended slice, zeros outside the grid: [B,H,W,C] -> [B,Nh,Nw,C,K].

    Args:
        x: [B,H,W,C].
        windows: The slices of the grid.
    """
    mask = inside(x, windows) if windows.mask is None else windows.mask
    if windows.valid is not None:
        x = x.masked_fill(~windows.valid.unsqueeze(3), 0.0)
    tokens = partition_halo(x, windows.window, windows.halo)
    if mask is not None:
        tokens = tokens.masked_fill(~mask.unsqueeze(-1), 0.0)
    # [B,Nh,Nw,a+2sa,b+2sb,C] -> [B,Nh,Nw,K,C] -> [B,Nh,Nw,C,K]
    return tokens.flatten(3, 4).transpose(3, 4)


def slice_embedding(
    y: Tensor, windows: Windows, weight: Tensor | None = None, *, aggregation: str
) -> Tensor:
    """S_bar: one token for each slice, out of those of its tokens that are real and in the grid.

    A slice that has none is zero.

    Args:
        y: [B,H,W,C].
        windows: The slices of the grid.
        weight: [1,L] of the aggregation "linear".
        aggregation: "mean", "max", or "linear": the sum with `weight`.

    Returns:
        [B,Nh,Nw,C]
    """
    (a, b), (sa, sb) = windows.window, windows.halo
    mask = inside(y, windows) if windows.mask is None else windows.mask
    outside = None if mask is None else ~mask[..., sa : sa + a, sb : sb + b].unsqueeze(-1)
    if windows.valid is not None:
        unreal = ~partition(windows.valid.unsqueeze(3), windows.window)
        outside = unreal if outside is None else outside | unreal
    tokens = partition(y, windows.window)
    if aggregation == "max" and outside is not None:
        largest = tokens.masked_fill(outside, -torch.inf).amax((3, 4))
        return largest.masked_fill(outside.flatten(-3, -2).all(-2), 0.0)
    if aggregation == "max":
        return tokens.amax((3, 4))
    # contiguous either way, since the order of a sum follows the layout
    tokens = tokens.contiguous() if outside is None else tokens.masked_fill(outside, 0.0)
    if weight is not None:
        return (tokens * weight.view(a, b, 1)).sum((3, 4))
    if outside is None:
        return tokens.mean((3, 4))
    # the mean over the slice, its padding included, and then over what is no padding: a sum could
    # overflow in half precision
    return tokens.mean((3, 4)) * (a * b / (~outside).sum((-3, -2)).clamp(min=1).to(y.dtype))


def attend_slices(
    q: Tensor,
    kv: Tensor,
    pos_q: Tensor | None = None,
    pos_k: Tensor | None = None,
    valid: Tensor | None = None,
    drop: float = 0.0,
    *,
    num_heads: int,
    slice_size: tuple[int, int],
    height: int,
    width: int,
) -> Tensor:
    """Y_g: attention among the slices (Eq. 15), given to each token of a slice (Eq. 10).

    Args:
        q: S_bar W_q, the queries [B,Nh,Nw,C].
        kv: S_bar W_k and S_bar W_v [2,B,Nh,Nw,C].
        pos_q: P_g W_q [Nh,Nw,C], or None.
        pos_k: P_g W_k [Nh,Nw,C], or None.
        valid: Which tokens are real, bool [B,H,W]; a slice that has none receives no attention.
        num_heads: h.
        slice_size: (a, b) in tokens.
        height: H.
        width: W.
        drop: Probability that a weight of the softmax is dropped, in training.

    Returns:
        [B,H,W,C]
    """
    slices = q.shape[1:3]
    k, v = kv.unbind()
    if pos_q is not None:
        q = q + pos_q
    if pos_k is not None:
        k = k + pos_k
    q, k, v = (
        split_heads(q.flatten(1, 2), num_heads),
        split_heads(k.flatten(1, 2), num_heads),
        split_heads(v.flatten(1, 2), num_heads),
    )
    seen: Tensor | None = None
    if valid is not None:
        real = partition(valid.unsqueeze(3), slice_size).flatten(3).any(3).flatten(1)
        seen = (real | ~real.any(1, keepdim=True))[:, None, None, :]
    # [B,h,N,d] -> [B,Nh,Nw,1,1,C] -> [B,Nh,Nw,a,b,C] -> [B,H,W,C]
    y = merge_heads(attend(q, k, v, seen, drop=drop)).unflatten(1, (slices[0], slices[1], 1, 1))
    return merge(y.expand(-1, -1, -1, slice_size[0], slice_size[1], -1), height, width)
