"""Sines and cosines of distances, as in Transformer-XL: what relative positions are made of."""

import torch
from torch import Tensor


def sinusoids(
    positions: Tensor, dim: int, dtype: torch.dtype, stored: Tensor | None = None
) -> Tensor:
    """[sin(n f), cos(n f)] with f of `frequencies`, or stored ones: [D] -> [D,dim]."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    f = frequencies(dim, device=positions.device, dtype=wide) if stored is None else stored
    angle = positions.to(wide)[:, None] * f.to(wide)
    return torch.cat((angle.sin(), angle.cos()), dim=-1).to(dtype)


def frequencies(
    dim: int, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """f_i = 10000^(-2i/dim): [dim/2]."""
    even = torch.arange(0, dim, 2, device=device, dtype=dtype)
    return 10000.0 ** (-even / dim)
