"""Composite slice attention, and MS-VIPE (Lee et al., ICLR 2023, section 4).

https://openreview.net/forum?id=nWTzIsgrYNN, in its symbols; the form on a grid is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from timm.layers import Mlp, register_notrace_module, to_2tuple
from torch import Tensor, nn

from vit_ls.attention.place import On, Place
from vit_ls.attention.projections import LinearQKV
from vit_ls.attention.recorded import Attention, Part, collect, spread
from vit_ls.attention.slice_geometry import SliceGeometry, SliceGrid
from vit_ls.grid import merge, num_windows
from vit_ls.ops import (
    Windows,
    add_to_tokens,
    attend_slices,
    check_heads,
    divides,
    project_positions,
    slice_attention,
    slice_embedding,
    slice_halo,
    slice_tokens,
)

Composition = Literal["local_first", "parallel", "slices_first"]
Aggregation = Literal["mean", "max", "linear"]
LocalMixer = Literal["attention", "mlp"]
PosEmbed = Literal["ms_vipe", "absolute"]


@dataclass(frozen=True)
class CompositeSlice:
    """Options of composite slice attention: the paper's ablations (tables 7 and 8), as it chose.

    Raises:
        ValueError: numbers that do not fit each other, or an unknown option.
    """

    slice_size: int | Sequence[int]
    """Side of a square slice, or (a, b), in tokens; L = a * b."""
    composition: Composition = "local_first"
    """"local_first" makes S_bar of Y_l. "parallel" makes it of S. "slices_first" makes it of S and
    adds Y_g to what the local attention sees (that addition is ours)."""
    aggregation: Aggregation = "mean"
    """Of the tokens of a slice to its S_bar: "mean", "max", or "linear" by L learned weights.
    Padding is left out of each."""
    local_mixer: LocalMixer = "attention"
    """"attention", or "mlp": `SliceMlp` instead of the local attention."""
    mixer_hidden: int = 16
    """Hidden width of that MLP: 16 or 32 in the paper."""
    pos_embed: PosEmbed = "ms_vipe"
    """"ms_vipe" for P_l and P_g (an MLP has no P_l), "absolute" for neither: that goes with an
    `Embed.position` at the bottom."""
    alpha: float = 1.0
    """Extent of a slice's keys, in multiples of the slice: 1 to 3 (Eq. 11)."""
    shared_qkv: bool = True
    """The same W_q, W_k, W_v for both attentions."""

    def __post_init__(self) -> None:
        _check_choice("composition", self.composition, Composition)
        _check_choice("aggregation", self.aggregation, Aggregation)
        _check_choice("local_mixer", self.local_mixer, LocalMixer)
        _check_choice("pos_embed", self.pos_embed, PosEmbed)
        if self.local_mixer == "mlp" and not self.shared_qkv:
            raise ValueError(
                "shared_qkv must be true where no local attention has q, k, v of its own, "
                "got shared_qkv=False, local_mixer='mlp'."
            )
        if self.mixer_hidden < 1:
            raise ValueError(f"mixer_hidden must be positive, got {self.mixer_hidden}.")
        pair = to_2tuple(self.slice_size)
        if len(pair) != 2 or not all(isinstance(n, int) for n in pair):
            raise ValueError(
                f"slice_size must be an integer or two of them, got {self.slice_size!r}."
            )
        slice_halo((pair[0], pair[1]), self.alpha)

    @property
    def windows(self) -> Windows:
        """The slices of any grid."""
        a, b = to_2tuple(self.slice_size)
        return Windows((a, b), slice_halo((a, b), self.alpha))

    def layer(self, place: Place) -> "CompositeSliceAttention":
        """The layer of these options at a place."""
        return CompositeSliceAttention(self, place)

    def shared(self, place: Place) -> "SliceGeometry":
        """What its layers share on a grid."""
        ms_vipe = self.pos_embed == "ms_vipe"
        return SliceGeometry(
            *(self.windows, place),
            local_pos=ms_vipe and self.local_mixer == "attention",
            slice_pos=ms_vipe,
        )


def _check_choice(name: str, value: str, choice: Any) -> None:
    choices = get_args(choice)
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


@register_notrace_module
class CompositeSliceAttention(nn.Module):
    """Attention inside each slice, attention among the slices, and their sum.

    Y = Y_l + Y_g (Eq. 10), where Y_l is the local attention of S (Eq. 14) and Y_g, the same for all
    tokens of a slice, the attention among the slice embeddings S_bar (Eq. 15; the paper calls it
    global, a word that is kept for global tokens here). The position embeddings are no parameters
    of the layer: `SliceGeometry` owns them, for all layers.

    Args:
        options: Of this kind.
        place: Where the layer stands.

    Raises:
        ValueError: dim is not divisible by num_heads.
    """

    def __init__(self, options: CompositeSlice, place: Place) -> None:
        super().__init__()
        dim, windows = place.dim, options.windows
        check_heads(dim, place.num_heads)
        self.num_heads = place.num_heads
        self.slice_size, self.halo = windows.window, windows.halo
        self.composition = options.composition
        self.aggregation = options.aggregation
        self.impl = "auto"
        self.qkv = LinearQKV(dim, **place.on)
        self.slice_qkv = None if options.shared_qkv else LinearQKV(dim, **place.on)
        self.mixer: SliceMlp | None = None
        if options.local_mixer == "mlp":
            self.mixer = SliceMlp(windows, options.mixer_hidden, place.on)
        self.aggregate: nn.Linear | None = None
        if options.aggregation == "linear":
            L = windows.window[0] * windows.window[1]
            self.aggregate = nn.Linear(L, 1, bias=False, **place.on)
        self.attn_drop = nn.Dropout(place.attn_drop)
        self.proj = nn.Linear(dim, dim, **place.on)
        self.proj_drop = nn.Dropout(place.proj_drop)

    def forward(
        self, x: Tensor, g: Tensor | None, shared: SliceGrid
    ) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] -> [B,H,W,C]; there are no global tokens g."""
        assert g is None
        if self.composition == "slices_first":
            y_g = self.attend_among_slices(x, shared)
            y_l = self.attend_in_slices(add_to_tokens(x, y_g, self.slice_size), shared)
        else:
            y_l = self.attend_in_slices(x, shared)
            local_first = self.composition == "local_first"
            y_g = self.attend_among_slices(y_l if local_first else x, shared)
        return self.proj_drop(self.proj(add_to_tokens(y_l, y_g, self.slice_size))), None

    def attend_in_slices(self, s: Tensor, shared: SliceGrid) -> Tensor:
        """Y_l [B,H,W,C] of the tokens S [B,H,W,C]: Eq. 14, before the output projection."""
        if self.mixer is not None:
            return self.mixer(s, shared.windows)
        P_l, pos_q, pos_k = shared.local_pos, None, None
        if P_l is not None and divides(s, shared.windows):
            # [B,H,W,C] -> [B,Nh,a,Nw,b,C] and back, to add [a,1,b,C]
            a, b = self.slice_size
            q, kv = self.qkv(s.unflatten(2, (-1, b)).unflatten(1, (-1, a)), P_l[:, None])
            q, kv = q.flatten(3, 4).flatten(1, 2), kv.flatten(4, 5).flatten(2, 3)
        else:
            q, kv = self.qkv(s)
            if P_l is not None:
                pos_q, pos_k = project_positions(P_l, self.qkv.weight)
        return slice_attention(
            *(q, kv, pos_q, pos_k, shared.windows),
            num_heads=self.num_heads, impl=self.impl, drop=self._drop,
        )  # fmt: skip

    def attend_among_slices(self, y: Tensor, shared: SliceGrid) -> Tensor:
        """Y_g of each slice [B,Nh,Nw,h,d], of what the slices hold, y [B,H,W,C]: Eq. 15."""
        weight = None if self.aggregate is None else self.aggregate.weight
        s_bar = slice_embedding(y, shared.windows, weight, aggregation=self.aggregation)
        qkv = self.qkv if self.slice_qkv is None else self.slice_qkv
        q, kv = qkv(s_bar, shared.slice_pos)
        return attend_slices(
            *(q, kv, shared.windows.valid),
            num_heads=self.num_heads, slice_size=self.slice_size, drop=self._drop,
        )  # fmt: skip

    @property
    def _drop(self) -> float:
        return self.attn_drop.p if self.training else 0.0


class SliceMlp(nn.Module):
    """MLP over the tokens of a slice, the same for each channel, in the local attention's place.

    It reads the tokens S themselves, those of the extended slice where there is a halo, and writes
    those of the slice. Tokens outside the grid read as zeros. That it has a weight for each place
    makes P_l needless.
    """

    def __init__(self, windows: Windows, hidden: int, on: On) -> None:
        super().__init__()
        (a, b), (sa, sb), *_ = windows
        self.mlp = Mlp((a + 2 * sa) * (b + 2 * sb), hidden, a * b, **on)

    def forward(self, s: Tensor, windows: Windows) -> Tensor:
        """Grid s [B,H,W,C] and its slices -> [B,H,W,C]."""
        y = self.mlp(slice_tokens(s, windows))
        # [B,Nh,Nw,C,L] -> [B,Nh,Nw,L,C] -> [B,Nh,Nw,a,b,C]
        y = y.transpose(3, 4).unflatten(3, windows.window)
        return merge(y, s.shape[1], s.shape[2])


class RecordedSlices(Attention):
    """A recording of composite slice attention."""

    layer: CompositeSliceAttention

    @property
    def window(self) -> tuple[int, int]:
        """(a, b) of a slice."""
        return self.layer.slice_size

    @property
    def halo(self) -> tuple[int, int]:
        """(sa, sb)."""
        return self.layer.halo

    def shares(self) -> dict[Part, Tensor]:
        """On the slice, and on all slices [B,h,H,W].

        The attention among slices is a softmax of its own beside that of tokens: its share is one
        where it is all there is (an MLP mixes the tokens), and else a half by construction.
        """
        among = 1.0 if self.windows is None else 0.5
        each = self.tokens[0].new_full((*self.tokens[0].shape[:2], *self.grid), among)
        return {"window": 1 - each, "slices": each}

    def pulled(self, grid: Tensor, tokens: Tensor) -> dict[Any, Tensor]:  # noqa: ARG002
        """See `Attention`: half to the tokens and half to the slices, as they are composed."""
        among = self.tokens[0].double()
        half = 0.5 * grid.expand(*among.shape[:2], -1, -1)
        local, slices = self._inside(half), self._of_slices(half)
        if self.layer.composition == "local_first":
            slices = self._inside(slices)
        elif self.layer.composition == "slices_first":
            local = 0.5 * (local + self._of_slices(local))
        nothing = grid.new_zeros(*among.shape[:2], 0)
        return {"window": local, "slices": slices, "to_global": nothing}

    def _inside(self, x: Tensor) -> Tensor:
        """What tokens give within their slices; of an MLP, which has no weights, the mean."""
        _, near = self.front_and_window()
        if near is not None:
            return self.to_places(x[..., None] * near.double())
        return spread(collect(x, self.window), self.window, self.grid)

    def _of_slices(self, x: Tensor) -> Tensor:
        """What tokens give by way of the attention among slices."""
        among, (a, b), (H, W) = self.tokens[0].double(), self.window, self.grid
        rows = collect(x, (a, b)).flatten(2).expand(*among.shape[:2], -1)
        keys = torch.einsum("bhq,bhqk->bhk", rows, among)
        return spread(keys.unflatten(2, (num_windows(H, a), num_windows(W, b))), (a, b), self.grid)
