"""Causal composite slice attention on sequences (Lee et al., ICLR 2023, section 4.1, A.7, A.9)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_ls.attention.projections import LinearQKV
from vit_ls.ops import attend, check_heads, merge_heads, project_positions, split_heads
from vit_ls.sequence.composite_slice import SlicePositions, check_positions, slice_reach
from vit_ls.sequence.spans import (
    check_row,
    heads_to_tiles,
    tiles,
    tiles_behind,
    tiles_to_heads,
    untile,
)
from vit_ls.sequence.specs import CausalCompositeSlice


class SliceState(NamedTuple):
    """What the tokens so far leave behind for those to come.

    All but `slices` has a size that does not grow; a finished slice adds one key and one value.
    """

    length: int
    """Tokens so far."""
    kv: Tensor
    """Keys and values, without P_l, of the unfinished slice and the E tokens before it."""
    total: Tensor
    """Sum of the local outputs of the unfinished slice [B,1,C]."""
    slices: Tensor
    """Keys, with P_g, and values of the finished slices [2,B,length // L,C]."""
    y_g: Tensor
    """Global output of the unfinished slice [B,1,C]."""


class CausalCompositeSliceAttention1d(nn.Module):
    """Causal attention inside slices, causal attention among the slices before, and their sum.

    With t from 0, s = floor(t / L) and E = round((alpha - 1) L / 2):

    - token t sees the keys max(s L - E, 0) <= j <= t (Eq. 12: slices extend to the left only);
    - S_bar_s is the mean of the slice's local outputs, Z = causal attention among (S_bar + P_g),
      each slice seeing itself and those before, and all tokens of slice s get Y_g,s = Z_{s-1}: the
      query of the slice before over keys j <= s - 1. Slice 0 gets nothing. Y = Y_l + Y_g.
    - P_l and P_g enter queries and keys as in `CompositeSliceAttention1d`; a shifted query keeps
      its own P_g.

    Where the paper is open: its "L x L causal mask" has E open columns in front, where keys before
    the sequence receive no attention instead of being zeros; keys j <= s - 1, since A.9.1 says that
    only the current slice is missing; the same computation in training and testing, so the last
    slice gets no key of its own either. The state across calls is ours; A.7.2 leaves it open.

    Args:
        dim: C, divisible by num_heads.
        num_heads: h.
        options: Of this kind.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: numbers that do not fit each other.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        options: CausalCompositeSlice,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        self.dim, self.num_heads = dim, num_heads
        self.slice_size = options.slice_size
        self.reach = slice_reach(options.slice_size, options.alpha)
        self.qkv = LinearQKV(dim, device, dtype)
        self.proj = nn.Linear(dim, dim, device=device, dtype=dtype)

    def forward(
        self, x: Tensor, positions: SlicePositions | None = None, state: SliceState | None = None
    ) -> tuple[Tensor, SliceState]:
        """Tokens [B,T,C] after those of `state` -> [B,T,C], and the state after them.

        Args:
            x: Tokens [B,T,C].
            positions: P_l and P_g, or None for neither.
            state: Of the tokens before; None at the start.

        Raises:
            ValueError: x is empty or of another width, the sequence is longer than P_g, P_l is of
                another shape, or `state` is of another layer or batch.
        """
        check_row(x, self.dim)
        state = self._checked(x, state)
        pos_q = pos_k = None
        if positions is not None:
            rows, length = self.slice_size + self.reach, state.length + x.shape[1]
            P_g = check_positions(positions, length, self.slice_size, rows)
            positions = SlicePositions(positions.local, P_g)
            pos_q, pos_k = project_positions(positions.local, self.qkv.weight)
        outputs = []
        # first what finishes a slice that was begun: from there on slices start with a tile
        first = -state.length % self.slice_size
        for part in (x[:, :first], x[:, first:]):
            if part.shape[1]:
                y_l, kv = self._attend_in_slices(part, state, pos_q, pos_k)
                y_g, state = self._attend_among_slices(y_l, kv, positions, state)
                outputs.append(y_l + y_g)
        return self.proj(torch.cat(outputs, dim=1)), state

    def _checked(self, x: Tensor, state: SliceState | None) -> SliceState:
        B, C = x.shape[0], self.dim
        if state is None:
            none, zero = x.new_empty(2, B, 0, C), x.new_zeros(B, 1, C)
            return SliceState(0, none, zero, none, zero)
        if not isinstance(state, SliceState):
            raise ValueError(f"A state must be a SliceState, got {type(state).__name__}.")
        done, begun = divmod(state.length, self.slice_size)
        local = begun + min(self.reach, done * self.slice_size)
        expected = ((2, B, local, C), (2, B, done, C))
        got = (tuple(state.kv.shape), tuple(state.slices.shape))
        if got != expected:
            raise ValueError(
                "A state must come from this layer and batch: its tokens and slices must have "
                f"shapes {expected}, got {got}."
            )
        return state

    def _attend_in_slices(
        self, x: Tensor, state: SliceState, pos_q: Tensor | None, pos_k: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Y_l [B,T,C], and keys and values of x and of what it reaches [2,B,E+begun+T,C].

        Either no slice is begun, or x does not go beyond it.
        """
        T, L, h = x.shape[1], self.slice_size, self.num_heads
        begun = state.length % L
        size, behind = min(T, L), self.reach + begun
        q, kv = self.qkv.tokens(x)
        kv = torch.cat((state.kv, kv), dim=2)
        missing = behind - state.kv.shape[2]
        k, v = (tiles_behind(y, size, behind) for y in F.pad(kv, (0, 0, missing, 0)))
        q = tiles(q, size)
        if pos_q is not None and pos_k is not None:
            q, k = q + pos_q[behind : behind + size], k + pos_k[: behind + size]
        place = torch.arange(behind + size, device=x.device)
        tile = torch.arange(q.shape[1], device=x.device)[:, None, None]
        seen = (place <= place[behind:, None]) & (tile * size + place >= missing)
        # [n,a,E+a] -> [1,n*h,a,E+a]
        seen = seen.repeat_interleave(h, 0)[None]
        y = attend(tiles_to_heads(q, h), tiles_to_heads(k, h), tiles_to_heads(v, h), seen)
        return untile(heads_to_tiles(y, h), T), kv

    def _attend_among_slices(
        self, y_l: Tensor, kv: Tensor, positions: SlicePositions | None, state: SliceState
    ) -> tuple[Tensor, SliceState]:
        """Y_g of each token of Y_l [B,T,C], and the state after them."""
        T, L = y_l.shape[1], self.slice_size
        done, begun = divmod(state.length, L)
        # sums of the slices of x, of which the first may have been begun: [B,slices,C]
        begun_sums = tiles(F.pad(y_l, (0, 0, begun, 0)), L).sum(2)
        sums = torch.cat((begun_sums[:, :1] + state.total, begun_sums[:, 1:]), dim=1)
        new = (begun + T) // L
        y_g, slices = state.y_g, state.slices
        if new:
            q, new_kv = self.qkv.tokens(sums[:, :new] / L)
            if positions is not None:
                pos_q, pos_k = project_positions(positions.slices, self.qkv.weight)
                q = q + pos_q[done : done + new]
                new_kv = torch.stack((new_kv[0] + pos_k[done : done + new], new_kv[1]))
            slices = torch.cat((slices, new_kv), dim=2)
            z = self._attend_slices(q, slices)
            y_g = torch.cat((y_g, z), dim=1)
        y = y_g.repeat_interleave(L, 1)[:, begun : begun + T]
        # a finished slice's own output is for the next; what is left of the sums is unfinished
        rest = F.pad(sums, (0, 0, 0, 1))[:, new : new + 1]
        length = state.length + T
        keep = length % L + min(self.reach, length - length % L)
        kv = kv[:, :, kv.shape[2] - keep :]
        return y, SliceState(length, kv, rest, slices, y_g[:, -1:])

    def _attend_slices(self, q: Tensor, kv: Tensor) -> Tensor:
        """Z: each of the last slices, q [B,n,C], sees itself and all before, kv [2,B,S,C]."""
        n, S = q.shape[1], kv.shape[2]
        place = torch.arange(S, device=q.device)
        seen = (place <= place[S - n :, None])[None, None]
        q, k, v = (split_heads(y, self.num_heads) for y in (q, kv[0], kv[1]))
        return merge_heads(attend(q, k, v, seen))
