"""What composite slices share on a grid: their mask, and MS-VIPE (Lee et al., section 4.2)."""

from typing import NamedTuple

import torch
from timm.layers import register_notrace_module
from torch import Tensor, nn

from vit_ls.attention.place import Place
from vit_ls.attention.positions import Undecayed, resized
from vit_ls.grid import num_windows
from vit_ls.ops import Windows, is_eager, planned, resize_positions


class SliceGrid(NamedTuple):
    """What composite slice attention shares on one grid."""

    windows: Windows
    local_pos: Tensor | None = None
    """P_l, of the tokens of an extended slice, [a+2sa,b+2sb,C]."""
    slice_pos: Tensor | None = None
    """P_g, of the slices of this grid, [Nh,Nw,C]."""


@register_notrace_module
class SliceGeometry(Undecayed):
    """Makes, once per forward, what slices share on a grid.

    P_l, of a token in its slice, and P_g, of a slice in the grid, are the only position embeddings.
    They are added to the inputs of queries and keys in every layer, never to those of values. P_l
    is the same for every grid; P_g is resized bicubically for another than its own.

    Args:
        windows: The slices of any grid.
        place: Of the layers.
        local_pos: Whether there is a P_l.
        slice_pos: Whether there is a P_g.
    """

    def __init__(self, windows: Windows, place: Place, *, local_pos: bool, slice_pos: bool) -> None:
        super().__init__()
        self.windows = windows
        self.num_heads, self.drop = place.num_heads, place.attn_drop
        self.local_pos: nn.Parameter | None = None
        self.slice_pos: nn.Parameter | None = None
        if local_pos:
            (a, b), (sa, sb), *_ = windows
            self.local_pos = nn.Parameter(
                torch.empty(a + 2 * sa, b + 2 * sb, place.dim, **place.on)
            )
        if slice_pos:
            P_g = torch.empty(*self._slices(place.grid), place.dim, **place.on)
            self.slice_pos = nn.Parameter(P_g)
        self.reset_parameters()

    def set_grid(self, grid: tuple[int, int]) -> None:
        """Make P_g for another grid (H, W), in tokens."""
        if self.slice_pos is not None:
            old = self.slice_pos.shape[0], self.slice_pos.shape[1]
            self.slice_pos = resized(
                *(self.slice_pos, old, self._slices(grid)),
                lambda x, _, new: resize_positions(x, new[0], new[1]),
            )

    def _slices(self, grid: tuple[int, int]) -> tuple[int, int]:
        a, b = self.windows.window
        return num_windows(grid[0], a), num_windows(grid[1], b)

    def forward(self, x: Tensor) -> SliceGrid:
        """What is shared on a grid x [B,H,W,C]."""
        P_g: Tensor | None = self.slice_pos
        size = self._slices((x.shape[1], x.shape[2]))
        # a graph is of any size, and must not ask; on its own grid no bit of P_g would change
        if P_g is not None and not (is_eager() and P_g.shape[:2] == size):
            P_g = resize_positions(P_g, *size)
        drop = self.drop if self.training else 0.0
        return SliceGrid(planned(x, self.windows, self.num_heads, drop=drop), self.local_pos, P_g)
