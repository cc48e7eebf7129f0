"""Long-short and composite slice attention on sequences [B,N,C], both directions and causal.

The layers of `vit_ls.attention` on grids of height 1 wherever that holds, and a small encoder and
language model of the papers' tasks above them.
"""

from vit_ls.sequence.causal_composite_slice import CausalCompositeSliceAttention1d, SliceState
from vit_ls.sequence.causal_long_short import CausalLongShortAttention, LongShortState
from vit_ls.sequence.composite_slice import (
    CompositeSliceAttention1d,
    SlicePositionEmbedding,
    SlicePositions,
)
from vit_ls.sequence.convert import convert_sequence
from vit_ls.sequence.encoder import SequenceClassifier, SequenceEncoder
from vit_ls.sequence.full import FullAttention1d
from vit_ls.sequence.language_model import LanguageModel
from vit_ls.sequence.long_short import LongShortAttention1d
from vit_ls.sequence.specs import (
    CausalCompositeSlice,
    CausalLongShort,
    CompositeSlice,
    Full,
    LongShort,
)

__all__ = [
    "CausalCompositeSlice",
    "CausalCompositeSliceAttention1d",
    "CausalLongShort",
    "CausalLongShortAttention",
    "CompositeSlice",
    "CompositeSliceAttention1d",
    "Full",
    "FullAttention1d",
    "LanguageModel",
    "LongShort",
    "LongShortAttention1d",
    "LongShortState",
    "SequenceClassifier",
    "SequenceEncoder",
    "SlicePositionEmbedding",
    "SlicePositions",
    "SliceState",
    "convert_sequence",
]
