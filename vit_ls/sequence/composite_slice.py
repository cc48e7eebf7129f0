"""Composite slice attention on sequences, both directions (Lee et al., ICLR 2023, section 4)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from vit_ls.attention import CompositeSliceAttention, Place
from vit_ls.attention.composite_slice import SliceGrid
from vit_ls.grid import num_windows
from vit_ls.ops import Windows, inside, slice_halo
from vit_ls.sequence.spans import check_row, row_mask
from vit_ls.sequence.specs import CompositeSlice


class SlicePositions(NamedTuple):
    """The position embeddings of slices (MS-VIPE), shared by all layers of a model."""

    local: Tensor
    """P_l of a token in its extended slice [E+L+E,C], or [E+L,C] where slices are causal."""
    slices: Tensor
    """P_g of a slice in the sequence [slices,C]."""


class SlicePositionEmbedding(nn.Module):
    """Owns P_l and P_g (section 4.2), which enter queries and keys alone, in each layer.

    Args:
        dim: C.
        slice_size: L, in tokens.
        max_length: N of the longest sequence.
        alpha: Extent of a slice's keys, in multiples of the slice.
        causal: Whether keys reach to the left only.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: a slice without tokens, no sequence, or alpha outside [1, 3].
    """

    def __init__(
        self,
        dim: int,
        *,
        slice_size: int,
        max_length: int,
        alpha: float = 1.0,
        causal: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if max_length < 1:
            raise ValueError(f"max_length must be positive, got {max_length}.")
        rows = slice_size + (1 if causal else 2) * slice_reach(slice_size, alpha)
        slices = num_windows(max_length, slice_size)
        self.local = nn.Parameter(torch.empty(rows, dim, device=device, dtype=dtype))
        self.slices = nn.Parameter(torch.empty(slices, dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the position embeddings anew, as large as the normalised inputs they are added to.

        The paper does not say how; at 0.02 a small model of 64 pixels stayed ten points behind.
        """
        nn.init.normal_(self.local)
        nn.init.normal_(self.slices)

    def forward(self) -> SlicePositions:
        """Both."""
        return SlicePositions(self.local, self.slices)


class CompositeSliceAttention1d(CompositeSliceAttention):
    """Attention inside slices of L tokens, attention among the slices, and their sum.

    `CompositeSliceAttention` on a grid of height 1, for any N: Eq. 10, 14 and 15. With s = floor(t
    / L) and E = round((alpha - 1) L / 2), token t sees the real keys of s L - E <= j < s L + L + E,
    and every slice sees every slice that has a real token.

    Differs from the paper: keys outside the sequence receive no attention, where Eq. 11 has zeros;
    padding is left out of the means, and slices of padding alone are left out of the
    attention among slices; an output projection follows.

    Args:
        dim: C, divisible by num_heads.
        num_heads: h.
        options: Of this kind.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: dim is not divisible by num_heads.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        options: CompositeSlice,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(options, Place(dim, num_heads, device=device, dtype=dtype))
        self.dim, self.ms_vipe = dim, options.pos_embed == "ms_vipe"

    def forward(  # type: ignore[override]
        self, x: Tensor, positions: SlicePositions | None = None, valid: Tensor | None = None
    ) -> Tensor:
        """Tokens [B,N,C], P_l and P_g of "ms_vipe", real tokens [B,N] -> [B,N,C].

        What comes out at tokens that are not real is finite and means nothing.

        Raises:
            ValueError: x is empty, of another width or longer than P_g, or `valid` or P_l is of
                another shape, or there are positions where there should be none.
        """
        check_row(x, self.dim)
        real = None if valid is None else row_mask(valid, x)[:, None]
        L, E = self.slice_size[1], self.halo[1]
        local = slices = None
        if (positions is not None) != self.ms_vipe:
            raise ValueError(
                "Positions must be given with pos_embed='ms_vipe' and only then, "
                f"got {'some' if positions else 'none'}."
            )
        if positions is not None:
            P_g = check_positions(positions, x.shape[1], L, L + 2 * E)
            local, slices = positions.local[None], P_g[None]
        x, windows = x.unsqueeze(1), Windows(self.slice_size, self.halo, valid=real)
        windows = windows._replace(mask=inside(x, windows))
        y = super().forward(x, None, SliceGrid(windows, local, slices))[0]
        return y[:, 0]


def slice_reach(slice_size: int, alpha: float) -> int:
    """E: how far the keys of an extended slice reach beyond it, in tokens (Eq. 11).

    Raises:
        ValueError: a slice without tokens, or alpha outside [1, 3].
    """
    # a slice of one row, which reaches nowhere above and below
    return slice_halo((1, slice_size), alpha)[1]


def check_positions(positions: SlicePositions, length: int, slice_size: int, rows: int) -> Tensor:
    """P_g of a sequence of `length` tokens [slices,C].

    Raises:
        ValueError: the sequence is longer than P_g, or P_l has not one row for each key of a slice.
    """
    slices = num_windows(length, slice_size)
    if slices > positions.slices.shape[0]:
        longest = positions.slices.shape[0] * slice_size
        raise ValueError(f"A sequence must have at most {longest} tokens, got {length}.")
    if positions.local.shape[0] != rows:
        raise ValueError(f"P_l must have {rows} rows, got {positions.local.shape[0]}.")
    return positions.slices[:slices]
