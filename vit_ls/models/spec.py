"""The architecture of a backbone, as data."""

from dataclasses import dataclass
from typing import Any, Literal

from timm.layers import to_2tuple

from vit_ls.blocks import BlockSpec, StageSpec


@dataclass(frozen=True)
class BackboneSpec(BlockSpec):
    """Stages, and what is the same in all of them."""

    stages: tuple[StageSpec, ...]
    img_size: int
    """Side of the images, in pixels, that position tables are made for; others run too."""
    global_pool: Literal["avg", "token"] = "avg"
    """What the classifier reads: the mean of the last grid, or its stage's global token."""
    released: Literal["cvt", "vil"] | None = None
    """The files (`vit_ls.models.names.Origin`) that this architecture was released in: one must fit
    whole, where other models take what they can use of it."""
    maps_of_blocks: bool = False
    """Each block gives a feature map, as in timm's plain ViT; else each stage gives one."""
    features: tuple[int, ...] | None = None
    """Which of the maps timm's `features_only` gives where it is not told; None for all."""

    def size(self, img_size: Any = None) -> tuple[int, int]:
        """Height and width of images in pixels: of one number or two, or of the spec's own.

        Raises:
            ValueError: neither one integer nor two, or too few pixels for a token.
        """
        pair = to_2tuple(self.img_size if img_size is None else img_size)
        least = self.stages[0].embed.least_side
        if len(pair) != 2 or not all(type(n) is int and n >= least for n in pair):
            raise ValueError(
                f"img_size must be one integer or two, of at least {least} pixels, "
                f"got {img_size!r}."
            )
        return pair[0], pair[1]
