"""What belongs together in the arguments of window attention."""

from typing import NamedTuple

from torch import Tensor


class Windows(NamedTuple):
    """The windows that a grid is cut into, and how far their keys reach."""

    window: tuple[int, int]
    """(a, b) in tokens; (0, 0) for no keys but those in front."""
    halo: tuple[int, int]
    """(sa, sb), how far a window's keys reach beyond it, in tokens."""
    mask: Tensor | None = None
    """`vit_ls.grid.halo_mask` of the grid if it has been made already."""
    valid: Tensor | None = None
    """Which tokens are real, bool [B,H,W]; None for all. The others receive no attention, and what
    comes out at them is finite and means nothing."""


class Positions(NamedTuple):
    """What the places of queries and keys in a window add, the same in each window."""

    bias: Tensor | None = None
    """To the scores [h,T,K]."""
    query: Tensor | None = None
    """To the queries [a,b,C]."""
    key: Tensor | None = None
    """To the keys [a+2sa,b+2sb,C]."""
    front: Tensor | None = None
    """To the scores of the keys in front, the same for each query [h,E]."""
