"""Queries, keys, values and the dynamic projection: linear (ViL-LS) or by convolutions (CvT-LS).

A q/k/v module has `three` for the grid [B,H,W,C] and `three_of_tokens` for the global tokens
[B,G,C]; `forward` and `tokens` give keys and values as one tensor.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import StdConv2d
from torch import Tensor, nn

from vit_ls.ops.rows import by_rows

QKV = tuple[Tensor, Tensor]
"""Queries [...,C], and keys and values [2,...,C]."""


class Convolutions(NamedTuple):
    """How convolutions make queries, keys and values."""

    kv_stride: int = 1
    """Of the depthwise convolutions of keys and values: a grid (H, W) gives as many keys as its
    sides divided by this and rounded up."""
    depthwise_bias: bool = True


class LinearQKV(nn.Linear):
    """One linear layer for queries, keys and values."""

    def __init__(
        self, dim: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(dim, 3 * dim, device=device, dtype=dtype)

    def forward(  # type: ignore[override]
        self, x: Tensor, positions: Tensor | None = None
    ) -> QKV:
        """[...,C] -> [...,C] and [2,...,C]; to q and k those of `positions` [...,C] are added."""
        C = x.shape[-1]
        product = self.product(x)
        if positions is not None:  # (X + P) W = X W + P W
            product[..., : 2 * C].add_(F.linear(positions, self.weight[: 2 * C]))
        q, kv = product.split([C, 2 * C], dim=-1)
        # [...,2C] -> [...,2,C] -> [2,...,C]
        return q, kv.unflatten(-1, (2, -1)).movedim(-2, 0)

    def tokens(self, g: Tensor) -> QKV:
        """[B,G,C] -> [B,G,C] and [2,B,G,C], by the same weights."""
        return self(g)

    def three(self, x: Tensor) -> tuple[Tensor, ...]:
        """[...,C] -> q, k and v, each [...,C]."""
        return self.product(x).chunk(3, dim=-1)

    three_of_tokens = three

    def of_large(self, x: Tensor) -> QKV:
        """As `forward`, in one tensor that the caller may write to."""
        return self(x)

    def product(self, x: Tensor) -> Tensor:
        """[...,C] -> [...,3C]."""
        return F.linear(x, self.weight, self.bias)


class ConvProjection(nn.Module):
    """Depthwise 3x3 convolution, batch norm, 1x1 convolution (CvT, arXiv:2103.15808, Eq. 2).

    Args:
        dim: C.
        stride: s, of the depthwise convolution.
        bias: Of the depthwise convolution.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        dim: int,
        stride: int,
        bias: bool,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(
            *(dim, dim, 3, stride), padding=1, groups=dim, bias=bias, device=device, dtype=dtype
        )
        self.norm: nn.Module = nn.BatchNorm2d(dim, device=device, dtype=dtype)
        self.pointwise = nn.Linear(dim, dim, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[B,H,W,C] -> [B,ceil(H/s),ceil(W/s),C]."""
        x = self.norm(self.depthwise(x.permute(0, 3, 1, 2)))
        return self.pointwise(x.permute(0, 2, 3, 1))

    def of_large(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """As `forward` in inference, where x is large; the result may go to `out`."""
        x = self.depthwise(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return by_rows(self._behind, x, x.shape[2] * x.shape[3], out=out)

    def _behind(self, x: Tensor) -> Tensor:
        return self.pointwise(self.norm(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class ConvQKV(nn.Module):
    """A `ConvProjection` for each of q, k, v; global tokens take the 1x1 part alone, as in CvT."""

    def __init__(
        self,
        dim: int,
        how: Convolutions,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        stride, bias = how
        self.q = ConvProjection(dim, 1, bias, device, dtype)
        self.k = ConvProjection(dim, stride, bias, device, dtype)
        self.v = ConvProjection(dim, stride, bias, device, dtype)

    def forward(self, x: Tensor) -> QKV:
        """[B,H,W,C] -> q of the same shape, keys and values [2,B,ceil(H/s),ceil(W/s),C]."""
        q, k, v = self.three(x)
        return q, torch.stack((k, v))

    def tokens(self, g: Tensor) -> QKV:
        """[B,G,C] -> [B,G,C] and [2,B,G,C]."""
        q, k, v = self.three_of_tokens(g)
        return q, torch.stack((k, v))

    def three(self, x: Tensor) -> tuple[Tensor, ...]:
        """[B,H,W,C] -> q of the same shape, k and v [B,ceil(H/s),ceil(W/s),C]."""
        return self.q(x), self.k(x), self.v(x)

    def of_large(self, x: Tensor) -> QKV:
        """As `forward` in inference and without a stride, where x is large."""
        q = self.q.of_large(x)
        kv = q.new_empty(2, *q.shape)
        for projection, out in zip((self.k, self.v), kv, strict=True):
            projection.of_large(x, out)
        return q, kv

    def three_of_tokens(self, g: Tensor) -> tuple[Tensor, ...]:
        """[B,G,C] -> q, k and v of the same shape."""
        return self.q.pointwise(g), self.k.pointwise(g), self.v.pointwise(g)


class ConvDynamicProjection(nn.Module):
    """Logits of the dynamic projection: weight-standardised depthwise 3x3, then 1x1 convolution.

    Args:
        dim: C.
        out_dim: h * R.
    """

    def __init__(
        self,
        dim: int,
        out_dim: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.depthwise = StdConv2d(dim, dim, 3, groups=dim, bias=True, device=device, dtype=dtype)
        self.pointwise = nn.Linear(dim, out_dim, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[B,H,W,C] -> [B,H,W,h*R]."""
        return self.pointwise(self.depthwise(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
