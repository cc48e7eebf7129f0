"""Tokens <-> windows on a grid. Knows no attention.

Dim letters of the whole package:
    B batch; H, W grid; C channels (dim); h heads; d head_dim; N windows; T queries per window; K
    keys per window; R projected tokens (rank); G global tokens. A window of T = a * b tokens has K
    = (a + 2 sa)(b + 2 sb) keys, where (sa, sb) is its halo.

Every index move is named and has its inverse beside it: `partition` and `merge`, `pad_to_multiple`
and `crop`; `cut_halo`, whose windows overlap, has its adjoint, `add_halo`. Sizes are (height,
width) in tokens. No function branches on a shape in a graph, so all of them trace with symbolic
sizes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def num_windows(size: int, window: int) -> int:
    """Number of windows along an axis of `size` tokens, the last one perhaps partly outside."""
    return (size + window - 1) // window


def pad_to_multiple(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Pad with zeros below and right until `window` divides: [B,H,W,C] -> [B,Nh*a,Nw*b,C]."""
    below, right = _padding(x, window)
    return _pad(x, [0, 0, 0, right, 0, below])


def crop(x: Tensor, height: int, width: int) -> Tensor:
    """The inverse of `pad_to_multiple`: [B,Nh*a,Nw*b,...] -> [B,H,W,...]."""
    # not a slice: whether that is contiguous depends on the size, which an export would bake in
    return _pad(x, [0, 0] * (x.ndim - 3) + [0, width - x.shape[2], 0, height - x.shape[1]])


def pad_halo(x: Tensor, window: tuple[int, int], halo: tuple[int, int]) -> Tensor:
    """`pad_to_multiple`, and `halo` on each side: [B,H,W,C] -> [B,Nh*a+2sa,Nw*b+2sb,C]."""
    below, right = _padding(x, window)
    return _pad(x, [0, 0, halo[1], halo[1] + right, halo[0], halo[0] + below])


def pad_halo_of_rows(
    x: Tensor, window: tuple[int, int], halo: tuple[int, int], rows: slice
) -> Tensor:
    """What `pad_halo` has of some rows of windows: [B,H,W,C] -> [B,n*a+2sa,Nw*b+2sb,C]."""
    top, bottom = rows.start * window[0] - halo[0], rows.stop * window[0] + halo[0]
    part = x[:, max(top, 0) : bottom]
    above, below = max(-top, 0), bottom - top - part.shape[1] - max(-top, 0)
    return _pad(part, [0, 0, halo[1], halo[1] + _padding(x, window)[1], above, below])


def _padding(x: Tensor, window: tuple[int, int]) -> tuple[int, int]:
    (H, W), (a, b) = (x.shape[1], x.shape[2]), window
    return (H + a - 1) // a * a - H, (W + b - 1) // b * b - W


def _pad(x: Tensor, widths: list[int]) -> Tensor:
    # PyTorch copies even where nothing is to pad
    if not _in_a_graph(x) and not any(widths):
        return x
    return F.pad(x, widths)


def _in_a_graph(x: Tensor) -> bool:
    """Whether x is traced with sizes that other images will not share."""
    return torch.compiler.is_compiling() or isinstance(x, torch.fx.Proxy)


def cut(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Cut what `window` divides into windows: [B,Nh*a,Nw*b,C] -> [B,Nh,Nw,a,b,C], a view."""
    return x.unflatten(2, (-1, window[1])).unflatten(1, (-1, window[0])).transpose(2, 3)


def cut_halo(x: Tensor, window: tuple[int, int], halo: tuple[int, int]) -> Tensor:
    """Cut the result of `pad_halo` into windows with their halo, overlapping views of it.

    [B,Nh*a+2sa,Nw*b+2sb,C] -> [B,Nh,Nw,a+2sa,b+2sb,C]
    """
    if halo[0] == 0 and halo[1] == 0:
        return cut(x, window)
    # on a CPU the backward pass of `unfold` takes several times as long
    if torch.is_grad_enabled() and not _in_a_graph(x) and _is_trained_on_a_cpu(x):
        return _CutHalo.apply(x, window, halo)
    return _cut_halo(x, window, halo)


def add_halo(x: Tensor, window: tuple[int, int], halo: tuple[int, int]) -> Tensor:
    """The adjoint of `cut_halo`, its gradient: each token is the sum of its copies.

    [B,Nh,Nw,a+2sa,b+2sb,C] -> [B,Nh*a+2sa,Nw*b+2sb,C]
    """
    (a, b), (sa, sb) = window, halo
    B, Nh, Nw, K_h, K_w, C = x.shape
    grid = x.new_zeros(B, Nh * a + 2 * sa, Nw * b + 2 * sb, C)
    for top in range(0, K_h, a):
        for left in range(0, K_w, b):
            # the part from (top, left) of each window, at most a window in size: none overlap
            rows, columns = min(a, K_h - top), min(b, K_w - left)
            part = x.narrow(3, top, rows).narrow(4, left, columns)
            tokens = grid.narrow(1, top, (Nh - 1) * a + rows)
            tokens = tokens.narrow(2, left, (Nw - 1) * b + columns)
            # [B,H,W,C] -> [B,Nh,Nw,C,rows,columns] -> [B,Nh,Nw,rows,columns,C]
            tokens = tokens.unfold(1, rows, a).unfold(2, columns, b).permute(0, 1, 2, 4, 5, 3)
            tokens += part
    return grid


def _is_trained_on_a_cpu(x: Tensor) -> bool:
    """Whether a gradient of x will be wanted; a trace cannot hold a gradient of Python's."""
    return x.requires_grad and x.is_cpu and not torch.jit.is_tracing()


class _CutHalo(torch.autograd.Function):
    """`_cut_halo` with `add_halo` as its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, window: tuple[int, int], halo: tuple[int, int]) -> Tensor:
        return _cut_halo(x, window, halo)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _, ctx.window, ctx.halo = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return add_halo(grad, ctx.window, ctx.halo), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _cut_halo(tangent, ctx.window, ctx.halo)


def _cut_halo(x: Tensor, window: tuple[int, int], halo: tuple[int, int]) -> Tensor:
    # [B,H,W,C] -> [B,Nh,Nw,C,a+2sa,b+2sb]
    x = x.unfold(1, window[0] + 2 * halo[0], window[0]).unfold(
        2, window[1] + 2 * halo[1], window[1]
    )
    return x.permute(0, 1, 2, 4, 5, 3)


def partition(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Pad, and cut into windows: [B,H,W,C] -> [B,Nh,Nw,a,b,C], a view of the padded grid."""
    return cut(pad_to_multiple(x, window), window)


def merge(x: Tensor, height: int, width: int) -> Tensor:
    """The inverse of `partition`, padding cut off: [B,Nh,Nw,a,b,...] -> [B,H,W,...]."""
    return crop(x.transpose(2, 3).flatten(3, 4).flatten(1, 2), height, width)


def partition_halo(x: Tensor, window: tuple[int, int], halo: tuple[int, int]) -> Tensor:
    """Cut into windows with a halo on each side: [B,H,W,C] -> [B,Nh,Nw,a+2sa,b+2sb,C].

    Tokens outside the grid are zeros; `halo_mask` tells which they are.
    """
    return cut_halo(pad_halo(x, window, halo), window, halo)


def halo_mask(
    height: int,
    width: int,
    window: tuple[int, int],
    halo: tuple[int, int],
    device: torch.device | None = None,
) -> Tensor:
    """True where a token of `partition_halo` lies inside the grid: bool [Nh,Nw,a+2sa,b+2sb]."""
    rows = _inside(height, window[0], halo[0], device)
    cols = _inside(width, window[1], halo[1], device)
    return rows[:, None, :, None] & cols[None, :, None, :]


def _inside(size: int, window: int, halo: int, device: torch.device | None) -> Tensor:
    first = torch.arange(num_windows(size, window), device=device) * window - halo
    position = first[:, None] + torch.arange(window + 2 * halo, device=device)
    return (position >= 0) & (position < size)


def relative_position_index(
    window: tuple[int, int],
    halo: tuple[int, int],
    row_stride: int,
    device: torch.device | None = None,
) -> Tensor:
    """Row of a position table for each query and key of a window with its halo: long [T,K].

    The row is (qy - ky + sa + a - 1) * row_stride + (qx - kx + sb + b - 1), with keys counted from
    -halo.
    """
    dy = _offsets(window[0], halo[0], device)
    dx = _offsets(window[1], halo[1], device)
    # [a,a+2sa], [b,b+2sb] -> [a,b,a+2sa,b+2sb] -> [T,K]
    index = dy[:, None, :, None] * row_stride + dx[None, :, None, :]
    return index.flatten(2, 3).flatten(0, 1)


def _offsets(window: int, halo: int, device: torch.device | None) -> Tensor:
    query = torch.arange(window, device=device)
    key = torch.arange(window + 2 * halo, device=device) - halo
    return query[:, None] - key[None, :] + (halo + window - 1)
