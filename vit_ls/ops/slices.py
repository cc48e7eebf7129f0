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
from vit_ls.ops.softmax_attention import attend, split_heads
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


def project_positions(positions: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """P W_q and P W_k, to be added to X W_q and X W_k: (X + P) W = X W + P W.

    Args:
        positions: P [...,C].
        weight: Of q, k and v [3C,C].

    Returns:
        [...,C] each.
    """
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
    if aggregation == "mean" and windows.valid is None:
        # [B,C,H,W] -> [B,C,Nh,Nw]; padding is no part of these means
        y = F.avg_pool2d(y.permute(0, 3, 1, 2), (a, b), ceil_mode=True, count_include_pad=False)
        return y.permute(0, 2, 3, 1)
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
    assert outside is not None
    # the mean over the slice, its padding included, and then over what is no padding: a sum could
    # overflow in half precision
    return tokens.mean((3, 4)) * (a * b / (~outside).sum((-3, -2)).clamp(min=1).to(y.dtype))


def attend_slices(
    q: Tensor,
    kv: Tensor,
    valid: Tensor | None = None,
    drop: float = 0.0,
    *,
    num_heads: int,
    slice_size: tuple[int, int],
) -> Tensor:
    """Y_g of each slice: attention among the slices (Eq. 15).

    Args:
        q: Queries [B,Nh,Nw,C]: S_bar W_q, and P_g W_q where there are positions.
        kv: Keys, likewise, and values [2,B,Nh,Nw,C].
        valid: Which tokens are real, bool [B,H,W]; a slice that has none receives no attention.
        num_heads: h.
        slice_size: (a, b) in tokens.
        drop: Probability that a weight of the softmax is dropped, in training.

    Returns:
        [B,Nh,Nw,h,d]
    """
    seen: Tensor | None = None
    if valid is not None:
        real = partition(valid.unsqueeze(3), slice_size).flatten(3).any(3).flatten(1)
        seen = (real | ~real.any(1, keepdim=True))[:, None, None, :]
    # [B,Nh,Nw,C] -> [B,h,N,d]
    k, v = split_heads(kv.flatten(2, 3), num_heads)
    y = attend(split_heads(q.flatten(1, 2), num_heads), k, v, seen, drop=drop)
    # [B,h,N,d] -> [B,N,h,d] -> [B,Nh,Nw,h,d]
    return y.transpose(1, 2).unflatten(1, q.shape[1:3])


def add_to_tokens(x: Tensor, y_g: Tensor, slice_size: tuple[int, int]) -> Tensor:
    """Add Y_g of a slice to each of its tokens (Eq. 10).

    Args:
        x: [B,H,W,C].
        y_g: [B,Nh,Nw,h,d].
        slice_size: (a, b) in tokens.

    Returns:
        [B,H,W,C]
    """
    # [B,Nh,Nw,a,b,h,d] + [B,Nh,Nw,1,1,h,d]; a sum lies in memory as x does
    tokens = partition(x, slice_size).unflatten(5, y_g.shape[3:]) + y_g[:, :, :, None, None]
    return merge(tokens, x.shape[1], x.shape[2]).flatten(3)
