"""Patch embedding: from an image, or from the grid of the stage before, to a grid."""

import torch
from timm.layers import trunc_normal_
from torch import Tensor, nn

from vit_ls.grid import pad_to_multiple
from vit_ls.layers.resized import resized
from vit_ls.ops import resize_axis, resize_positions


class ConvEmbed(nn.Module):
    """Strided convolution and layer norm.

    A size that the stride does not divide is padded with zeros, unless told to cut it.

    Args:
        in_chans: Channels of the input.
        dim: C.
        kernel: Side of the convolution's kernel, in input pixels or tokens.
        stride: Of the convolution.
        padding: Of the convolution, on each side.
        cut: Leave out what the kernel does not reach instead of padding a size that the stride does
            not divide; an image must then be no smaller than the kernel less its padding.
        norm_eps: Of the layer norm; None for no norm.
        pos_grid: Grid (H, W) in tokens that a learned position embedding is made for, which is
            added to the tokens, resized on another grid; None for none.
        pos_axes: The embedding has a row's half of the channels and a column's half (ViL), instead
            of all channels for each token.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        in_chans: int,
        dim: int,
        *,
        kernel: int,
        stride: int,
        padding: int = 0,
        cut: bool = False,
        norm_eps: float | None = 1e-6,
        pos_grid: tuple[int, int] | None = None,
        pos_axes: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.divisor = (1, 1) if cut else (stride, stride)
        self.least = least_side(kernel, padding, cut=cut)
        self.proj = nn.Conv2d(in_chans, dim, kernel, stride, padding, device=device, dtype=dtype)
        self.norm = (
            nn.Identity()
            if norm_eps is None
            else nn.LayerNorm(dim, eps=norm_eps, device=device, dtype=dtype)
        )
        self.pos_embed: nn.Parameter | None = None
        self.pos_rows: nn.Parameter | None = None
        self.pos_columns: nn.Parameter | None = None
        if pos_grid is not None and pos_axes:
            rows = torch.empty(pos_grid[0], dim // 2, device=device, dtype=dtype)
            columns = torch.empty(pos_grid[1], dim - dim // 2, device=device, dtype=dtype)
            self.pos_rows, self.pos_columns = nn.Parameter(rows), nn.Parameter(columns)
        elif pos_grid is not None:
            positions = torch.empty(*pos_grid, dim, device=device, dtype=dtype)
            self.pos_embed = nn.Parameter(positions)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the position embedding anew."""
        for positions in (self.pos_embed, self.pos_rows, self.pos_columns):
            if positions is not None:
                trunc_normal_(positions, std=0.02)

    def set_grid(self, grid: tuple[int, int]) -> None:
        """Make the position embedding for another grid (H, W), in tokens."""
        if self.pos_embed is not None:
            old = self.pos_embed.shape[0], self.pos_embed.shape[1]
            self.pos_embed = resized(
                self.pos_embed, old, grid, lambda x, _, new: resize_positions(x, new[0], new[1])
            )
        if self.pos_rows is not None and self.pos_columns is not None:
            self.pos_rows = _resized_axis(self.pos_rows, grid[0])
            self.pos_columns = _resized_axis(self.pos_columns, grid[1])

    def forward(self, x: Tensor) -> Tensor:
        """[B,H,W,Cin] -> [B,ceil(H/stride),ceil(W/stride),C], or fewer tokens with `cut`.

        Raises:
            ValueError: H or W is less than `least`.
        """
        check_size(x, self.least)
        x = self.proj(pad_to_multiple(x, self.divisor).permute(0, 3, 1, 2))
        x = self.norm(x.permute(0, 2, 3, 1))
        if self.pos_embed is not None:
            x = x + resize_positions(self.pos_embed, x.shape[1], x.shape[2])
        if self.pos_rows is not None and self.pos_columns is not None:
            H, W = x.shape[1], x.shape[2]
            rows = resize_axis(self.pos_rows, H)[:, None].expand(-1, W, -1)
            columns = resize_axis(self.pos_columns, W)[None].expand(H, -1, -1)
            x = x + torch.cat((rows, columns), dim=2)
        return x


def least_side(kernel: int, padding: int, *, cut: bool) -> int:
    """Rows or columns of the smallest input that gives a token."""
    return kernel - 2 * padding if cut else 1


def _resized_axis(positions: nn.Parameter, size: int) -> nn.Parameter:
    old = (positions.shape[0],)
    return resized(positions, old, (size,), lambda x, _, new: resize_axis(x, new[0]))


def check_size(x: Tensor, least: int) -> None:
    """Raise ValueError unless the grid x [B,H,W,C] has `least` rows and columns.

    In graphs, exports and traces nothing is checked: they would be limited to one size.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or isinstance(x, torch.fx.Proxy):
        return
    height, width = x.shape[1], x.shape[2]
    if min(height, width) < least:
        raise ValueError(
            f"Images must be at least {least} x {least} pixels, got {height} x {width}."
        )
