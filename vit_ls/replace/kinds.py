"""Long-short and composite slice attention on the tokens of timm's transformers."""

import torch
import torch.nn.functional as F
from timm.layers import register_notrace_module
from torch import Tensor, nn

from vit_ls.attention import CompositeSlice, LongShort, Place
from vit_ls.attention.long_short import KeyValueNorm, RecordedLongShort
from vit_ls.attention.projections import LinearQKV
from vit_ls.attention.slice_geometry import SliceGrid
from vit_ls.grid import num_windows
from vit_ls.ops import (
    Windows,
    add_to_tokens,
    attend_slices,
    dynamic_projection,
    inside,
    long_short_attention,
    project_positions,
    slice_embedding,
    window_attention,
)
from vit_ls.replace.patches import Patches
from vit_ls.replace.tokens import OfPatches, TokenAttention


class RecordedTokens(RecordedLongShort):
    """A recording of `LongShortTokens`, whose windows depend on the grid."""

    layer: "LongShortTokens"  # type: ignore[assignment]

    @property
    def window(self) -> tuple[int, int]:
        """(a, b), (0, 0) for none."""
        return self.layer.windows_of(self.grid).window

    @property
    def halo(self) -> tuple[int, int]:
        """(sa, sb)."""
        return self.layer.windows_of(self.grid).halo


@register_notrace_module
class LongShortTokens(TokenAttention):
    """Each patch sees its window, the projected tokens and the prefix, under one softmax.

    Windows are evened out over the grid, each side at most `window`: 64 patches are 5 windows of
    13, not of 14, of which the last would be half padding. A window that spans the grid has no halo
    there, where no patch is.

    New parameters, for rank above 0: `dynamic_projection`, and with DualLN `norm_kv` and
    `norm_projected`. Projected tokens have no place, as prefix tokens have none: keys are projected
    before they are rotated.

    Args:
        original: As in `TokenAttention`.
        patches: Likewise.
        options: The kind's.
        place: Where the layer stands.
    """

    recorded = RecordedTokens
    read_keys = True

    def __init__(
        self, original: nn.Module, patches: Patches, options: LongShort, place: Place
    ) -> None:
        super().__init__(original, patches, place.num_global)
        self.windows = options.windows
        self.rank = options.rank
        self.norm_kv: KeyValueNorm | None = None
        self.norm_projected: KeyValueNorm | None = None
        if options.rank > 0:
            self.dynamic_projection = nn.Linear(
                place.dim, place.num_heads * options.rank, **place.on
            )
            if options.dual_ln:
                self.norm_kv = KeyValueNorm(self.width, **place.on)
                self.norm_projected = KeyValueNorm(self.width, **place.on)

    def attend_patches(self, one: OfPatches) -> Tensor:
        """See `TokenAttention`."""
        kv, prefix, projected = one.kv, one.prefix, None
        if self.rank > 0:
            unrotated = one.unrotated
            if self.norm_kv is not None:
                same = unrotated is kv  # where nothing is rotated
                kv = self.norm_kv(kv)
                unrotated = kv if same else self.norm_kv(unrotated)
                prefix = None if prefix is None else self.norm_kv(prefix)
            logits = self.dynamic_projection(one.x)
            projected = dynamic_projection(logits, unrotated, num_heads=self.num_heads)
            if self.norm_projected is not None:
                projected = self.norm_projected(projected)
        windows = self.windows_of((one.x.shape[1], one.x.shape[2]))
        if windows.window[0] > 0:
            windows = windows._replace(mask=inside(one.x, windows))
        positions = self.positions(windows)
        if positions.front is not None:
            positions = positions._replace(front=F.pad(positions.front, (self.rank, 0)))
        return long_short_attention(
            *(one.q, kv, projected, prefix, positions, windows),
            num_heads=self.num_heads, impl=self.impl, drop=self.drop,
        )  # fmt: skip

    def windows_of(self, grid: tuple[int, int]) -> Windows:
        """The windows of a grid (H, W)."""
        (most, _), (halo, _), *_ = self.windows
        if most == 0:
            return self.windows
        counts = num_windows(grid[0], most), num_windows(grid[1], most)
        return Windows(
            (num_windows(grid[0], counts[0]), num_windows(grid[1], counts[1])),
            (halo if counts[0] > 1 else 0, halo if counts[1] > 1 else 0),
        )


@register_notrace_module
class SliceTokens(TokenAttention):
    """Each patch sees its slice and the prefix; the attention among slices is added.

    New parameters, where the options ask for them: `geometry` (MS-VIPE, here of each layer), which
    adds to queries and keys as the original makes them; `aggregate`; and `slice_qkv` of
    `shared_qkv=False`, which starts as the original's queries and keys with values of zero, so that
    slices have no effect until they are trained.

    Args:
        original: As in `TokenAttention`.
        patches: Likewise.
        options: The kind's.
        place: Where the layer stands.

    Raises:
        ValueError: Heads that are not `dim` wide together, or that share keys.
    """

    def __init__(
        self, original: nn.Module, patches: Patches, options: CompositeSlice, place: Place
    ) -> None:
        super().__init__(original, patches, place.num_global)
        if self.width != place.dim or self.num_kv_heads != self.num_heads:
            raise ValueError(
                "Slices need heads that are dim wide together and have keys of their own, got "
                f"{self.width} of dim={place.dim}, {self.num_kv_heads} of {self.num_heads} heads."
            )
        self.slice_size = options.windows.window
        self.local_first = options.composition == "local_first"
        self.aggregation = options.aggregation
        self.geometry = options.shared(place)
        self.aggregate: nn.Linear | None = None
        if options.aggregation == "linear":
            L = self.slice_size[0] * self.slice_size[1]
            self.aggregate = nn.Linear(L, 1, bias=False, **place.on)
        self.slice_qkv: LinearQKV | None = None
        if not options.shared_qkv:
            self.slice_qkv = LinearQKV(place.dim, **place.on)
            self._start(self.slice_qkv)

    @torch.no_grad()
    def _start(self, qkv: LinearQKV) -> None:
        C = self.width
        qkv.weight.zero_()
        qkv.bias.zero_()
        qkv.weight[: 2 * C] = self._weight()[: 2 * C]

    def attend_patches(self, one: OfPatches) -> Tensor:
        """See `TokenAttention`."""
        shared = self.geometry(one.x)
        (a, b), (sa, sb), *_ = shared.windows
        positions = self.positions(shared.windows)
        if shared.local_pos is not None:
            query, key = project_positions(shared.local_pos, self._weight())
            positions = positions._replace(query=query[sa : sa + a, sb : sb + b], key=key)
        y = window_attention(
            *(one.q, one.kv, one.prefix, positions, shared.windows),
            num_heads=self.num_heads, impl=self.impl, drop=self.drop,
        )  # fmt: skip
        among = self._among_slices(y if self.local_first else one.x, shared)
        return add_to_tokens(y, among, self.slice_size)

    def _among_slices(self, y: Tensor, shared: SliceGrid) -> Tensor:
        """What slices that hold y [B,H,W,C] hand to their tokens [B,Nh,Nw,h,d]."""
        weight = None if self.aggregate is None else self.aggregate.weight
        s_bar = slice_embedding(y, shared.windows, weight, aggregation=self.aggregation)
        if self.slice_qkv is None:
            q, k, v = self.project(s_bar)
            if shared.slice_pos is not None:
                pos_q, pos_k = project_positions(shared.slice_pos, self._weight())
                q, k = q + pos_q, k + pos_k
            kv = torch.stack((k, v))
        else:
            q, kv = self.slice_qkv(s_bar, shared.slice_pos)
        return attend_slices(
            q, kv, num_heads=self.num_heads, slice_size=self.slice_size, drop=self.drop
        )
