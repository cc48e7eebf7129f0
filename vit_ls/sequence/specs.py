"""What attends in a sequence model, as frozen data: one spec per attention."""

from dataclasses import dataclass
from typing import Literal

from vit_ls.attention.composite_slice import Aggregation, Composition, LocalMixer, PosEmbed


@dataclass(frozen=True)
class Full:
    """Full attention: `FullAttention1d`."""

    attn_drop: float = 0.0
    """Probability of dropping a weight in training."""


@dataclass(frozen=True)
class LongShort:
    """Long-short attention: `LongShortAttention1d`."""

    window: int
    """w, in tokens; 0 for the projection alone."""
    rank: int
    """r; 0 for the window alone."""
    dual_ln: bool = True
    attn_drop: float = 0.0
    """Probability of dropping a weight in training."""


@dataclass(frozen=True)
class CompositeSlice:
    """Composite slice attention: `CompositeSliceAttention1d`, where each is explained."""

    slice_size: int
    """L, in tokens."""
    alpha: float = 1.0
    composition: Composition = "local_first"
    aggregation: Aggregation = "mean"
    local_mixer: LocalMixer = "attention"
    mixer_hidden: int = 16
    pos_embed: PosEmbed = "ms_vipe"
    """"absolute" adds one embedding at the bottom instead."""
    shared_qkv: bool = True


@dataclass(frozen=True)
class CausalLongShort:
    """Causal long-short attention: `CausalLongShortAttention`, where each is explained."""

    window: int
    """w, in tokens."""
    segment: int
    """l, in tokens."""
    rank: int
    """r for each segment; 0 for the window alone."""
    bias: bool = False
    dual_ln: bool = True
    window_form: Literal["band", "group"] = "band"
    cached_projection: Literal["keys", "hidden"] = "keys"
    stored_frequencies: bool = False


@dataclass(frozen=True)
class CausalCompositeSlice:
    """Causal composite slice attention: `CausalCompositeSliceAttention1d`."""

    slice_size: int
    """L, in tokens."""
    alpha: float = 1.0


Attention = Full | LongShort | CompositeSlice
CausalAttention = CausalLongShort | CausalCompositeSlice
