"""Tokens in a row <-> tiles: `vit_ls.grid` on grids of height 1, and what only rows have.

Dim letters as in `vit_ls.grid`, with N tokens in a row, n tiles and E keys behind a tile. A causal
tile reaches to one side only, so its keys are cut here and not by `vit_ls.grid.partition_halo`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.grid import merge, num_windows, partition


def row_mask(valid: Tensor | None, x: Tensor) -> Tensor:
    """True where a token is real, bool [B,N]: `valid`, or all of the tokens x [B,N,C].

    Raises:
        ValueError: `valid` is not bool, or of another shape.
    """
    if valid is None:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if valid.dtype != torch.bool or valid.shape != x.shape[:2]:
        raise ValueError(
            f"A padding mask must be bool with one value for each token, {tuple(x.shape[:2])}, "
            f"got {valid.dtype} {tuple(valid.shape)}."
        )
    return valid


def check_row(x: Tensor, dim: int) -> None:
    """Raise ValueError unless x is [B,N,dim] with N of at least 1."""
    if x.ndim != 3 or x.shape[1] < 1 or x.shape[2] != dim:
        raise ValueError(
            f"A sequence must be [B, N, {dim}] with N of at least 1, got {list(x.shape)}."
        )


def check_probability(attn_drop: float) -> float:
    """Return it, or raise ValueError unless 0 <= attn_drop < 1."""
    if not 0 <= attn_drop < 1:
        raise ValueError(f"attn_drop must lie in [0, 1), got {attn_drop}.")
    return attn_drop


def tiles(x: Tensor, size: int) -> Tensor:
    """Pad at the end, and cut: [B,N,C] -> [B,n,size,C]."""
    # [B,1,N,C] -> [B,1,n,1,size,C]
    return partition(x.unsqueeze(1), (1, size))[:, 0, :, 0]


def untile(x: Tensor, length: int) -> Tensor:
    """The inverse of `tiles`, padding cut off: [B,n,size,C] -> [B,length,C]."""
    return merge(x[:, None, :, None], 1, length)[:, 0]


def tiles_behind(x: Tensor, size: int, behind: int) -> Tensor:
    """Tiles that overlap: each with the `behind` tokens before it, [B,E+N,C] -> [B,n,E+size,C].

    The first `behind` tokens of x are those before the first tile.
    """
    N = x.shape[1] - behind
    x = F.pad(x, (0, 0, 0, num_windows(N, size) * size - N))
    return x.unfold(1, behind + size, size).transpose(2, 3)


def tiles_to_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B,n,K,C] -> [B,n*h,K,d]."""
    return x.unflatten(-1, (num_heads, -1)).transpose(2, 3).flatten(1, 2)


def heads_to_tiles(x: Tensor, num_heads: int) -> Tensor:
    """The inverse of `tiles_to_heads`: [B,n*h,K,d] -> [B,n,K,C]."""
    return x.unflatten(1, (-1, num_heads)).transpose(2, 3).flatten(3)


def skew(x: Tensor, fill: float) -> Tensor:
    """Move row i to the right by i: [...,T,D] -> [...,T,D+T-1], `fill` where nothing moved to.

    What stands in column c by the distance from its own query stands in column i + c by key.
    """
    T, D = x.shape[-2:]
    x = F.pad(x, (0, T), value=fill).flatten(-2)
    return x[..., : T * (D + T - 1)].unflatten(-1, (T, D + T - 1))
