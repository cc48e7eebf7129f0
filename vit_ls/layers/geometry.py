"""What all blocks of a stage share on one grid, made once per forward: masks, position indices."""

from typing import NamedTuple

from timm.layers import register_notrace_module
from torch import Tensor, nn

from vit_ls.grid import halo_mask, relative_position_index
from vit_ls.ops import window_halo, window_row_stride


class Geometry(NamedTuple):
    """Tensors of a grid, only `valid` of each sample; None for what the attention does not use."""

    mask: Tensor | None = None
    """Which keys of each window lie inside the grid, bool [Nh,Nw,a+2sa,b+2sb]."""
    position_index: Tensor | None = None
    """Row of the position table for each query and key, long [T,K]; [N,N] of a whole grid."""
    local_pos: Tensor | None = None
    """P_l, of the tokens of an extended slice, [a+2sa,b+2sb,C]."""
    slice_pos: Tensor | None = None
    """P_g, of the slices of this grid, [Nh,Nw,C]."""
    valid: Tensor | None = None
    """Which tokens are real, bool [B,H,W]; None for all, as on images."""


@register_notrace_module
class WindowGeometry(nn.Module):
    """Geometry of windows with a halo.

    Args:
        window: Side of the square window, in tokens; 0 for no window.
        position_table: Whether the attention looks its bias up in a table.
        whole_halo: Whether a window's keys reach a whole window beyond it, not half of one.
    """

    def __init__(self, window: int, position_table: bool, whole_halo: bool = False) -> None:
        super().__init__()
        self.window = (window, window)
        self.halo = (window_halo(window, whole_halo), window_halo(window, whole_halo))
        self.row_stride = window_row_stride(window, whole_halo)
        self.position_table = position_table

    def forward(self, x: Tensor) -> Geometry:
        """Geometry of a grid x [B,H,W,C]."""
        if self.window[0] == 0:
            return Geometry(None, None)
        mask = halo_mask(x.shape[1], x.shape[2], self.window, self.halo, x.device)
        index: Tensor | None = None
        if self.position_table:
            index = relative_position_index(self.window, self.halo, self.row_stride, x.device)
        return Geometry(mask, index)


@register_notrace_module
class GridGeometry(nn.Module):
    """Geometry of full attention over a whole grid.

    Args:
        position_table: Whether the attention looks its bias up in a table.
    """

    def __init__(self, position_table: bool) -> None:
        super().__init__()
        self.position_table = position_table

    def forward(self, x: Tensor) -> Geometry:
        """Geometry of a grid x [B,H,W,C]."""
        if not self.position_table:
            return Geometry(None, None)
        H, W = x.shape[1], x.shape[2]
        return Geometry(None, relative_position_index((H, W), (0, 0), 2 * W - 1, x.device))
