"""Composite slice attention as a layer, and MS-VIPE (Lee et al., ICLR 2023, section 4).

https://openreview.net/forum?id=nWTzIsgrYNN, in its symbols; the form on a grid is ours.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from timm.layers import Mlp, register_notrace_module, to_2tuple, trunc_normal_
from torch import Tensor, nn

from vit_ls.grid import halo_mask, merge, num_windows
from vit_ls.layers.geometry import Geometry
from vit_ls.layers.projections import LinearQKV
from vit_ls.layers.resized import resized
from vit_ls.ops import (
    Windows,
    attend_slices,
    check_heads,
    project_positions,
    resize_positions,
    slice_attention,
    slice_embedding,
    slice_halo,
    slice_tokens,
)

Composition = Literal["local_first", "parallel", "slices_first"]
Aggregation = Literal["mean", "max", "linear"]
LocalMixer = Literal["attention", "mlp"]
PosEmbed = Literal["ms_vipe", "absolute"]


@register_notrace_module
class CompositeSliceAttention(nn.Module):
    """Attention inside each slice, attention among the slices, and their sum.

    Y = Y_l + Y_g (Eq. 10), where Y_l is the local attention of S (Eq. 14) and Y_g, the same for all
    tokens of a slice, the attention among the slice embeddings S_bar (Eq. 15; the paper calls it
    global, a word that is kept for global tokens here). The options are the paper's ablations
    (tables 7 and 8), the defaults its own choice. The position embeddings are
    no parameters of the layer: they come with the geometry (`SliceGeometry`), shared by all layers.

    Args:
        dim: C, divisible by num_heads.
        num_heads: h.
        slice_size: Side of a square slice, or (a, b), in tokens; L = a * b.
        composition: "local_first" makes S_bar of Y_l. "parallel" makes it of S. "slices_first"
            makes it of S and adds Y_g to what the local attention sees (that addition is ours).
        aggregation: Of the tokens of a slice to its S_bar: "mean", "max", or "linear" by L learned
            weights. Padding is left out of each.
        local_mixer: "attention", or "mlp": `SliceMlp` instead of the local attention.
        mixer_hidden: Hidden width of that MLP: 16 or 32 in the paper.
        pos_embed: "ms_vipe" for P_l and P_g, "absolute" for neither.
        alpha: Extent of a slice's keys, in multiples of the slice: 1 to 3 (Eq. 11).
        shared_qkv: The same W_q, W_k, W_v for both attentions.
        attn_drop: Probability that a weight of a softmax over keys is dropped in training.
        proj_drop: Likewise, a number of what comes out.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: numbers that do not fit each other, or an unknown option.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        slice_size: int | Sequence[int],
        composition: Composition = "local_first",
        aggregation: Aggregation = "mean",
        local_mixer: LocalMixer = "attention",
        mixer_hidden: int = 16,
        pos_embed: PosEmbed = "ms_vipe",
        alpha: float = 1.0,
        shared_qkv: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        _check_choice("composition", composition, Composition)
        _check_choice("aggregation", aggregation, Aggregation)
        _check_choice("local_mixer", local_mixer, LocalMixer)
        _check_choice("pos_embed", pos_embed, PosEmbed)
        if local_mixer == "mlp" and not shared_qkv:
            raise ValueError(
                "shared_qkv must be true where no local attention has q, k, v of its own, "
                "got shared_qkv=False, local_mixer='mlp'."
            )
        if mixer_hidden < 1:
            raise ValueError(f"mixer_hidden must be positive, got {mixer_hidden}.")
        self.num_heads = num_heads
        self.slice_size = _pair(slice_size)
        self.halo = slice_halo(self.slice_size, alpha)
        self.composition = composition
        self.aggregation = aggregation
        self.ms_vipe = pos_embed == "ms_vipe"
        self.impl = "auto"
        self.qkv = LinearQKV(dim, device, dtype)
        self.slice_qkv = None if shared_qkv else LinearQKV(dim, device, dtype)
        self.mixer: SliceMlp | None = None
        if local_mixer == "mlp":
            self.mixer = SliceMlp(self.slice_size, self.halo, mixer_hidden, device, dtype)
        self.aggregate: nn.Linear | None = None
        if aggregation == "linear":
            L = self.slice_size[0] * self.slice_size[1]
            self.aggregate = nn.Linear(L, 1, bias=False, device=device, dtype=dtype)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim, device=device, dtype=dtype)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(
        self, x: Tensor, g: Tensor | None, geometry: Geometry
    ) -> tuple[Tensor, Tensor | None]:
        """Grid x [B,H,W,C] -> [B,H,W,C]; there are no global tokens g."""
        assert g is None
        if self.composition == "local_first":
            y_l = self.attend_in_slices(x, geometry)
            y_g = self.attend_among_slices(y_l, geometry)
        elif self.composition == "parallel":
            y_l = self.attend_in_slices(x, geometry)
            y_g = self.attend_among_slices(x, geometry)
        else:
            y_g = self.attend_among_slices(x, geometry)
            y_l = self.attend_in_slices(x + y_g, geometry)
        return self.proj_drop(self.proj(y_l + y_g)), None

    def attend_in_slices(self, s: Tensor, geometry: Geometry) -> Tensor:
        """Y_l [B,H,W,C] of the tokens S [B,H,W,C]: Eq. 14, before the output projection."""
        if self.mixer is not None:
            return self.mixer(s, geometry.mask, geometry.valid)
        q, kv = self.qkv(s)
        pos_q: Tensor | None = None
        pos_k: Tensor | None = None
        if self.ms_vipe:
            pos_q, pos_k = project_positions(geometry.local_pos, self.qkv.weight)
        return slice_attention(
            q,
            kv,
            pos_q,
            pos_k,
            Windows(self.slice_size, self.halo, geometry.mask, geometry.valid),
            num_heads=self.num_heads,
            impl=self.impl,
            drop=self.attn_drop.p if self.training else 0.0,
        )

    def attend_among_slices(self, y: Tensor, geometry: Geometry) -> Tensor:
        """Y_g [B,H,W,C] of what the slices hold, y [B,H,W,C]: Eq. 15, before the projection."""
        s_bar = slice_embedding(
            y,
            Windows(self.slice_size, self.halo, geometry.mask, geometry.valid),
            None if self.aggregate is None else self.aggregate.weight,
            aggregation=self.aggregation,
        )
        q, kv = self.qkv(s_bar) if self.slice_qkv is None else self.slice_qkv(s_bar)
        pos_q: Tensor | None = None
        pos_k: Tensor | None = None
        if self.ms_vipe:
            weight = self.qkv.weight if self.slice_qkv is None else self.slice_qkv.weight
            pos_q, pos_k = project_positions(geometry.slice_pos, weight)
        return attend_slices(
            q,
            kv,
            pos_q,
            pos_k,
            num_heads=self.num_heads,
            slice_size=self.slice_size,
            height=y.shape[1],
            width=y.shape[2],
            valid=geometry.valid,
            drop=self.attn_drop.p if self.training else 0.0,
        )


class SliceMlp(nn.Module):
    """MLP over the tokens of a slice, the same for each channel, in the local attention's place.

    It reads the tokens S themselves, those of the extended slice where there is a halo, and writes
    those of the slice. Tokens outside the grid read as zeros. That it has a weight for each place
    makes P_l needless.

    Args:
        slice_size: (a, b) in tokens.
        halo: (sa, sb) in tokens.
        hidden: Width between the two layers.
        device: Of the parameters.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        slice_size: tuple[int, int],
        halo: tuple[int, int],
        hidden: int,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.slice_size = slice_size
        self.halo = halo
        (a, b), (sa, sb) = slice_size, halo
        K = (a + 2 * sa) * (b + 2 * sb)
        self.mlp = Mlp(K, hidden, a * b, device=device, dtype=dtype)

    def forward(self, s: Tensor, mask: Tensor | None, valid: Tensor | None = None) -> Tensor:
        """Grid s [B,H,W,C], `vit_ls.grid.halo_mask` of it, real tokens -> [B,H,W,C]."""
        y = self.mlp(slice_tokens(s, Windows(self.slice_size, self.halo, mask, valid)))
        # [B,Nh,Nw,C,L] -> [B,Nh,Nw,L,C] -> [B,Nh,Nw,a,b,C]
        y = y.transpose(3, 4).unflatten(3, self.slice_size)
        return merge(y, s.shape[1], s.shape[2])


@register_notrace_module
class SliceGeometry(nn.Module):
    """What slices share on one grid: the mask, and the position embeddings (MS-VIPE, section 4.2).

    P_l, of a token in its slice, and P_g, of a slice in the grid, are the only position embeddings.
    They are added to the inputs of queries and keys in every layer, never to those of values. P_l
    is the same for every grid; P_g is resized bicubically for another than its own.

    Args:
        dim: C.
        grid: (H, W) in tokens that P_g is made for.
        slice_size: Side of a square slice, or (a, b), in tokens.
        alpha: Extent of a slice's keys, with which P_l grows.
        pos_embed: "ms_vipe", or "absolute" for neither P_l nor P_g: `ConvEmbed` has the position
            embedding then.
        local_mixer: As in `CompositeSliceAttention`; an MLP has no P_l.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: an unknown pos_embed, or numbers that do not fit each other.
    """

    def __init__(
        self,
        dim: int,
        grid: tuple[int, int],
        *,
        slice_size: int | Sequence[int],
        alpha: float = 1.0,
        pos_embed: PosEmbed = "ms_vipe",
        local_mixer: LocalMixer = "attention",
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_choice("pos_embed", pos_embed, PosEmbed)
        self.slice_size = _pair(slice_size)
        self.halo = slice_halo(self.slice_size, alpha)
        (a, b), (sa, sb) = self.slice_size, self.halo
        self.local_pos: nn.Parameter | None = None
        self.slice_pos: nn.Parameter | None = None
        if pos_embed == "ms_vipe":
            if local_mixer == "attention":
                P_l = torch.empty(a + 2 * sa, b + 2 * sb, dim, device=device, dtype=dtype)
                self.local_pos = nn.Parameter(P_l)
            slices = num_windows(grid[0], a), num_windows(grid[1], b)
            self.slice_pos = nn.Parameter(torch.empty(*slices, dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the position embeddings anew."""
        for positions in self.parameters(recurse=False):
            trunc_normal_(positions, std=0.02)

    def set_grid(self, grid: tuple[int, int]) -> None:
        """Make P_g for another grid (H, W), in tokens."""
        if self.slice_pos is None:
            return
        old = self.slice_pos.shape[0], self.slice_pos.shape[1]
        new = num_windows(grid[0], self.slice_size[0]), num_windows(grid[1], self.slice_size[1])
        self.slice_pos = resized(
            self.slice_pos, old, new, lambda x, _, to: resize_positions(x, to[0], to[1])
        )

    def forward(self, x: Tensor) -> Geometry:
        """Geometry of a grid x [B,H,W,C]."""
        mask = halo_mask(x.shape[1], x.shape[2], self.slice_size, self.halo, x.device)
        P_g: Tensor | None = None
        if self.slice_pos is not None:
            P_g = resize_positions(self.slice_pos, mask.shape[0], mask.shape[1])
        return Geometry(mask, None, self.local_pos, P_g)


def _pair(slice_size: int | Sequence[int]) -> tuple[int, int]:
    pair = to_2tuple(slice_size)
    if len(pair) != 2 or not all(isinstance(n, int) for n in pair):
        raise ValueError(f"slice_size must be an integer or two of them, got {slice_size!r}.")
    return pair[0], pair[1]


def _check_choice(name: str, value: str, choice: Any) -> None:
    choices = get_args(choice)
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
