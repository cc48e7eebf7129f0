"""Relative position bias: a learned table, of which the bias is an overlapping view.

The halo of a window is half a window (ViL-LS), or a whole one (ViL), for which tables differ.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.grid import relative_position_index
from vit_ls.ops import rules

Sizes = tuple[tuple[int, int], tuple[int, int], int]
"""Window (a, b), halo (sa, sb) and rows of the table from one dy to the next."""


def window_bias(
    table: Tensor, window: tuple[int, int], halo: tuple[int, int], row_stride: int
) -> Tensor:
    """Bias of each query and key of a window: [rows,h] -> [h,T,K], contiguous.

    Args:
        table: A row for each offset, as `vit_ls.grid.relative_position_index` numbers them.
        window: (a, b) in tokens; that of a whole grid is the grid.
        halo: (sa, sb) in tokens.
        row_stride: Rows from one dy to the next.
    """
    sizes = window, halo, row_stride
    table = table.T.contiguous()
    # graphs and traces hold neither a view across a table's rows nor a gradient of Python's
    return _Look.apply(table, sizes) if rules.is_eager() else _look_up(table, sizes)


def grid_bias(table: Tensor, table_grid: tuple[int, int], height: int, width: int) -> Tensor:
    """Bias of each pair of tokens of a whole grid: [(2 H0-1)(2 W0-1),h] -> [h,N,N].

    The table, made for the grid `table_grid` = (H0, W0), is resized to the grid (height, width).
    """
    table = _table_of_grid(table, table_grid, height, width)
    return window_bias(table, (height, width), (0, 0), 2 * width - 1)


def turned_grid_bias(table: Tensor, table_grid: tuple[int, int], height: int, width: int) -> Tensor:
    """As `grid_bias`, with the keys in reverse order: [(2 H0-1)(2 W0-1),h] -> [h,H,W,H,W].

    An overlapping view of the table, whose memory is not the bias's: with the keys turned, the row
    of a pair grows with all places.
    """
    table = _table_of_grid(table, table_grid, height, width).T.contiguous()
    row_stride = 2 * width - 1
    strides = (table.shape[1], row_stride, 1, row_stride, 1)
    return table.as_strided((table.shape[0], height, width, height, width), strides)


def _table_of_grid(table: Tensor, table_grid: tuple[int, int], height: int, width: int) -> Tensor:
    # a graph is of any size, and must not ask; on its own grid no bit of a table would change
    if rules.is_eager() and (height, width) == table_grid:
        return table
    return resize_grid_table(table, table_grid, (height, width))


def _look_up(table: Tensor, sizes: Sizes) -> Tensor:
    """[h,rows] -> [h,T,K], by an index."""
    index = relative_position_index(*sizes, device=table.device)
    return table.index_select(1, index.flatten()).unflatten(1, index.shape)


def _look(table: Tensor, sizes: Sizes) -> Tensor:
    """[h,rows] -> [h,T,K], by a view: the row of a pair is linear in the places of both.

    With the table turned round and the queries in reverse order no factor is negative, so that all
    pairs are one overlapping view of it. It is copied with the keys in their order, along which
    memory is contiguous, and the copy's queries are turned.
    """
    ((a, b), (sa, sb), row_stride), (h, rows) = sizes, table.shape
    places = (h, a, b, a + 2 * sa, b + 2 * sb)
    pairs = table.flip(1).as_strided(places, (rows, row_stride, 1, row_stride, 1))
    # [h,a,b,a+2sa,b+2sb] -> [h,T,K]
    return pairs.flatten(3).flatten(1, 2).flip(1)


class _Look(torch.autograd.Function):
    """`_look` with the gradient of `_look_up`: that of an overlapping view takes far longer."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, sizes: Sizes) -> Tensor:
        ctx.sizes, ctx.rows = sizes, table.shape[1]
        return _look(table, sizes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        window, halo, row_stride = ctx.sizes
        index = relative_position_index(window, halo, row_stride, grad.device)
        table = grad.new_zeros(grad.shape[0], ctx.rows)
        return table.index_add(1, index.flatten(), grad.flatten(1)), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _look(tangent, ctx.sizes)


def resize_grid_table(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize the table of a whole grid: [(2 H0-1)(2 W0-1),h] -> [(2 H-1)(2 W-1),h].

    Args:
        table: One row per offset (dy, dx) between two tokens of a grid, row-major.
        old: The grid (H0, W0) it was made for, in tokens.
        new: The grid (H, W) wanted, in tokens.
    """
    image = table.T.unflatten(1, (2 * old[0] - 1, 2 * old[1] - 1))
    return _resize(image, 2 * new[0] - 1, 2 * new[1] - 1).flatten(1).T


def window_table_rows(window: int, whole_halo: bool = False) -> int:
    """Rows of the table of a square window and its halo, as the released weights have it."""
    if whole_halo:
        return (4 * window - 1) ** 2
    s = window_halo(window)
    return 2 * (window + s - 1) * (2 * s + window + 1) + 1


def window_row_stride(window: int, whole_halo: bool = False) -> int:
    """Rows of the table from one dy to the next.

    With the halo of ViL-LS that is 2 s + w although dx takes 2 (s + w) - 1 values: offsets at the
    end of one dy share their rows with the beginning of the next. The released weights were trained
    so. With ViL's halo of a whole window each offset has a row of its own.
    """
    return 4 * window - 1 if whole_halo else 2 * window_halo(window) + window


def window_halo(window: int, whole: bool = False) -> int:
    """How far the keys of a window reach beyond it: max(1, w // 2), or w; 0 without a window."""
    return window if whole else min(window, max(1, window // 2))


def resize_window_table(table: Tensor, old: int, new: int, whole_halo: bool = False) -> Tensor:
    """Resize the table of a window of side `old` to side `new` (in tokens): [rows0,h] -> [rows,h].

    The table is spread out to one entry per offset, resized bilinearly, and folded back: a row that
    several offsets share becomes their mean.
    """
    if whole_halo:
        return resize_grid_table(table, (2 * old, 2 * old), (2 * new, 2 * new))
    side = 2 * (window_halo(new) + new) - 1
    image = table[_window_rows(old, table)].permute(2, 0, 1)
    return _fold(_resize(image, side, side), new)


def narrow_window_table(table: Tensor, window: int) -> Tensor:
    """The table of a halo of a whole window -> that of half a window: [rows0,h] -> [rows,h].

    Offsets beyond the smaller halo are left out; a row that several share becomes their mean.
    """
    image = table.T.unflatten(1, (4 * window - 1, 4 * window - 1))
    beyond = window - window_halo(window)
    inner = image[:, beyond : image.shape[1] - beyond, beyond : image.shape[2] - beyond]
    return _fold(inner, window)


def _fold(image: Tensor, window: int) -> Tensor:
    """One entry per offset [h,D,D] -> the table of a window [rows,h]."""
    fold = _window_rows(window, image)
    rows = image.new_zeros(window_table_rows(window), image.shape[0])
    count = image.new_zeros(rows.shape[0], 1)
    rows.index_add_(0, fold.flatten(), image.flatten(1).T)
    count.index_add_(0, fold.flatten(), count.new_ones(fold.numel(), 1))
    return rows / count


def _window_rows(window: int, like: Tensor) -> Tensor:
    """Row of each offset (dy, dx) between a query and a key: long [D,D] with D = 2 (s + w) - 1."""
    side = 2 * (window_halo(window) + window) - 1
    # a window of one token whose halo is all but its own place meets each offset once
    index = relative_position_index(
        (1, 1), (side // 2, side // 2), window_row_stride(window), like.device
    )
    return index.view(side, side).flip(0, 1)


def _resize(image: Tensor, height: int, width: int) -> Tensor:
    """[h,Y,X] -> [h,height,width], bilinear, corners not aligned, as the reference does."""
    return F.interpolate(image[None], size=[height, width], mode="bilinear", align_corners=False)[0]
