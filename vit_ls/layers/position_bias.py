"""Relative position bias: learned tables, laid out as in the released ViL-LS weights."""

import math

import torch
from timm.layers import trunc_normal_
from torch import Tensor, nn

from vit_ls.ops import (
    grid_bias,
    resize_grid_table,
    resize_window_table,
    window_bias,
    window_table_rows,
)

_LARGEST_WINDOW = 64


class WindowPositionBias(nn.Module):
    """Bias between the queries of a window and its keys, whatever the size of the grid.

    Args:
        num_heads: h.
        window: Side of the square window, in tokens.
        device: Of the table.
        dtype: Of the table.
    """

    def __init__(
        self,
        num_heads: int,
        window: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.window = window
        table = torch.empty(window_table_rows(window), num_heads, device=device, dtype=dtype)
        self.table = nn.Parameter(table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        trunc_normal_(self.table, std=0.02)

    def forward(self, index: Tensor | None) -> Tensor:
        """Long [T,K] -> bias [h,T,K]."""
        return window_bias(self.table, index)

    def resize(self, table: Tensor) -> Tensor:
        """The table of another window at this one's size; what is no window's table is returned."""
        for window in range(1, _LARGEST_WINDOW + 1):
            if window_table_rows(window) == table.shape[0]:
                return resize_window_table(table, window, self.window)
        return table


class GridPositionBias(nn.Module):
    """Bias between all tokens of a grid, and between them and the global tokens.

    Args:
        num_heads: h.
        grid: (H, W) in tokens that the table is made for; for another grid it is resized in each
            forward.
        num_global: G.
        device: Of the tables.
        dtype: Of the tables.
    """

    def __init__(
        self,
        num_heads: int,
        grid: tuple[int, int],
        num_global: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.grid = grid
        rows = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.table = nn.Parameter(torch.empty(rows, num_heads, device=device, dtype=dtype))
        self.global_local: nn.Parameter | None = None
        self.global_global: nn.Parameter | None = None
        if num_global > 0:
            h, G = num_heads, num_global
            self.global_local = nn.Parameter(torch.empty(2, h, G, device=device, dtype=dtype))
            self.global_global = nn.Parameter(torch.empty(h, G, G, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters(recurse=False):
            trunc_normal_(table, std=0.02)

    def forward(self, index: Tensor | None, height: int, width: int) -> Tensor:
        """Long [N,N] of the grid (height, width) -> bias [h,G+N,G+N]."""
        bias = grid_bias(self.table, index, self.grid, height, width)
        if self.global_local is None or self.global_global is None:
            return bias
        to_patch, to_global = self.global_local[0], self.global_local[1]
        N = height * width
        # a global query and each patch: [h,G] -> [h,G,N]
        # a patch and each global key: [h,G] -> [h,N,G]
        top = torch.cat((self.global_global, to_patch[:, :, None].expand(-1, -1, N)), dim=2)
        bottom = torch.cat((to_global[:, None, :].expand(-1, N, -1), bias), dim=2)
        return torch.cat((top, bottom), dim=1)

    def resize(self, table: Tensor) -> Tensor:
        """The table of another, square grid at this one's size; what is none's is returned."""
        side = math.isqrt(table.shape[0])
        if side * side != table.shape[0] or side % 2 == 0:
            return table
        return resize_grid_table(table, ((side + 1) // 2, (side + 1) // 2), self.grid)
