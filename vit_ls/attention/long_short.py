"""Long-short attention: a window, a dynamic projection and global tokens under one softmax.

arXiv:2107.02192, section 3, in whose symbols `window` is w and `rank` is r; with other options it
is the attention of Vision Longformer (arXiv:2103.15358).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from timm.layers import register_notrace_module
from torch import Tensor, nn

from vit_ls.attention.place import Place
from vit_ls.attention.position_bias import WindowPositionBias
from vit_ls.attention.projections import ConvDynamicProjection
from vit_ls.attention.recorded import Attention, Part
from vit_ls.ops import (
    Positions,
    Windows,
    check_heads,
    dynamic_projection,
    global_attention,
    long_short_attention,
    planned,
    window_halo,
)
from vit_ls.ops.rows import by_rows, dynamic_projection_by_rows


@dataclass(frozen=True)
class LongShort:
    """Options of long-short attention.

    Raises:
        ValueError: window or rank is negative.
    """

    window: int
    """Side w of the square window, in tokens; 0 for the projection alone."""
    rank: int
    """r, tokens that keys and values are projected onto; 0 for the window alone."""
    dual_ln: bool = True
    """Layer norms on the keys and values (LN_L) and on the projected ones (LN_G)."""
    position_table: bool = False
    """A learned relative position bias on the window's keys."""
    whole_halo: bool = False
    """A window's keys reach a whole window beyond it, not half of one (ViL)."""
    token_bias: bool = False
    """With a position table: a bias to and from the stage's global tokens too (ViL)."""
    tokens_read: Literal["outputs", "keys"] = "outputs"
    """What the global tokens attend to on the grid: its outputs, or its keys and values (ViL)."""

    def __post_init__(self) -> None:
        if self.window < 0 or self.rank < 0:
            raise ValueError(
                f"window and rank must not be negative, got window={self.window}, rank={self.rank}."
            )

    @property
    def windows(self) -> Windows:
        """The windows of any grid."""
        halo = window_halo(self.window, self.whole_halo)
        return Windows((self.window, self.window), (halo, halo))

    @property
    def has_table(self) -> bool:
        """Whether there is a position bias: without a window there is nothing to add it to."""
        return self.position_table and self.window > 0

    def layer(self, place: Place) -> "LongShortAttention":
        """The layer of these options at a place."""
        return LongShortAttention(self, place)

    def shared(self, place: Place) -> "WindowGeometry":
        """What its layers share on a grid."""
        return WindowGeometry(self, place)


@register_notrace_module
class WindowGeometry(nn.Module):
    """Makes, once per forward, what long-short attention shares on a grid.

    That is its windows' mask, and what computes them there.
    """

    def __init__(self, options: LongShort, place: Place) -> None:
        super().__init__()
        self.windows = options.windows
        self.num_heads, self.drop = place.num_heads, place.attn_drop
        self.front = options.rank + place.num_global

    def forward(self, x: Tensor) -> Windows:
        """The windows of a grid x [B,H,W,C]."""
        drop = self.drop if self.training else 0.0
        return planned(x, self.windows, self.num_heads, self.front, drop)


@register_notrace_module
class LongShortAttention(nn.Module):
    """A window, a dynamic projection of the grid, and the global tokens, under one softmax.

    DualLN normalises keys and values before they are projected and after, as section 3.4 has it.
    Differs from the paper, as its released image code does: each of its norms spans all heads, keys
    outside the grid are masked where section 3.2 pads with zeros, and the global tokens attend to
    the grid's outputs (`global_attention`).

    Args:
        options: Of this kind.
        place: Where the layer stands; its convolutions make the dynamic projection too.

    Raises:
        ValueError: dim is not divisible by num_heads; strided keys.
    """

    def __init__(self, options: LongShort, place: Place) -> None:
        super().__init__()
        dim, num_heads, convolutions = place.dim, place.num_heads, place.conv_projection
        check_heads(dim, num_heads)
        if convolutions is not None and convolutions.kv_stride > 1:
            raise ValueError(
                f"A window needs a key at each token, got kv_stride={convolutions.kv_stride}."
            )
        self.num_heads = num_heads
        self.window, self.halo, *_ = options.windows
        self.rank = options.rank
        self.read_keys = options.tokens_read == "keys"
        self.impl = "auto"
        self.qkv = place.qkv()
        self.norm_kv = KeyValueNorm(dim, **place.on) if options.dual_ln else None
        self.dynamic_projection: nn.Module | None = None
        if options.rank > 0:
            projection = nn.Linear if convolutions is None else ConvDynamicProjection
            self.dynamic_projection = projection(dim, num_heads * options.rank, **place.on)
        self.norm_projected: KeyValueNorm | None = None
        if options.dual_ln and options.rank > 0:
            self.norm_projected = KeyValueNorm(dim, **place.on)
        self.position_bias: WindowPositionBias | None = None
        if options.has_table:
            num_global = place.num_global if options.token_bias else 0
            self.position_bias = WindowPositionBias(
                num_heads, options.window, options.whole_halo, num_global, **place.on
            )
        self.attn_drop = nn.Dropout(place.attn_drop)
        self.proj = nn.Linear(dim, dim, **place.on)
        self.proj_drop = nn.Dropout(place.proj_drop)

    def forward(self, x: Tensor, g: Tensor | None, shared: Windows) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] and global tokens g [B,G,C] or None -> the same shapes."""
        h, drop = self.num_heads, self.attn_drop.p if self.training else 0.0
        global_q, *global_keys = (None,) if g is None else self.qkv.three_of_tokens(g)
        if self.training or shared.plan is None or not shared.plan.large:
            q, *keys = self.qkv.three(x)
            kv, tokens = self._normed(keys, global_keys)
            front = self._project(x, kv)
        else:
            q, kv, front = self._of_large(x)
            tokens = None if g is None else self._normed(global_keys, ())[0]
        positions, token_bias = Positions(), None
        if self.position_bias is not None:
            N = x.shape[1] * x.shape[2]
            positions, token_bias = self._positions(self.position_bias, shared, N)
        y = long_short_attention(
            *(q, kv, front, tokens, positions, shared), num_heads=h, impl=self.impl, drop=drop
        )
        seen = kv if self.read_keys else y.expand(2, *y.shape)
        del q, kv  # of a large grid: what follows wants their memory
        if global_q is None or tokens is None:
            return self.proj_drop(self.proj(y)), None
        g = global_attention(
            *(global_q, tokens, seen, token_bias), num_heads=h, drop=drop, plan=shared.plan
        )
        return self.proj_drop(self.proj(y)), self.proj_drop(self.proj(g))

    def _normed(
        self, grid: Sequence[Tensor], tokens: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """LN_L of keys and of values [B,H,W,C] and, if any, [B,G,C]: [2,B,H,W,C] and [2,B,G,C]."""
        # one copy and one norm for all four, after which keys and values are one tensor each
        kv = torch.cat([x.flatten(0, -2) for x in (*grid, *tokens)])
        if self.norm_kv is not None:
            kv = self.norm_kv(kv)
        if not tokens:
            return kv.unflatten(0, (2, *grid[0].shape[:-1])), None
        few = 2 * tokens[0].shape[0] * tokens[0].shape[1]
        many, kv = kv.tensor_split([kv.shape[0] - few])
        return many.unflatten(0, (2, *grid[0].shape[:3])), kv.unflatten(
            0, (2, *tokens[0].shape[:2])
        )

    def _of_large(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """q, LN_L of keys and values, and LN_G of the projected ones, each once in memory."""
        q, kv = self.qkv.of_large(x)
        if self.norm_kv is not None:
            for one in kv:
                by_rows(self.norm_kv, one, x.shape[2] * x.shape[3], out=one)
        if self.dynamic_projection is None:
            return q, kv, None
        logits = self.dynamic_projection(x)
        front = dynamic_projection_by_rows(logits, kv, num_heads=self.num_heads)
        return q, kv, front if self.norm_projected is None else self.norm_projected(front)

    def _project(self, x: Tensor, kv: Tensor) -> Tensor | None:
        """LN_G of the projected keys and values [2,B,R,C], or None for rank 0."""
        if self.dynamic_projection is None:
            return None
        projected = dynamic_projection(self.dynamic_projection(x), kv, num_heads=self.num_heads)
        return projected if self.norm_projected is None else self.norm_projected(projected)

    def _positions(
        self, table: WindowPositionBias, shared: Windows, N: int
    ) -> tuple[Positions, Tensor | None]:
        """What places add to the scores of N tokens, and to those of the global tokens."""
        front = table.of_patches()
        if front is not None:
            front = F.pad(front, (self.rank, 0))  # none on projected keys
        return Positions(table(shared), front=front), table.of_tokens(N)


class KeyValueNorm(nn.LayerNorm):
    """One layer norm for keys and values, whose dtype it keeps where autocast norms in float32."""

    def forward(self, kv: Tensor) -> Tensor:
        """[2,...,C] -> [2,...,C]."""
        normed = F.layer_norm(kv, self.normalized_shape, self.weight, self.bias, self.eps)
        return normed.to(kv.dtype)


class RecordedLongShort(Attention):
    """A recording of long-short attention."""

    layer: LongShortAttention

    @property
    def window(self) -> tuple[int, int]:
        """(a, b), (0, 0) for none."""
        return self.layer.window

    @property
    def halo(self) -> tuple[int, int]:
        """(sa, sb)."""
        return self.layer.halo

    def front_and_window(self) -> tuple[Tensor | None, Tensor | None]:
        """See `Attention`; without a window all weights are of the keys in front."""
        if self.windows is None:
            return self.tokens[0].unflatten(2, self.grid), None
        return super().front_and_window()

    def shares(self) -> dict[Part, Tensor]:
        """On the window, the projected and the global tokens [B,h,H,W]; they add up to one."""
        front, near = self.front_and_window()
        zero = self.weights.new_zeros(*self.weights.shape[:2], *self.grid)
        return {
            "window": zero if near is None else near.sum(-1),
            "projected": zero if front is None else front[..., : self.rank].sum(-1),
            "global": zero if front is None else front[..., self.rank :].sum(-1),
        }

    def pulled(self, grid: Tensor, tokens: Tensor) -> dict[Any, Tensor]:
        """See `Attention`."""
        front, near = self.front_and_window()
        parts: dict[Any, Tensor] = {}
        to_global = grid.new_zeros(*self.weights.shape[:2], self.num_global)
        from_tokens = None
        if self.num_global:  # their rows: of keys, or of the outputs of the grid
            rows = self.tokens[-1].double()
            back = torch.einsum("bhg,bhgk->bhk", tokens.expand(*rows.shape[:2], -1), rows)
            to_global = to_global + back[..., : self.num_global]
            from_tokens = back[..., self.num_global :].unflatten(2, self.grid)
            if not self.layer.read_keys:
                grid, from_tokens = grid + from_tokens, None
        if near is not None:
            parts["window"] = self.to_places(grid[..., None] * near.double())
        if front is not None:
            keys = torch.einsum("bhyx,bhyxe->bhe", grid.expand(*front.shape[:4]), front.double())
            if self.projection is not None:
                spread = keys[..., None, : self.rank] @ self.projection.double()
                parts["projected"] = spread[..., 0, :].unflatten(2, self.grid)
            to_global = to_global + keys[..., self.rank :]
        if from_tokens is not None:
            parts["global"] = from_tokens
        return {**parts, "to_global": to_global}
