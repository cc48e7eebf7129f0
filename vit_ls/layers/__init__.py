"""Modules: they own parameters and projections, and hand the tensors to one op."""

from vit_ls.layers.block import Activation, Block
from vit_ls.layers.composite_slice import (
    Aggregation,
    CompositeSliceAttention,
    Composition,
    LocalMixer,
    PosEmbed,
    SliceGeometry,
)
from vit_ls.layers.embed import ConvEmbed
from vit_ls.layers.full import FullAttention
from vit_ls.layers.fuse import fuse
from vit_ls.layers.geometry import Geometry, GridGeometry, WindowGeometry
from vit_ls.layers.long_short import LongShortAttention
from vit_ls.layers.projections import Convolutions
from vit_ls.layers.stage import Stage

__all__ = [
    "Activation",
    "Aggregation",
    "Block",
    "CompositeSliceAttention",
    "Composition",
    "ConvEmbed",
    "Convolutions",
    "FullAttention",
    "Geometry",
    "GridGeometry",
    "LocalMixer",
    "LongShortAttention",
    "PosEmbed",
    "SliceGeometry",
    "Stage",
    "WindowGeometry",
    "fuse",
]
