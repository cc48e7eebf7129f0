"""Long-short attention as a layer (arXiv:2107.02192, section 3)."""

from typing import Literal

import torch
import torch.nn.functional as F
from timm.layers import register_notrace_module
from torch import Tensor, nn

from vit_ls.layers.geometry import Geometry
from vit_ls.layers.position_bias import WindowPositionBias
from vit_ls.layers.projections import (
    ConvDynamicProjection,
    Convolutions,
    ConvQKV,
    LinearQKV,
)
from vit_ls.ops import (
    Positions,
    Windows,
    check_heads,
    dynamic_projection,
    global_attention,
    long_short_attention,
    window_halo,
)


@register_notrace_module
class LongShortAttention(nn.Module):
    """A window, a dynamic projection of the grid, and the global tokens, under one softmax.

    DualLN normalises keys and values before they are projected and after, as section 3.4 has it.
    Differs from the paper, as its released image code does: each of its norms spans all heads, keys
    outside the grid are masked where section 3.2 pads with zeros, and the global tokens attend to
    the grid's outputs (`global_attention`).

    Args:
        dim: C, divisible by num_heads.
        num_heads: h.
        window: Side w of the square window, in tokens; 0 for the projection alone.
        rank: r, tokens that keys and values are projected onto; 0 for the window alone.
        dual_ln: Layer norms on the keys and values (LN_L) and on the projected ones (LN_G).
        position_table: A learned relative position bias on the window's keys.
        whole_halo: A window's keys reach a whole window beyond it, not half of one (ViL).
        token_bias: G, for a learned bias to and from global tokens beside the table (ViL); 0 for
            none.
        tokens_read: What the global tokens attend to on the grid: its outputs, or its keys and
            values (ViL).
        conv_projection: Convolutions for q, k, v and the dynamic projection (CvT-LS) instead of
            linear layers, or None.
        attn_drop: Probability that a weight of a softmax over keys is dropped in training.
        proj_drop: Likewise, a number of what comes out.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: dim is not divisible by num_heads; window or rank is negative; strided keys.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        window: int,
        rank: int,
        dual_ln: bool = True,
        position_table: bool = False,
        whole_halo: bool = False,
        token_bias: int = 0,
        tokens_read: Literal["outputs", "keys"] = "outputs",
        conv_projection: Convolutions | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        if window < 0 or rank < 0:
            raise ValueError(
                f"window and rank must not be negative, got window={window}, rank={rank}."
            )
        if conv_projection is not None and conv_projection.kv_stride > 1:
            raise ValueError(
                f"A window needs a key at each token, got kv_stride={conv_projection.kv_stride}."
            )
        self.num_heads = num_heads
        self.window = (window, window)
        self.halo = (window_halo(window, whole_halo), window_halo(window, whole_halo))
        self.rank = rank
        self.read_keys = tokens_read == "keys"
        self.impl = "auto"
        self.qkv = (
            LinearQKV(dim, device, dtype)
            if conv_projection is None
            else ConvQKV(dim, conv_projection, device, dtype)
        )
        self.norm_kv = KeyValueNorm(dim, device=device, dtype=dtype) if dual_ln else None
        self.dynamic_projection: nn.Module | None = None
        if rank > 0:
            projection = nn.Linear if conv_projection is None else ConvDynamicProjection
            self.dynamic_projection = projection(dim, num_heads * rank, device=device, dtype=dtype)
        self.norm_projected: KeyValueNorm | None = None
        if dual_ln and rank > 0:
            self.norm_projected = KeyValueNorm(dim, device=device, dtype=dtype)
        self.position_bias: WindowPositionBias | None = None
        if position_table and window > 0:
            self.position_bias = WindowPositionBias(
                num_heads, window, whole_halo, token_bias, device, dtype
            )
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(
        self, x: Tensor, g: Tensor | None, geometry: Geometry
    ) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] and global tokens g [B,G,C] or None -> the same shapes."""
        drop = self.attn_drop.p if self.training else 0.0
        q, kv = self.qkv(x)
        if self.norm_kv is not None:
            kv = self.norm_kv(kv)
        projected: Tensor | None = None
        if self.dynamic_projection is not None:
            logits = self.dynamic_projection(x)
            kv_bar = dynamic_projection(logits, kv, num_heads=self.num_heads)
            projected = kv_bar if self.norm_projected is None else self.norm_projected(kv_bar)
        tokens_q: Tensor | None = None
        tokens: Tensor | None = None
        if g is not None:
            tokens_q, kv_g = self.qkv.tokens(g)
            tokens = kv_g if self.norm_kv is None else self.norm_kv(kv_g)
        positions = Positions()
        token_bias: Tensor | None = None
        if self.position_bias is not None:
            front = self.position_bias.of_patches()
            if front is not None:
                front = F.pad(front, (self.rank, 0))  # none on projected keys
            positions = Positions(self.position_bias(geometry.position_index), front=front)
            token_bias = self.position_bias.of_tokens(x.shape[1] * x.shape[2])
        x = long_short_attention(
            q,
            kv,
            projected,
            tokens,
            positions,
            Windows(self.window, self.halo, geometry.mask),
            num_heads=self.num_heads,
            impl=self.impl,
            drop=drop,
        )
        if tokens_q is None or tokens is None:
            return self.proj_drop(self.proj(x)), None
        grid_k, grid_v = x, x
        if self.read_keys:
            grid_k, grid_v = kv.unbind()
        g = global_attention(
            tokens_q, tokens, grid_k, grid_v, token_bias, num_heads=self.num_heads, drop=drop
        )
        return self.proj_drop(self.proj(x)), self.proj_drop(self.proj(g))


class KeyValueNorm(nn.LayerNorm):
    """One layer norm for keys and values, whose dtype it keeps where autocast norms in float32."""

    def forward(self, kv: Tensor) -> Tensor:
        """[2,...,C] -> [2,...,C]."""
        normed = F.layer_norm(kv, self.normalized_shape, self.weight, self.bias, self.eps)
        return normed.to(kv.dtype)
