"""Patch embedding: from an image, or from the grid of the stage before, to a grid."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vit_ls.attention.place import On
from vit_ls.attention.positions import Undecayed, resized
from vit_ls.grid import num_windows, pad_to_multiple
from vit_ls.ops import resize_axis, resize_positions


@dataclass(frozen=True)
class Embed:
    """Options of a strided convolution from an image, or from the stage before."""

    kernel: int
    """Side of the kernel, in input pixels or tokens."""
    stride: int
    padding: int = 0
    """On each side."""
    cut: bool = False
    """Leave out what the kernel does not reach instead of padding a size that the stride does not
    divide; an image must then be no smaller than the kernel less its padding."""
    norm: bool = True
    """A layer norm behind it."""
    position: Literal["grid", "axes"] | None = None
    """A learned absolute position embedding, added to the tokens and resized on another grid: one
    for each token, or half of the channels for its row and half for its column (ViL)."""

    @property
    def least_side(self) -> int:
        """Rows or columns of the smallest input that gives a token."""
        return self.kernel - 2 * self.padding if self.cut else 1

    def grid_after(self, grid: tuple[int, int]) -> tuple[int, int]:
        """(H, W) of an input's tokens: divided by the stride and rounded up, or cut."""
        if self.cut:
            beyond = 2 * self.padding - self.kernel
            return (grid[0] + beyond) // self.stride + 1, (grid[1] + beyond) // self.stride + 1
        return num_windows(grid[0], self.stride), num_windows(grid[1], self.stride)


class ConvEmbed(Undecayed):
    """Strided convolution and layer norm.

    A size that the stride does not divide is padded with zeros, unless `Embed.cut` says otherwise.

    Args:
        embed: Options.
        in_chans: Channels of the input.
        dim: C.
        norm_eps: Of the layer norm.
        grid: (H, W) in tokens that a position embedding is made for.
        on: Where the parameters go.
    """

    def __init__(
        self,
        embed: Embed,
        in_chans: int,
        dim: int,
        *,
        norm_eps: float = 1e-6,
        grid: tuple[int, int] = (1, 1),
        on: On | None = None,
    ) -> None:
        super().__init__()
        on = on or {"device": None, "dtype": None}
        self.divisor = (1, 1) if embed.cut else (embed.stride, embed.stride)
        self.least = embed.least_side
        self.proj = nn.Conv2d(in_chans, dim, embed.kernel, embed.stride, embed.padding, **on)
        self.norm = nn.LayerNorm(dim, eps=norm_eps, **on) if embed.norm else nn.Identity()
        self.pos_embed: nn.Parameter | None = None
        self.pos_rows: nn.Parameter | None = None
        self.pos_columns: nn.Parameter | None = None
        if embed.position == "axes":
            self.pos_rows = nn.Parameter(torch.empty(grid[0], dim // 2, **on))
            self.pos_columns = nn.Parameter(torch.empty(grid[1], dim - dim // 2, **on))
        elif embed.position == "grid":
            self.pos_embed = nn.Parameter(torch.empty(*grid, dim, **on))
        self.reset_parameters()

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
