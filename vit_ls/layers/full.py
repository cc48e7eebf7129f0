"""Full attention: the later stages of ViL-LS, and the CvT baselines."""

import torch
from timm.layers import register_notrace_module
from torch import Tensor, nn

from vit_ls.layers.geometry import Geometry
from vit_ls.layers.position_bias import GridPositionBias
from vit_ls.layers.projections import QKV, Convolutions, ConvQKV, LinearQKV
from vit_ls.ops import attend, check_heads, merge_heads, split_heads


@register_notrace_module
class FullAttention(nn.Module):
    """Multi-head softmax attention of all tokens over all tokens.

    Args:
        dim: C, divisible by num_heads.
        num_heads: h.
        table_grid: Grid (H, W) in tokens that the relative position table is made for; None for no
            position bias. At another size the table is resized bilinearly.
        num_global: G, used by the position bias alone.
        conv_projection: Convolutions for q, k, v (CvT) instead of a linear layer, or None. With a
            stride there are fewer keys than queries.
        attn_drop: Probability that a weight of a softmax over keys is dropped in training.
        proj_drop: Likewise, a number of what comes out.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: dim is not divisible by num_heads; a position table with strided keys.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        table_grid: tuple[int, int] | None = None,
        num_global: int = 0,
        conv_projection: Convolutions | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        if table_grid is not None and conv_projection is not None and conv_projection.kv_stride > 1:
            raise ValueError(
                "A position table needs a key at each token, "
                f"got kv_stride={conv_projection.kv_stride}."
            )
        self.num_heads = num_heads
        self.by_convolutions = conv_projection is not None
        self.qkv = (
            LinearQKV(dim, device, dtype)
            if conv_projection is None
            else ConvQKV(dim, conv_projection, device, dtype)
        )
        self.position_bias = (
            None
            if table_grid is None
            else GridPositionBias(num_heads, table_grid, num_global, device, dtype)
        )
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(
        self, x: Tensor, g: Tensor | None, geometry: Geometry
    ) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] and global tokens g [B,G,C] or None -> the same shapes."""
        H, W = x.shape[1], x.shape[2]
        q, kv = self._project(x, g)
        bias: Tensor | None = None
        if self.position_bias is not None:
            bias = self.position_bias(geometry.position_index, H, W)[None]
        k, v = kv.unbind()
        q, k, v = (
            split_heads(q, self.num_heads),
            split_heads(k, self.num_heads),
            split_heads(v, self.num_heads),
        )
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
        q, kv = q.flatten(1, 2), kv.flatten(2, 3)
        if g is not None:
            global_q, global_kv = self.qkv.tokens(g)
            q, kv = torch.cat((global_q, q), 1), torch.cat((global_kv, kv), 2)
        return q, kv
