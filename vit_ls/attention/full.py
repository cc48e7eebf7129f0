"""Full attention: the later stages of ViL-LS, and the CvT baselines."""

from dataclasses import dataclass
from typing import Any

import torch
from timm.layers import register_notrace_module
from torch import Tensor, nn

from vit_ls.attention.place import Place
from vit_ls.attention.position_bias import GridPositionBias
from vit_ls.attention.projections import QKV
from vit_ls.attention.recorded import Attention, Part, spread
from vit_ls.grid import num_windows
from vit_ls.ops import attend, check_heads, is_unobserved, merge_heads, split_heads


@dataclass(frozen=True)
class Full:
    """Options of full attention."""

    position_table: bool = False
    """A learned relative position bias; on another grid its table is resized bilinearly."""

    def layer(self, place: Place) -> "FullAttention":
        """The layer of these options at a place."""
        return FullAttention(self, place)

    def shared(self, _: Place) -> "NothingShared":
        """Its layers share nothing on a grid."""
        return NothingShared()


class NothingShared(nn.Module):
    """Stands where other kinds make what their layers share on a grid."""

    def forward(self, _: Tensor) -> None:
        """Nothing."""


@register_notrace_module
class FullAttention(nn.Module):
    """Multi-head softmax attention of all tokens over all tokens, the global ones among them.

    Args:
        options: Of this kind.
        place: Where the layer stands. With strided convolutions there are fewer keys than queries.

    Raises:
        ValueError: dim is not divisible by num_heads; a position table with strided keys.
    """

    def __init__(self, options: Full, place: Place) -> None:
        super().__init__()
        check_heads(place.dim, place.num_heads)
        convolutions = place.conv_projection
        if options.position_table and convolutions is not None and convolutions.kv_stride > 1:
            raise ValueError(
                "A position table needs a key at each token, "
                f"got kv_stride={convolutions.kv_stride}."
            )
        self.num_heads = place.num_heads
        self.by_convolutions = convolutions is not None
        self.qkv = place.qkv()
        self.position_bias = (
            GridPositionBias(place.num_heads, place.grid, place.num_global, **place.on)
            if options.position_table
            else None
        )
        self.attn_drop = nn.Dropout(place.attn_drop)
        self.proj = nn.Linear(place.dim, place.dim, **place.on)
        self.proj_drop = nn.Dropout(place.proj_drop)

    def forward(self, x: Tensor, g: Tensor | None, _: None) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] and global tokens g [B,G,C] or None -> the same shapes."""
        H, W = x.shape[1], x.shape[2]
        q, kv = self._project(x, g)
        bias = None
        if self.position_bias is not None and is_unobserved():
            # to turn the keys, whose order is nothing to a softmax, is to turn no bias
            bias, kv = self.position_bias.turned(H, W)[None], kv.flip(-2)
        elif self.position_bias is not None:
            bias = self.position_bias(H, W)[None]
        # [B,G+N,C] -> [B,h,G+N,d]
        q, (k, v) = split_heads(q, self.num_heads), split_heads(kv, self.num_heads)
        drop = self.attn_drop.p if self.training else 0.0
        tokens = self.proj_drop(self.proj(merge_heads(attend(q, k, v, bias, drop=drop))))
        G = 0 if g is None else g.shape[1]
        x = tokens[:, G:].unflatten(1, (H, W))
        return x, None if g is None else tokens[:, :G]

    def _project(self, x: Tensor, g: Tensor | None) -> QKV:
        """Queries [B,G+N,C], and keys and values [2,B,G+N',C] of the global tokens and the grid."""
        if not self.by_convolutions:
            # one product for all, and one copy of the tokens instead of one of q, of k and of v
            tokens = x.flatten(1, 2)
            return self.qkv.tokens(tokens if g is None else torch.cat((g, tokens), 1))
        q, kv = self.qkv(x)
        # [B,H,W,C] -> [B,N,C]
        q, kv = q.flatten(1, 2), kv.flatten(2, 3)
        if g is not None:
            global_q, global_kv = self.qkv.tokens(g)
            q, kv = torch.cat((global_q, q), 1), torch.cat((global_kv, kv), 2)
        return q, kv


class RecordedFull(Attention):
    """A recording of full attention."""

    def shares(self) -> dict[Part, Tensor]:
        """On the grid, and on the global tokens [B,h,H,W]; they add up to one."""
        G = self.num_global
        x = self.tokens[0][:, :, G:].unflatten(2, self.grid)
        return {"grid": x[..., G:].sum(-1), "global": x[..., :G].sum(-1)}

    def pulled(self, grid: Tensor, tokens: Tensor) -> dict[Any, Tensor]:
        """See `Attention`."""
        weights, G, (H, W) = self.tokens[0].double(), self.num_global, self.grid
        rows = torch.cat((tokens, grid.flatten(2)), 2).expand(*weights.shape[:2], -1)
        keys = torch.einsum("bhq,bhqk->bhk", rows, weights)
        on_grid = keys[..., G:]
        if on_grid.shape[2] == H * W:
            on_grid = on_grid.unflatten(2, (H, W))
        else:  # keys with a stride: each stands for a few tokens
            layer: Any = self.layer
            stride = int(layer.qkv.k.depthwise.stride[0])
            few = on_grid.unflatten(2, (num_windows(H, stride), num_windows(W, stride)))
            on_grid = spread(few, (stride, stride), self.grid)
        return {"grid": on_grid, "to_global": keys[..., :G]}
