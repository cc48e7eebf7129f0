"""Causal long-short attention on sequences (arXiv:2107.02192, section 3 and appendix D)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from timm.layers import trunc_normal_
from torch import Tensor, nn

from vit_ls.attention.long_short import KeyValueNorm
from vit_ls.ops import attend, check_heads, dynamic_projection, split_heads
from vit_ls.sequence.sinusoids import frequencies, sinusoids
from vit_ls.sequence.spans import (
    check_row,
    heads_to_tiles,
    skew,
    tiles,
    tiles_behind,
    tiles_to_heads,
    untile,
)
from vit_ls.sequence.specs import CausalLongShort

_SMALLEST_TILE = 32
"""Queries that share one tile of keys, at least: each tile repeats the projected keys."""


class LongShortState(NamedTuple):
    """What the tokens so far leave behind for those to come.

    The window and the unfinished segment have a size that does not grow; each finished segment adds
    r vectors.
    """

    length: int
    """Tokens so far, counted from the start of a segment."""
    kv: Tensor
    """Normalised keys and values that windows still reach, [2,B,min(length,reach),C]."""
    segment_kv: Tensor
    """Keys and values of the unfinished segment, not normalised, [2,B,length % l,C]."""
    segment_logits: Tensor
    """Projection logits of its tokens [B,length % l,h*r]."""
    projected: Tensor
    """Projected keys and values of the finished segments [2,B,(length // l) r,C]."""


class CausalLongShortAttention(nn.Module):
    """A window of the last w tokens and r projected vectors of each finished segment, one softmax.

    With t and s counted from 0, l the segment and A(t) = floor(t / l):

    - token t sees the keys s of its window, t - w < s <= t: w of them, itself included;
    - and the r projected vectors of each segment s < A(t), never those of its own, not even at its
      last token (Eq. 5; read with t from 0, as appendix D has it: no future token, not itself). So
      everything past is seen where w >= l, and near tokens are seen twice.
    - Scores (those of Transformer-XL, but q is scaled before the biases u and z are added):
      (q + u) . k_s + (q + z) . W_r sin(t - s) in the window, and
      q . K_bar_sj + q . (W_c sin((A(t) - s) r - 1 - j) + b_c) for vector j of segment s.
    - P = softmax over the tokens of a segment of X W_p; K_bar = LN_G(P^T X W_k), and LN_L(X W_k) in
      the window (Eq. 7), values likewise.

    Differs from the paper, as the authors' released code does: the window slides with each token,
    where figure 5 has windows in groups (`window_form="group"`), and keys are projected before
    LN_L, where the remark after Eq. 7 has them after.

    Differs from the released code: a cache starts empty, where there it starts as zeros that
    receive attention (a state made by `read` of zeros is that); cached segments are projected like
    all others, where there each head projects its own channels of the cached inputs, which are
    multiplied by W_k and W_v only then (`cached_projection="hidden"`); any number of tokens may
    come in a call. Clamped distances, off in all of its runs, are not here.

    Args:
        dim: C, even and divisible by num_heads.
        num_heads: h.
        options: Of this kind.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: dim is odd, or not divisible by num_heads.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        options: CausalLongShort,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        if dim % 2:
            raise ValueError(f"dim must be even, for sines and cosines, got dim={dim}.")
        self.dim, self.num_heads = dim, num_heads
        self.window, self.segment, self.rank = options.window, options.segment, options.rank
        self.grouped = options.window_form == "group"
        self.project_hidden = options.cached_projection == "hidden"
        self.reach = (2 * self.window if self.grouped else self.window) - 1
        self.qkv = nn.Linear(dim, 3 * dim, bias=options.bias, device=device, dtype=dtype)
        self.norm_kv = KeyValueNorm(dim, device=device, dtype=dtype) if options.dual_ln else None
        self.window_position = nn.Linear(dim, dim, bias=False, device=device, dtype=dtype)
        head = (num_heads, dim // num_heads)
        self.key_bias = nn.Parameter(torch.empty(head, device=device, dtype=dtype))
        self.position_bias = nn.Parameter(torch.empty(head, device=device, dtype=dtype))
        self.dynamic_projection: nn.Linear | None = None
        self.segment_position: nn.Linear | None = None
        self.norm_projected: KeyValueNorm | None = None
        if options.rank > 0:
            self.dynamic_projection = nn.Linear(
                dim, num_heads * options.rank, device=device, dtype=dtype
            )
            self.segment_position = nn.Linear(dim, dim, device=device, dtype=dtype)
            if options.dual_ln:
                self.norm_projected = KeyValueNorm(dim, device=device, dtype=dtype)
        self.proj = nn.Linear(dim, dim, bias=options.bias, device=device, dtype=dtype)
        self.frequencies: Tensor | None
        stored = frequencies(dim, device=device) if options.stored_frequencies else None
        self.register_buffer("frequencies", stored)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the biases u and z anew."""
        trunc_normal_(self.key_bias, std=0.02)
        trunc_normal_(self.position_bias, std=0.02)

    def forward(
        self, x: Tensor, state: LongShortState | None = None, window_sines: Tensor | None = None
    ) -> tuple[Tensor, LongShortState]:
        """Tokens [B,T,C] after those of `state` -> [B,T,C], and the state after them.

        Args:
            x: The tokens.
            state: What the tokens before them left.
            window_sines: Those of the method `window_sines`, of which training may have dropped
                some; None for all.

        Raises:
            ValueError: x is empty or of another width, or `state` is of another layer or batch.
        """
        check_row(x, self.dim)
        state = self._checked(x, state)
        q, kv = self._qkv(x)
        window_kv, after = self._extend(x, kv, state)
        size = min(x.shape[1], max(self.window, _SMALLEST_TILE))
        behind = window_kv.shape[2] - x.shape[1]
        # [B,E+T,C] -> [B,n*h,E+a,d]
        k, v = (
            tiles_to_heads(tiles_behind(y, size, self.reach), self.num_heads)
            for y in F.pad(window_kv, (0, 0, self.reach - behind, 0))
        )
        q_tiles = tiles_to_heads(tiles(q, size), self.num_heads)
        sines = self.window_sines(x) if window_sines is None else window_sines
        bias = self._window_bias(q_tiles, k, sines, state.length, behind)
        if after.projected.shape[2] > 0:
            n = bias.shape[1] // self.num_heads
            front = self._segment_bias(q, state.length, after.projected.shape[2])
            # [B,h,T,S*r] -> [B*h,n,a,S*r] -> [B,n*h,a,S*r]
            front = tiles(front.flatten(0, 1), size).unflatten(0, (-1, self.num_heads))
            bias = torch.cat((front.transpose(1, 2).flatten(1, 2), bias), dim=-1)
            k, v = (
                torch.cat((split_heads(bar, self.num_heads).repeat(1, n, 1, 1), y), dim=2)
                for bar, y in zip(after.projected, (k, v), strict=True)
            )
        y = heads_to_tiles(attend(q_tiles, k, v, bias), self.num_heads)
        return self.proj(untile(y, x.shape[1])), after

    def read(self, past: Tensor) -> LongShortState:
        """The state that the tokens past [B,L,C] leave, the first of them at a segment's start.

        Raises:
            ValueError: `past` is empty or of another width, or no whole number of segments where
                `cached_projection` is "hidden".
        """
        check_row(past, self.dim)
        _, state = self._extend(past, self._qkv(past)[1], self._empty(past))
        if not self.project_hidden or self.dynamic_projection is None:
            return state
        if past.shape[1] % self.segment:
            raise ValueError(
                "A cache that is projected by its hidden states must be a multiple of "
                f"segment={self.segment} tokens, got {past.shape[1]}."
            )
        x_bar = self._project(self.dynamic_projection(past), past[None].expand(2, -1, -1, -1))[0]
        return state._replace(projected=self._normalise_projected(self._qkv(x_bar)[1]))

    def _qkv(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B,N,C] -> queries [B,N,C], keys and values [2,B,N,C]."""
        qkv = self.qkv(x).unflatten(-1, (3, -1)).movedim(-2, 0)
        return qkv[0], qkv[1:]

    def _empty(self, x: Tensor) -> LongShortState:
        none = x.new_empty(2, x.shape[0], 0, self.dim)
        logits = x.new_empty(x.shape[0], 0, self.num_heads * self.rank)
        return LongShortState(0, none, none, logits, none)

    def _checked(self, x: Tensor, state: LongShortState | None) -> LongShortState:
        if state is None:
            return self._empty(x)
        if not isinstance(state, LongShortState):
            raise ValueError(f"A state must be a LongShortState, got {type(state).__name__}.")
        rest = state.length % self.segment if self.rank else 0
        segments = state.length // self.segment * self.rank
        expected = (
            (2, x.shape[0], min(state.length, self.reach), self.dim),
            (x.shape[0], rest, self.num_heads * self.rank),
            (2, x.shape[0], segments, self.dim),
        )
        got = tuple(tuple(y.shape) for y in (state.kv, state.segment_logits, state.projected))
        if got != expected:
            raise ValueError(
                "A state must come from this layer and batch: its window, unfinished and finished "
                f"segments must have shapes {expected}, got {got}."
            )
        return state

    def _extend(
        self, x: Tensor, kv: Tensor, state: LongShortState
    ) -> tuple[Tensor, LongShortState]:
        """Keys and values that the windows of x reach, [2,B,E+T,C], and the state after x."""
        length = state.length + x.shape[1]
        raw = kv
        if self.norm_kv is not None:
            kv = self.norm_kv(kv)
        kv = torch.cat((state.kv, kv), dim=2)
        last = kv[:, :, max(0, kv.shape[2] - self.reach) :]
        if self.dynamic_projection is None:
            return kv, state._replace(length=length, kv=last)
        logits = torch.cat((state.segment_logits, self.dynamic_projection(x)), dim=1)
        raw = torch.cat((state.segment_kv, raw), dim=2)
        done = raw.shape[2] // self.segment * self.segment
        projected = state.projected
        if done:
            new = self._normalise_projected(self._project(logits[:, :done], raw[:, :, :done]))
            projected = torch.cat((projected, new), dim=2)
        return kv, LongShortState(length, last, raw[:, :, done:], logits[:, done:], projected)

    def _project(self, logits: Tensor, kv: Tensor) -> Tensor:
        """P^T k and P^T v of each segment, [B,S*l,h*r] and [2,B,S*l,C] -> [2,B,S*r,C]."""
        # a segment is a grid of height 1 in a larger batch: [B,S*l,C] -> [B*S,1,l,C]
        logits = tiles(logits, self.segment).flatten(0, 1).unsqueeze(1)
        segments = kv.unflatten(2, (-1, self.segment)).flatten(1, 2).unsqueeze(2)
        projected = dynamic_projection(logits, segments, num_heads=self.num_heads)
        return projected.unflatten(1, (kv.shape[1], -1)).flatten(2, 3)

    def _normalise_projected(self, projected: Tensor) -> Tensor:
        return projected if self.norm_projected is None else self.norm_projected(projected)

    def window_sines(self, x: Tensor) -> Tensor:
        """Sines and cosines of the distances in a window [D,C], the farthest first, as keys stand.

        Args:
            x: Whose device and type they have.
        """
        return self._sines(torch.arange(self.reach, -1, -1, device=x.device), x.dtype)

    def _sines(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return sinusoids(positions, self.dim, dtype, self.frequencies)

    def _window_bias(self, q: Tensor, k: Tensor, sines: Tensor, first: int, behind: int) -> Tensor:
        """All but q . k of the window's scores, -inf outside the window: [B,n*h,a,E+a]."""
        n, a = q.shape[1] // self.num_heads, q.shape[2]
        scale = q.shape[-1] ** -0.5
        u, z = (y.repeat(n, 1)[:, None] for y in (self.key_bias, self.position_bias))
        table = self.window_position(sines)
        table = split_heads(table[None], self.num_heads).repeat(1, n, 1, 1)
        bias = skew((q * scale + z) @ table.transpose(-2, -1), -torch.inf)
        bias = bias + (k @ u.transpose(-2, -1)).transpose(-2, -1)
        # places of queries and keys, counted from the first token of this call
        start = torch.arange(n, device=q.device)[:, None] * a
        key = start + torch.arange(self.reach + a, device=q.device) - self.reach
        unseen = (key < -behind)[:, None, :]
        if self.grouped:
            group = (start + torch.arange(a, device=q.device) + first) // self.window
            unseen = unseen | (key[:, None] + first < (group - 1)[..., None] * self.window)
        return bias.masked_fill(unseen.repeat_interleave(self.num_heads, 0), -torch.inf)

    def _segment_bias(self, q: Tensor, first: int, vectors: int) -> Tensor:
        """The scores q . R_c of each query and vector, -inf where it may not see: [B,h,T,S*r]."""
        assert self.segment_position is not None
        t = first + torch.arange(q.shape[1], device=q.device)
        own = t // self.segment * self.rank
        distance = own[:, None] - 1 - torch.arange(vectors, device=q.device)
        farthest = (first + q.shape[1] - 1) // self.segment * self.rank
        table = torch.arange(max(1, farthest), device=q.device)
        table = self.segment_position(self._sines(table, q.dtype))
        q = split_heads(q, self.num_heads) * (self.dim // self.num_heads) ** -0.5
        by_distance = q @ split_heads(table[None], self.num_heads).transpose(-2, -1)
        place = distance.clamp(min=0).expand(*q.shape[:2], -1, -1)
        return by_distance.gather(-1, place).masked_fill(distance < 0, -torch.inf)
