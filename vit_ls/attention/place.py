"""What a stage and its attention agree on: where a layer stands, and what its options make."""

from typing import NamedTuple, Protocol, TypedDict

import torch
from torch import nn

from vit_ls.attention.projections import Convolutions, ConvQKV, LinearQKV


class On(TypedDict):
    """Where parameters are, and of what type."""

    device: torch.device | None
    dtype: torch.dtype | None


class Place(NamedTuple):
    """Where an attention layer stands in a model."""

    dim: int
    """C, divisible by num_heads."""
    num_heads: int
    """h."""
    grid: tuple[int, int] = (1, 1)
    """(H, W) in tokens that position parameters are made for; others run too."""
    num_global: int = 0
    """G, the global tokens of the stage."""
    conv_projection: Convolutions | None = None
    """How convolutions make q, k, v (CvT, CvT-LS); None for linear layers."""
    attn_drop: float = 0.0
    """Probability that a weight of a softmax over keys is dropped in training."""
    proj_drop: float = 0.0
    """Likewise, a number of what comes out, and of what an MLP makes."""
    device: torch.device | None = None
    dtype: torch.dtype | None = None

    @property
    def on(self) -> On:
        """Where the parameters go."""
        return {"device": self.device, "dtype": self.dtype}

    def qkv(self) -> LinearQKV | ConvQKV:
        """What makes queries, keys and values here."""
        if self.conv_projection is None:
            return LinearQKV(self.dim, **self.on)
        return ConvQKV(self.dim, self.conv_projection, **self.on)


class Options(Protocol):
    """Of a kind of attention: frozen data that makes what a stage needs of it."""

    def layer(self, place: Place) -> nn.Module:
        """Maps (grid [B,H,W,C], global tokens [B,G,C] or None, shared) to both anew."""
        ...

    def shared(self, place: Place) -> nn.Module:
        """Maps a grid [B,H,W,C] to what all layers of a stage share on it."""
        ...
