"""Attention layers: each kind is one file, with its options, and one row of `KINDS`."""

from typing import NamedTuple

from torch import nn

from vit_ls.attention.composite_slice import (
    CompositeSlice,
    CompositeSliceAttention,
    RecordedSlices,
)
from vit_ls.attention.full import Full, FullAttention, RecordedFull
from vit_ls.attention.long_short import LongShort, LongShortAttention, RecordedLongShort
from vit_ls.attention.place import Options, Place
from vit_ls.attention.projections import Convolutions
from vit_ls.attention.recorded import Attention

__all__ = [
    "KINDS",
    "AttentionKind",
    "CompositeSlice",
    "CompositeSliceAttention",
    "Convolutions",
    "Full",
    "FullAttention",
    "LongShort",
    "LongShortAttention",
    "Options",
    "Place",
]


class AttentionKind(NamedTuple):
    """A kind of attention."""

    options: type[Options]
    layer: type[nn.Module]
    recorded: type[Attention]
    """What `vit_ls.record` gives of such a layer."""


KINDS = (
    AttentionKind(LongShort, LongShortAttention, RecordedLongShort),
    AttentionKind(CompositeSlice, CompositeSliceAttention, RecordedSlices),
    AttentionKind(Full, FullAttention, RecordedFull),
)
