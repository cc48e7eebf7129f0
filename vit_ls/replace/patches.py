"""Which grid the tokens of a pass come from: blocks of timm's are handed tokens in a row."""

from typing import Any

import torch
from torch import Tensor, nn


class Patches:
    """The grid (H, W) of a model's patches.

    A model of a fixed size has it in its patch embedding. One with `dynamic_img_size` takes images
    of any size, and hands its blocks no word of it: what its patches' convolution gives is noted
    there. Two passes may be under way at a time (gradient checkpointing computes a block again
    in the backward pass), unless their grids differ and have equally many patches.

    Args:
        embed: timm's patch embedding, whose `proj` gives [B,C,H,W].
        dynamic: Whether the model takes images of any size.
    """

    def __init__(self, embed: Any, *, dynamic: bool) -> None:
        self.embed = embed
        self.dynamic = dynamic
        self.last: tuple[int, int] | None = embed.grid_size
        self.seen: dict[int, tuple[int, int]] = {}
        self.watched: nn.Module | None = None

    def watch(self) -> None:
        """Begin to note the grid of each pass, where it is not fixed."""
        if self.dynamic:
            self.watched = self.embed.proj
            self.embed.proj.register_forward_hook(self)

    def __call__(self, _: nn.Module, __: object, patches: Tensor) -> None:
        """Note the grid of patches [B,C,H,W]."""
        H, W = patches.shape[2], patches.shape[3]
        self.last = H, W
        # in a graph sizes are symbols, which no dict can hold
        if not torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            self.seen[H * W] = H, W

    def grid_of(self, tokens: int) -> tuple[int, int]:
        """(H, W) of a pass with so many patches.

        Raises:
            ValueError: The patches of the present pass are not as many.
        """
        grid: tuple[int, int] | None = self.last if self.dynamic else self.embed.grid_size
        if self.dynamic and self.embed.proj is not self.watched:
            raise ValueError(
                "Attention must be replaced after set_input_size(patch_size=...), got it before."
            )
        if grid is not None and grid[0] * grid[1] == tokens:
            return grid
        if self.dynamic and tokens in self.seen:
            return self.seen[tokens]
        raise ValueError(f"The blocks must get a token for each patch of {grid}, got {tokens}.")
