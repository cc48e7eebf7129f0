"""Window attention by the indices of the tokens of a window, for the graphs of runtimes first.

Windows stand beside heads, so that what follows the gathers is attention as runtimes know it,
[B,tokens,heads,d] -> [B,heads,tokens,d] and back, for which OpenVINO has one kernel. The
overlapping views of the other rows become many transposes there.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.grid import num_windows
from vit_ls.ops.impl.arguments import Positions, Windows, added_to_scores
from vit_ls.ops.softmax_attention import attend


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
    """See `vit_ls.ops.window_attention`, whose gathered row this is."""
    H, W = q.shape[1], q.shape[2]
    queries = _tokens_of_windows(H, W, windows.window, (0, 0), q.device)
    keys = _tokens_of_windows(H, W, windows.window, windows.halo, q.device)
    E = 0 if front is None else front.shape[2]
    K, N = keys.shape
    added = added_to_scores(windows, positions, (E, N, K), q)
    kv = kv.flatten(2, 3)
    if front is not None:
        first = torch.arange(E, device=q.device)[:, None].expand(-1, keys.shape[1])
        kv, keys = torch.cat((front, kv), dim=2), torch.cat((first, keys + E))
    k, v = kv.unbind()
    q, k, v = (
        _take(q.flatten(1, 2), queries, positions.query),
        _take(k, keys, positions.key, E),
        _take(v, keys, None),
    )
    # [B,T,N,C] -> [B,T,N*h,d] -> [B,N*h,T,d]
    q, k, v = (x.unflatten(3, (num_heads, -1)).flatten(2, 3).transpose(1, 2) for x in (q, k, v))
    # [B,N*h,T,d] -> [B,T,N*h,d] -> [B,T,N,C] -> [B,T*N,C] -> [B,H*W,C]
    x = attend(q, k, v, added, impl="products", drop=drop).transpose(1, 2)
    x = x.unflatten(2, (-1, num_heads)).flatten(3).flatten(1, 2)
    return x.index_select(1, _place_in_windows(H, W, windows.window, x.device)).unflatten(1, (H, W))


def _take(x: Tensor, tokens: Tensor, positions: Tensor | None, front: int = 0) -> Tensor:
    """The `tokens` [E+K,N] of x [B,E+H*W,C]: [B,E+K,N,C].

    Each of K gets its place's one of `positions` [...,C]; those in front, which have none, do not.
    """
    x = x.index_select(1, tokens.flatten()).unflatten(1, tokens.shape)
    if positions is None:
        return x
    return x + F.pad(positions.flatten(0, 1), (0, 0, front, 0))[:, None]


def _tokens_of_windows(
    H: int, W: int, window: tuple[int, int], halo: tuple[int, int], device: torch.device
) -> Tensor:
    """Index of the tokens of each window in the grid, long [K,N]; outside it, the nearest."""
    y = _along(H, window[0], halo[0], device)
    x = _along(W, window[1], halo[1], device)
    # [a+2sa,1,Nh,1] and [1,b+2sb,1,Nw] -> [K,N]
    return (y[:, None, :, None] * W + x[None, :, None, :]).flatten(2, 3).flatten(0, 1)


def _along(size: int, window: int, halo: int, device: torch.device) -> Tensor:
    """Place on an axis, long [a+2sa,Nh]."""
    first = torch.arange(num_windows(size, window), device=device) * window - halo
    place = torch.arange(window + 2 * halo, device=device)[:, None] + first
    return place.clamp(0, size - 1)


def _place_in_windows(H: int, W: int, window: tuple[int, int], device: torch.device) -> Tensor:
    """Where each token of the grid is among those of the windows [T,N]: long [H*W]."""
    (a, b), Nh, Nw = window, num_windows(H, window[0]), num_windows(W, window[1])
    y, x = torch.arange(H, device=device)[:, None], torch.arange(W, device=device)
    place = (y % a * b + x % b) * (Nh * Nw) + y // a * Nw + x // b
    return place.flatten()
