"""Relative position bias: learned tables, laid out as in the released ViL-LS and ViL weights."""

import math

import torch
from torch import Tensor, nn

from vit_ls.attention.positions import Undecayed, resized
from vit_ls.ops import (
    Windows,
    grid_bias,
    narrow_window_table,
    resize_grid_table,
    resize_window_table,
    turned_grid_bias,
    window_bias,
    window_row_stride,
    window_table_rows,
)

_LARGEST_WINDOW = 64


class TokenBias(Undecayed):
    """Bias between global tokens and patches, and among global tokens, beside a `table`.

    Args:
        num_heads: h.
        num_global: G; 0 for none.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        num_heads: int,
        num_global: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.global_local: nn.Parameter | None = None
        self.global_global: nn.Parameter | None = None
        if num_global > 0:
            h, G = num_heads, num_global
            self.global_local = nn.Parameter(torch.empty(2, h, G, device=device, dtype=dtype))
            self.global_global = nn.Parameter(torch.empty(h, G, G, device=device, dtype=dtype))

    def of_patches(self) -> Tensor | None:
        """Bias of each patch and each global key [h,G], or None."""
        if self.global_local is None or self.global_global is None:
            return None
        if not torch.is_grad_enabled():
            return self.global_local[1]
        # adds nothing, but lets each block use each parameter: no output depends on the tokens'
        # last update in a stage, and distributed training asks for a gradient of every parameter
        return self.global_local[1] + 0.0 * self.global_global.sum()

    def of_tokens(self, N: int) -> Tensor | None:
        """Bias of each global query and each key, tokens first and then N patches [h,G,G+N]."""
        if self.global_local is None or self.global_global is None:
            return None
        to_patch = self.global_local[0]
        return torch.cat((self.global_global, to_patch[:, :, None].expand(-1, -1, N)), dim=2)


class WindowPositionBias(TokenBias):
    """Bias between the queries of a window and its keys, whatever the size of the grid.

    Args:
        num_heads: h.
        window: Side of the square window, in tokens.
        whole_halo: Whether a window's keys reach a whole window beyond it, not half of one.
        num_global: G, for a bias between global tokens and patches; 0 for none.
        device: Of the table.
        dtype: Of the table.
    """

    def __init__(
        self,
        num_heads: int,
        window: int,
        whole_halo: bool = False,
        num_global: int = 0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_heads, num_global, device, dtype)
        self.window = window
        self.whole_halo = whole_halo
        rows = window_table_rows(window, whole_halo)
        self.table = nn.Parameter(torch.empty(rows, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def forward(self, windows: Windows) -> Tensor:
        """Bias of each query and key of a window, [h,T,K]."""
        row_stride = window_row_stride(self.window, self.whole_halo)
        return window_bias(self.table, windows.window, windows.halo, row_stride)

    def resize(self, table: Tensor, whole_halo: bool = False) -> Tensor:
        """The table of another window at this one's size; what is no window's table is returned.

        Args:
            table: To resize.
            whole_halo: Whether it is of a halo of a whole window.
        """
        window = window_of_table(table, whole_halo)
        if window is None:
            return table
        table = resize_window_table(table, window, self.window, whole_halo)
        narrower = whole_halo and not self.whole_halo
        return narrow_window_table(table, self.window) if narrower else table


def window_of_table(table: Tensor, whole_halo: bool) -> int | None:
    """Side of the window that a table is of, or None."""
    windows = range(1, _LARGEST_WINDOW + 1)
    return next((w for w in windows if window_table_rows(w, whole_halo) == table.shape[0]), None)


class GridPositionBias(TokenBias):
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
        super().__init__(num_heads, num_global, device, dtype)
        self.grid = grid
        rows = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.table = nn.Parameter(torch.empty(rows, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def forward(self, height: int, width: int) -> Tensor:
        """Bias of each pair of tokens of a grid (height, width), [h,G+N,G+N]."""
        bias = grid_bias(self.table, self.grid, height, width)
        top, to_global = self.of_tokens(height * width), self.of_patches()
        if top is None or to_global is None:
            return bias
        # a patch and each global key: [h,G] -> [h,N,G]
        left = to_global[:, None, :].expand(-1, height * width, -1)
        return torch.cat((top, torch.cat((left, bias), dim=2)), dim=1)

    def turned(self, height: int, width: int) -> Tensor:
        """As `forward`, with the keys in reverse order [h,G+N,N+G]; it has no gradient."""
        pairs = turned_grid_bias(self.table, self.grid, height, width)
        if self.global_local is None or self.global_global is None:
            return pairs.flatten(3).flatten(1, 2)
        (_, h, G), N = self.global_local.shape, height * width
        (to_patch, to_global), among = self.global_local, self.global_global.view(h, G, G)
        if G > 1:
            to_global, among = to_global.flip(-1), among.flip(-1)
        # each number is written once, to where it is read: whole grids have many
        bias = pairs.new_empty(h, G + N, N + G)
        bias[:, G:, :N].view(pairs.shape).copy_(pairs)
        bias[:, G:, N:] = to_global[:, None]
        bias[:, :G, :N] = to_patch[:, :, None]
        bias[:, :G, N:] = among
        return bias

    def set_grid(self, grid: tuple[int, int]) -> None:
        """Make the table for another grid (H, W), in tokens."""
        self.table = resized(
            self.table,
            self.grid,
            grid,
            lambda x, old, new: resize_grid_table(x, (old[0], old[1]), (new[0], new[1])),
        )
        self.grid = grid

    def resize(self, table: Tensor) -> Tensor:
        """The table of another, square grid at this one's size; what is none's is returned."""
        side = math.isqrt(table.shape[0])
        if side * side != table.shape[0] or side % 2 == 0:
            return table
        return resize_grid_table(table, ((side + 1) // 2, (side + 1) // 2), self.grid)
