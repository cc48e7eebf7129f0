"""What belongs together in the arguments of window attention, and what is made of it."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Windows(NamedTuple):
    """The windows that a grid is cut into, and how far their keys reach."""

    window: tuple[int, int]
    """(a, b) in tokens; (0, 0) for no keys but those in front."""
    halo: tuple[int, int]
    """(sa, sb), how far a window's keys reach beyond it, in tokens."""
    mask: Tensor | None = None
    """Which keys a window sees, bool [1 or B,Nh,Nw,a+2sa,b+2sb], if that has been made already. An
    implementation gets None where they are all of them, and never `valid` alone."""
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


def mask_with_bias(
    mask: Tensor | None, bias: Tensor | None, num_heads: int, N: int
) -> Tensor | None:
    """Bool [1 or B,Nh,Nw,a+2sa,b+2sb], float [h,T,K] -> one mask, broadcasts to [B,N*h,T,K]."""
    if mask is None:
        return None if bias is None else bias.repeat(N, 1, 1)[None]
    # [1 or B,Nh,Nw,a+2sa,b+2sb] -> [1 or B,N,1,1,K]
    mask = mask.flatten(3, 4).flatten(1, 2)[:, :, None, None, :]
    if bias is None:
        return mask.expand(-1, -1, num_heads, -1, -1).flatten(1, 2)
    return torch.where(mask, bias, -torch.inf).flatten(1, 2)


def mask_with_front(
    mask: Tensor | None, bias: Tensor | None, front: tuple[int, int, int]
) -> Tensor | None:
    """[B,N*h,T or 1,K], and float [h,E] or None, with (E, N, K) -> [B,N*h,T or 1,E+K]."""
    E, N, K = front
    if bias is None:
        if mask is None:
            return None
        return F.pad(mask, (E, 0), value=1.0 if mask.dtype == torch.bool else 0.0)
    if mask is None:
        mask = bias.new_zeros(1, N * len(bias), 1, K)
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=bias.dtype).masked_fill(~mask, -torch.inf)
    added = bias.repeat(N, 1)[None, :, None, :].expand(mask.shape[0], -1, mask.shape[2], -1)
    return torch.cat((added, mask), dim=3)
