"""Attention layers on the tokens of timm's transformers, made of the parts of the original's.

Tokens are [B,G+N,C] there: G prefix tokens (class, registers, distillation), then the N = H * W
patches. The prefix tokens attend to all tokens as they did, and every patch attends to them.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import apply_rot_embed_cat, resize_rel_pos_bias_table
from torch import Tensor, nn

from vit_ls.attention.recorded import Attention
from vit_ls.ops import Positions, Windows, attend, merge_heads, split_heads
from vit_ls.replace.patches import Patches
from vit_ls.replace.relative import of_prefix, of_windows


class Projected(NamedTuple):
    """Queries, keys and values of all tokens, normed as the original norms them, [B,G+N,h*d]."""

    q: Tensor
    k: Tensor
    v: Tensor


class OfPatches(NamedTuple):
    """What the attention of the patches starts from; `kv` is [2,...,h*d]."""

    x: Tensor
    """What the block hands to its attention, of the patches alone [B,H,W,C]."""
    q: Tensor
    """Queries, rotated where the model rotates them [B,H,W,h*d]."""
    kv: Tensor
    """Keys, rotated likewise, and values [2,B,H,W,h*d]."""
    unrotated: Tensor
    """Keys without a place, and values [2,B,H,W,h*d]."""
    prefix: Tensor | None
    """Keys and values of the prefix tokens [2,B,G,h*d], or None without any."""


class TokenAttention(nn.Module, ABC):
    """Attention of a block of timm's, whose parts and their names it has.

    Args:
        original: Its parts are taken over: projections, norms, gate, biases. It must not be used
            any more.
        patches: Which grid the tokens come from.
        num_prefix: G.
    """

    recorded: type[Attention] | None = None
    """What `vit_ls.record` gives of such a layer; None for none."""

    def __init__(self, original: nn.Module, patches: Patches, num_prefix: int) -> None:
        super().__init__()
        kept = original.state_dict()
        self.taken = frozenset(name for name, _ in original.named_parameters())
        for name, child in original.named_children():
            self.add_module(name, child)
        for name, parameter in original.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in original.named_buffers(recurse=False):
            if name != "relative_position_index":  # of all pairs of tokens: windows have none
                self.register_buffer(name, buffer, persistent=name in kept)
        self.num_heads: int = original.num_heads  # type: ignore[assignment]
        self.num_kv_heads = getattr(original, "num_kv_heads", self.num_heads)
        self.rotate_half = getattr(original, "rotate_half", False)
        self.bias_apart = getattr(original, "qkv_bias_separate", False)
        self.table_grid: tuple[int, int] | None = getattr(original, "window_size", None)
        self.patches = patches
        self.num_prefix = num_prefix
        self.impl = "auto"
        self.train(original.training)

    def forward(
        self,
        x: Tensor,
        *,
        rope: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        shared_rel_pos_bias: Tensor | None = None,
    ) -> Tensor:
        """Tokens [B,G+N,C] -> [B,G+N,C].

        Args:
            x: Tokens.
            rope: Rotary positions of the patches, of timm's `create_rope_embed`.
            attn_mask: Refused: windows take no mask between tokens.
            is_causal: Refused likewise.
            shared_rel_pos_bias: Refused likewise.

        Raises:
            ValueError: One of these, or tokens that are not those of the patches.
        """
        if attn_mask is not None or is_causal or shared_rel_pos_bias is not None:
            raise ValueError(
                "Replaced attention takes no attn_mask, is_causal or shared_rel_pos_bias: keep "
                "these blocks."
            )
        G = self.num_prefix
        grid = self.patches.grid_of(x.shape[1] - G)
        tokens = self.project(x)
        q, k = tokens.q, tokens.k
        if rope is not None:
            q, k = self._rotated(q, G, rope), self._rotated(k, G, rope)
        # [B,N,h*d] -> [B,H,W,h*d]
        plain, turned, values = (t[:, G:].unflatten(1, grid) for t in (tokens.k, k, tokens.v))
        kv = torch.stack((turned, values))
        y = self.attend_patches(
            OfPatches(
                x[:, G:].unflatten(1, grid),
                q[:, G:].unflatten(1, grid),
                kv,
                kv if rope is None else torch.stack((plain, values)),
                torch.stack((k[:, :G], tokens.v[:, :G])) if G else None,
            )
        ).flatten(1, 2)
        if G:
            q, k, v = (split_heads(t, self.num_heads) for t in (q[:, :G], k, tokens.v))
            prefix = attend(q, k, v, self._bias_of_prefix(x.shape[1]), drop=self.drop)
            y = torch.cat((merge_heads(prefix), y), dim=1)
        return self._out(x, y)

    @abstractmethod
    def attend_patches(self, one: OfPatches) -> Tensor:
        """The patches' own attention [B,H,W,h*d]."""

    @property
    def added(self) -> list[str]:
        """Names of the parameters that the original has not."""
        return [name for name, _ in self.named_parameters() if name not in self.taken]

    @property
    def drop(self) -> float:
        """Probability that a weight of a softmax is dropped now."""
        dropout: Any = self.attn_drop
        return float(dropout.p) if self.training else 0.0

    def project(self, x: Tensor) -> Projected:
        """What the original makes of tokens [...,C]: queries, keys and values [...,h*d]."""
        part: Any = self
        h = self.num_heads
        if getattr(self, "qkv", None) is None:
            q, k, v = (
                project(x).unflatten(-1, (heads, -1))
                for project, heads in (
                    (part.q_proj, h),
                    (part.k_proj, self.num_kv_heads),
                    (part.v_proj, self.num_kv_heads),
                )
            )
        else:
            q, k, v = self._product(x).unflatten(-1, (3, h, -1)).unbind(-3)
        if "q_norm" in self._modules:
            q, k = part.q_norm(q).to(v.dtype), part.k_norm(k).to(v.dtype)
        if self.num_kv_heads != h:
            times = h // self.num_kv_heads
            k, v = k.repeat_interleave(times, -2), v.repeat_interleave(times, -2)
        return Projected(q.flatten(-2), k.flatten(-2), v.flatten(-2))

    @property
    def width(self) -> int:
        """H * d, which may differ from C."""
        proj: Any = self.proj
        return int(proj.in_features)

    def _weight(self) -> Tensor:
        """Of queries, keys and values [3*h*d,C]."""
        part: Any = self
        if getattr(self, "qkv", None) is not None:
            return part.qkv.weight
        return torch.cat([one.weight for one in (part.q_proj, part.k_proj, part.v_proj)])

    def _product(self, x: Tensor) -> Tensor:
        """[...,C] -> [...,3*h*d]."""
        part: Any = self
        if getattr(self, "q_bias", None) is None:
            return part.qkv(x)
        bias = torch.cat((part.q_bias, part.k_bias, part.v_bias))
        return part.qkv(x) + bias if self.bias_apart else F.linear(x, part.qkv.weight, bias)

    def _rotated(self, x: Tensor, G: int, rope: Tensor) -> Tensor:
        """Queries or keys [B,G+N,h*d], those of the patches turned by their places."""
        # [N,2d], [h,N,2d] or [B,1,N,2d] -> [...,N,h or 1,2d]
        places = (rope if rope.ndim > 2 else rope[None]).transpose(-3, -2)
        heads = x[:, G:].unflatten(-1, (self.num_heads, -1))
        turned = apply_rot_embed_cat(heads, places, half=self.rotate_half).flatten(-2)
        return torch.cat((x[:, :G], turned.to(x.dtype)), dim=1) if G else turned.to(x.dtype)

    def _table(self) -> Tensor | None:
        """The relative position bias of BEiT, or None."""
        return getattr(self, "relative_position_bias_table", None)

    def set_window_size(self, window_size: tuple[int, int]) -> None:
        """Make the relative bias for another grid (H, W), as timm's `set_input_size` asks."""
        table = self._table()
        if table is None or self.table_grid is None or window_size == self.table_grid:
            return
        rows = (2 * window_size[0] - 1) * (2 * window_size[1] - 1) + 3
        with torch.no_grad():
            resized = resize_rel_pos_bias_table(
                table, window_size, (rows, self.num_heads), self.table_grid
            )
        self.relative_position_bias_table = nn.Parameter(resized, table.requires_grad)
        self.table_grid = window_size[0], window_size[1]

    def init_non_persistent_buffers(self) -> None:
        """Fill what no checkpoint holds, as timm asks after a model was made without values."""
        bias: Any = getattr(self, "k_bias", None)
        if bias is not None:
            bias.zero_()

    def positions(self, windows: Windows) -> Positions:
        """What the original's relative bias adds in windows."""
        table = self._table()
        if table is None or self.table_grid is None:
            return Positions()
        bias, front = of_windows(table, self.table_grid, windows)
        return Positions(bias, front=front)

    def _bias_of_prefix(self, tokens: int) -> Tensor | None:
        table = self._table()
        return None if table is None else of_prefix(table, tokens)

    def _out(self, x: Tensor, y: Tensor) -> Tensor:
        """The end of the original's forward: [B,G+N,h*d] -> [B,G+N,C]."""
        part: Any = self
        if "norm" in self._modules:
            y = part.norm(y)
        if getattr(self, "gate", None) is not None:
            y = y * part.gate(x).sigmoid()
        return part.proj_drop(part.proj(y))

    def grid_and_tokens(self, x: Tensor) -> tuple[tuple[int, int], int]:
        """(H, W) and G of tokens x, for a recording."""
        return self.patches.grid_of(x.shape[1] - self.num_prefix), self.num_prefix
