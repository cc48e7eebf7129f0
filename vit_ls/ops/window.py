"""Window attention, and the steps of long-short attention around it (arXiv:2107.02192)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.grid import halo_mask, partition_halo
from vit_ls.ops import rules
from vit_ls.ops.impl import IMPLEMENTATIONS, WHY_NOT
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.softmax_attention import (
    as_numbers,
    attend,
    merge_heads,
    softmax_float32,
    split_heads,
)

_PREPARED = {"gathered": "products", "products": "products", "tiled": "auto"}
"""Rows that are handed a mask, and what `attend` takes for them where there is no window."""


def window_attention(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    impl: str = "auto",
    *,
    num_heads: int,
    drop: float = 0.0,
) -> Tensor:
    """Attention of each token to the keys around its window and to those in front of all windows.

    One softmax runs over both. Keys outside the grid receive no attention.

    Args:
        q: Queries [B,H,W,C].
        kv: Keys and values [2,B,H,W,C].
        front: Keys that every query sees (projected and global tokens), and their values,
            [2,B,E,C], or None.
        positions: What places in a window add to scores, queries and keys.
        windows: The windows of the grid.
        impl: A row of `vit_ls.ops.impl.IMPLEMENTATIONS`, or "auto" for what `vit_ls.ops.rules`
            says.
        num_heads: h.
        drop: Probability that a weight of the softmax is dropped, in training.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: an unknown impl, or one that cannot run here; no window and no keys in front.
    """
    (a, b), (sa, sb), *_ = windows
    if a == 0 and front is None:
        raise ValueError(
            "Without a window there must be projected or global keys, "
            "got window=0, rank=0 and no global tokens."
        )
    if rules.is_recording():
        windows = windows._replace(plan=None)
    name = impl
    if windows.plan is None:
        name = rules.choose_windows(impl, q, a * b * (a + 2 * sa) * (b + 2 * sb), drop)
    elif impl == "auto":
        name = windows.plan.windows
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"impl must be 'auto' or one of {sorted(IMPLEMENTATIONS)}, got {name!r}.")
    reason = WHY_NOT[name](q, drop) if name in WHY_NOT else None
    if reason is not None:
        raise ValueError(f"impl={name!r} cannot run here: {reason}.")
    if name in _PREPARED:
        if a == 0 and front is not None:
            return _attend_front(q, front, positions.front, num_heads, _PREPARED[name], drop)
        E = 0 if front is None else front.shape[2]
        if not _is_made(windows, num_heads, E, q):
            mask = _seen(q, windows, alone=front is None)
            windows = windows._replace(outside=_outside(mask, num_heads, E, q.dtype))
    return IMPLEMENTATIONS[name](q, kv, front, positions, windows, num_heads=num_heads, drop=drop)


def planned(
    x: Tensor, windows: Windows, num_heads: int, front: int = 0, drop: float = 0.0
) -> Windows:
    """The windows of x [B,H,W,...] with what all layers on that grid would decide and make alike.

    Args:
        x: What enters the layers, for its size, its device and its dtype.
        windows: Those of any grid.
        num_heads: h.
        front: E, how many keys the layers have in front of those of a window.
        drop: As in `window_attention`.
    """
    (a, b), (sa, sb), *_ = windows
    if a == 0:
        return windows
    name = rules.choose_windows("auto", x, a * b * (a + 2 * sa) * (b + 2 * sb), drop)
    plan = rules.plan(x, name)
    if name not in _PREPARED:
        return windows._replace(plan=None)
    windows = windows._replace(mask=inside(x, windows), plan=plan)
    return windows._replace(outside=_outside(windows.mask, num_heads, front, plan.dtype))


def _is_made(windows: Windows, num_heads: int, E: int, q: Tensor) -> bool:
    """Whether what the mask adds to scores has been made, for such queries and E keys in front."""
    if windows.plan is None or windows.valid is not None:
        return False
    made = windows.outside
    if made is None:
        return windows.mask is None
    K = (windows.window[0] + 2 * windows.halo[0]) * (windows.window[1] + 2 * windows.halo[1])
    return made.dtype == q.dtype and made.shape[2:] == (num_heads, 1, E + K)


def _outside(mask: Tensor | None, num_heads: int, E: int, dtype: torch.dtype) -> Tensor | None:
    """See `Windows.outside`: bool [1 or B,Nh,Nw,a+2sa,b+2sb] -> [1 or B,N,h,1,E+K]."""
    if mask is None:
        return None
    added = F.pad(as_numbers(mask.flatten(3, 4).flatten(1, 2)[:, :, None, None], dtype), (E, 0))
    return added.expand(-1, -1, num_heads, -1, -1).contiguous()


def inside(x: Tensor, windows: Windows) -> Tensor | None:
    """Which keys of windows lie inside the grid x [B,H,W,...], bool [1,Nh,Nw,a+2sa,b+2sb].

    None where all of them do: without a halo, on a grid that the windows divide evenly.
    """
    if divides(x, windows):
        return None
    H, W = x.shape[1], x.shape[2]
    if torch.compiler.is_compiling():  # whose sizes are symbols, for which ones are no constant
        return halo_mask(H, W, windows.window, windows.halo, x.device)[None]
    tokens = torch.ones(1, H, W, 1, dtype=torch.bool, device=x.device)
    return partition_halo(tokens, windows.window, windows.halo)[..., 0]


def divides(x: Tensor, windows: Windows) -> bool:
    """Whether windows without a halo divide the grid x [B,H,W,...] evenly; no graph may ask."""
    if torch.compiler.is_compiling() or windows.halo != (0, 0):
        return False
    (H, W), (a, b) = x.shape[1:3], windows.window
    return not (H % a or W % b)


def _seen(x: Tensor, windows: Windows, *, alone: bool) -> Tensor | None:
    """As `inside`, and which of the keys are real [B,...]; `alone` without keys in front."""
    mask, valid = windows.mask, windows.valid
    mask = inside(x, windows) if mask is None else mask
    if valid is None:
        return mask
    real = partition_halo(valid.unsqueeze(3), windows.window, windows.halo)[..., 0]
    mask = real if mask is None else mask & real
    if alone:  # a softmax needs a key, also where no token is real
        mask = mask | ~mask.any(-1, keepdim=True).any(-2, keepdim=True)
    return mask


def _attend_front(
    q: Tensor, front: Tensor, bias: Tensor | None, num_heads: int, impl: str, drop: float
) -> Tensor:
    """Queries [B,H,W,C], keys and values [2,B,E,C], and [h,E] or None -> [B,H,W,C]."""
    k, v = split_heads(front, num_heads)
    mask = None if bias is None else bias[None, :, None, :]
    x = attend(split_heads(q.flatten(1, 2), num_heads), k, v, mask, impl, drop=drop)
    return merge_heads(x).unflatten(1, q.shape[1:3])


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
    logits = split_heads(logits.flatten(1, 2), num_heads).transpose(2, 3)
    P = softmax_float32(logits, -1).to(kv.dtype)
    rules.hand_over("projection", P)
    # k and v in one product: [2,B,H,W,C] -> [B,h,N,2,d] -> [B,h,N,2*d]
    kv = kv.flatten(2, 3).unflatten(3, (num_heads, -1)).permute(1, 3, 2, 0, 4).flatten(3)
    # [B,h,R,2*d] -> [2,B,R,h,d] -> [2,B,R,C]
    return (P @ kv).unflatten(3, (2, -1)).permute(3, 0, 2, 1, 4).flatten(3)


def long_short_attention(
    q: Tensor,
    kv: Tensor,
    projected: Tensor | None,
    tokens: Tensor | None,
    positions: Positions,
    windows: Windows,
    impl: str = "auto",
    *,
    num_heads: int,
    drop: float = 0.0,
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
        impl: As in `window_attention`.
        num_heads: h.
        drop: Probability that a weight of the softmax is dropped, in training; P keeps its own.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: window 0 without projected or global keys, or an unknown impl.
    """
    front = projected if tokens is None else tokens
    if projected is not None and tokens is not None:
        front = torch.cat((projected, tokens), dim=2)
    return window_attention(q, kv, front, positions, windows, impl, num_heads=num_heads, drop=drop)


def global_attention(
    q: Tensor,
    kv: Tensor,
    grid_kv: Tensor,
    bias: Tensor | None = None,
    valid: Tensor | None = None,
    *,
    num_heads: int,
    drop: float = 0.0,
    plan: rules.Plan | None = None,
) -> Tensor:
    """The global tokens attend to each other and to the grid.

    The paper's released image code, unlike its text, has the OUTPUTS of `long_short_attention` as
    keys and as values; Vision Longformer (arXiv:2103.15358) has the grid's keys and values.

    Args:
        q: Queries of the global tokens [B,G,C].
        kv: Their keys and values [2,B,G,C].
        grid_kv: What they see of the grid, as keys and as values [2,B,H,W,C].
        bias: Added to the scores [h,G,G+H*W], or None.
        valid: Which tokens of the grid are real, bool [B,H,W]; None for all.
        num_heads: h.
        drop: Probability that a weight of the softmax is dropped, in training.
        plan: Of the grid, if it has one.

    Returns:
        [B,G,C]
    """
    mask = None if bias is None else bias[None]
    if valid is not None:
        mask = F.pad(valid.flatten(1), (q.shape[1], 0), value=1.0)[:, None, None, :]
        if bias is not None:
            mask = torch.where(mask, bias, -torch.inf)
    # [2,B,G,C] and [2,B,H,W,C] -> [B,h,G+N,d]
    k, v = split_heads(torch.cat((kv, grid_kv.flatten(2, 3)), dim=2), num_heads)
    return merge_heads(attend(split_heads(q, num_heads), k, v, mask, drop=drop, plan=plan))
