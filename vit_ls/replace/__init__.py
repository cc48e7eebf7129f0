"""Our attention in timm's own transformers: their weights are kept, their attention is replaced."""

from vit_ls.attention import CompositeSlice, LongShort
from vit_ls.replace.replacing import KINDS, new_parameters, replace_attention, replaceable

__all__ = [
    "KINDS",
    "CompositeSlice",
    "LongShort",
    "new_parameters",
    "replace_attention",
    "replaceable",
]
