"""What belongs together in the arguments of window attention, and what is made of it."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_ls.ops.rules import Plan


class Windows(NamedTuple):
    """The windows that a grid is cut into, and how far their keys reach."""

    window: tuple[int, int]
    """(a, b) in tokens; (0, 0) for no keys but those in front."""
    halo: tuple[int, int]
    """(sa, sb), how far a window's keys reach beyond it, in tokens."""
    mask: Tensor | None = None
    """Which keys a window sees, bool [1 or B,Nh,Nw,a+2sa,b+2sb], if that has been made already."""
    valid: Tensor | None = None
    """Which tokens are real, bool [B,H,W]; None for all. The others receive no attention, and what
    comes out at them is finite and means nothing."""
    plan: Plan | None = None
    """What runs on this grid, if that has been decided already."""
    outside: Tensor | None = None
    """What that adds to scores [1 or B,N,h,1,E+K]: -inf on what is not seen, 0 on E keys in front.
    An implementation gets None where there is nothing to add."""


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


def bias_of_keys(positions: Positions, E: int, K: int, dtype: torch.dtype) -> Tensor | None:
    """Added to the scores of E keys in front and of K of a window, [h,T or 1,E+K], or None."""
    bias, front = positions.bias, positions.front
    if front is None or E == 0:
        return None if bias is None else F.pad(bias, (E, 0)).to(dtype) if E else bias.to(dtype)
    if bias is None:
        return F.pad(front, (0, K))[:, None].to(dtype)
    return torch.cat((front[:, None].expand(-1, bias.shape[1], -1), bias), dim=2).to(dtype)


def added_to_scores(
    windows: Windows, positions: Positions, front: tuple[int, int, int], like: Tensor
) -> Tensor | None:
    """Mask and bias of (E, N, K) as one, in the dtype of `like`: [1 or B,N*h,T or 1,E+K]."""
    E, N, K = front
    mask = windows.outside
    bias = bias_of_keys(positions, E, K, like.dtype)
    if bias is not None:
        mask = bias.expand(1, N, -1, -1, -1) if mask is None else mask + bias
    return None if mask is None else mask.flatten(1, 2)
