"""The transformer block of every family: attention, then an MLP, both pre-norm and residual."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from timm.layers import Mlp
from timm.layers.activations import QuickGELU
from timm.layers.drop import drop_path
from torch import Tensor, nn

from vit_ls.attention import Convolutions, Place
from vit_ls.ops.rows import by_rows
from vit_ls.ops.rules import is_large

Activation = Literal["gelu", "quick_gelu"]
"""Of the MLP; quick_gelu is x * sigmoid(1.702 x)."""

_ACTIVATIONS: dict[Activation, type[nn.Module]] = {"gelu": nn.GELU, "quick_gelu": QuickGELU}


@dataclass(frozen=True, kw_only=True)
class BlockSpec:
    """What all blocks of a model have in common.

    Raises:
        ValueError: an unknown activation.
    """

    conv_projection: Convolutions | None = None
    """How convolutions make q, k, v and the dynamic projection (CvT); None for linear layers."""
    norm_eps: float = 1e-6
    """Of every layer norm but DualLN's."""
    mlp_ratio: float = 4.0
    """Hidden width of the MLP, in multiples of dim."""
    activation: Activation = "gelu"
    """Of the MLP."""

    def __post_init__(self) -> None:
        if self.activation not in _ACTIVATIONS:
            names = " or ".join(map(repr, _ACTIVATIONS))
            raise ValueError(f"activation must be {names}, got {self.activation!r}.")


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), on the grid and on the global tokens alike.

    Args:
        attention: Maps (grid, global tokens or None, shared) to (grid, global tokens or None).
        place: Of the attention.
        spec: Of every block.
        drop_path_rate: Probability that an image skips a residual branch in training.
    """

    def __init__(
        self,
        attention: nn.Module,
        place: Place,
        spec: BlockSpec,
        drop_path_rate: float = 0.0,
    ) -> None:
        super().__init__()
        dim, self.hidden = place.dim, int(spec.mlp_ratio * place.dim)
        act_layer = _ACTIVATIONS[spec.activation]
        self.norm1 = nn.LayerNorm(dim, eps=spec.norm_eps, **place.on)
        self.attn = attention
        self.drop_path1 = ResidualDropPath(drop_path_rate)
        self.norm2 = nn.LayerNorm(dim, eps=spec.norm_eps, **place.on)
        self.mlp = Mlp(dim, self.hidden, act_layer=act_layer, drop=place.proj_drop, **place.on)
        self.drop_path2 = ResidualDropPath(drop_path_rate)

    def forward(self, x: Tensor, g: Tensor | None, shared: Any) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] and global tokens g [B,G,C] or None -> the same shapes."""
        dx, dg = self.attn(self.norm1(x), None if g is None else self.norm1(g), shared)
        x, g = self.drop_path1(x, dx, g, dg)
        row = x.shape[2] * self.hidden
        # not in training, where dropout must draw alike in both passes of a checkpoint
        large = not self.training and is_large(x, row)
        # a trace counts FLOPs, and tokens that a stage drops are no part of them
        if g is not None and not large and not torch.jit.is_tracing():
            return self._feed_together(x, g)
        dx = by_rows(self._feed, x, row) if large else self.mlp(self.norm2(x))
        return self.drop_path2(x, dx, g, None if g is None else self._feed(g))

    def _feed_together(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """The MLP's branch of the grid and the few global tokens, at one go."""
        N = x.shape[0] * x.shape[1] * x.shape[2]
        t = torch.cat((x.flatten(0, 2), g.flatten(0, 1)))
        d = self.mlp(self.norm2(t))
        if not (self.training or torch.is_grad_enabled()):
            t = t + d
            return t[:N].view(x.shape), t[N:].view(g.shape)
        return self.drop_path2(x, d[:N].view(x.shape), g, d[N:].view(g.shape))

    def _feed(self, x: Tensor) -> Tensor:
        y: Tensor = self.mlp(self.norm2(x))
        return y


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
        return x + dx, None if g is None or dg is None else g + dg

    def extra_repr(self) -> str:
        """The rate."""
        return f"rate={self.rate:0.3f}"
