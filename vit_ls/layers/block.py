"""The transformer block of every family: attention, then an MLP, both pre-norm and residual."""

from typing import Literal

import torch
from timm.layers import Mlp
from timm.layers.activations import QuickGELU
from timm.layers.drop import drop_path
from torch import Tensor, nn

from vit_ls.layers.geometry import Geometry

Activation = Literal["gelu", "quick_gelu"]
"""Of the MLP; quick_gelu is x * sigmoid(1.702 x)."""

_ACTIVATIONS: dict[Activation, type[nn.Module]] = {"gelu": nn.GELU, "quick_gelu": QuickGELU}


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), on the grid and on the global tokens alike.

    Args:
        dim: C.
        attention: Maps (grid, global tokens or None, geometry) to (grid, global tokens or None).
        mlp_ratio: Hidden width of the MLP, in multiples of dim.
        activation: Of the MLP.
        norm_eps: Of the layer norms.
        proj_drop: Dropout in the MLP, after either of its layers.
        drop_path_rate: Probability that an image skips a residual branch in training.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: an unknown activation.
    """

    def __init__(
        self,
        dim: int,
        attention: nn.Module,
        *,
        mlp_ratio: float = 4.0,
        activation: Activation = "gelu",
        norm_eps: float = 1e-6,
        proj_drop: float = 0.0,
        drop_path_rate: float = 0.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if activation not in _ACTIVATIONS:
            names = " or ".join(map(repr, _ACTIVATIONS))
            raise ValueError(f"activation must be {names}, got {activation!r}.")
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps, device=device, dtype=dtype)
        self.attn = attention
        self.drop_path1 = ResidualDropPath(drop_path_rate)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps, device=device, dtype=dtype)
        act = _ACTIVATIONS[activation]
        self.mlp = Mlp(
            *(dim, int(mlp_ratio * dim)), act_layer=act, drop=proj_drop, device=device, dtype=dtype
        )
        self.drop_path2 = ResidualDropPath(drop_path_rate)

    def forward(
        self, x: Tensor, g: Tensor | None, geometry: Geometry
    ) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] and global tokens g [B,G,C] or None -> the same shapes."""
        dx, dg = self.attn(self.norm1(x), None if g is None else self.norm1(g), geometry)
        x, g = self.drop_path1(x, dx, g, dg)
        dx, dg = self.mlp(self.norm2(x)), None if g is None else self.mlp(self.norm2(g))
        return self.drop_path2(x, dx, g, dg)


class ResidualDropPath(nn.Module):
    """Add a residual branch, in training not for every image (stochastic depth, arXiv:1603.09382).

    One draw per image serves the grid and its global tokens.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(
        self, x: Tensor, dx: Tensor, g: Tensor | None, dg: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] + dx, and g [B,G,C] + dg where there are global tokens."""
        if self.training and self.rate > 0.0:
            keep = drop_path(x.new_ones((x.shape[0], 1, 1, 1)), self.rate, True)
            dx = dx * keep
            if dg is not None:
                dg = dg * keep[:, :, 0]
        if g is None or dg is None:
            return x + dx, None
        return x + dx, g + dg

    def extra_repr(self) -> str:
        """The rate."""
        return f"rate={self.rate:0.3f}"
