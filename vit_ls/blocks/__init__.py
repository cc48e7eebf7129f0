"""What stages of any attention are made of, each from its frozen spec."""

from vit_ls.blocks.block import Activation, Block, BlockSpec
from vit_ls.blocks.embed import ConvEmbed, Embed
from vit_ls.blocks.fuse import fuse
from vit_ls.blocks.stage import Stage, StageSpec

__all__ = [
    "Activation",
    "Block",
    "BlockSpec",
    "ConvEmbed",
    "Embed",
    "Stage",
    "StageSpec",
    "fuse",
]
