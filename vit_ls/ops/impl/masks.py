"""Which keys a window sees, and what is added to its scores."""

import torch
from torch import Tensor

from vit_ls.grid import halo_mask, partition_halo
from vit_ls.ops.impl.arguments import Windows


def seen_keys(H: int, W: int, windows: Windows, device: torch.device, *, alone: bool) -> Tensor:
    """Which keys a window sees, bool [1 or B,Nh,Nw,a+2sa,b+2sb]; `alone` without keys in front."""
    mask = windows.mask
    if mask is None:
        mask = halo_mask(H, W, windows.window, windows.halo, device)
    mask = mask[None]
    valid = windows.valid
    if valid is None:
        return mask
    mask = mask & partition_halo(valid.unsqueeze(3), windows.window, windows.halo)[..., 0]
    if alone:  # a softmax needs a key, also where no token is real
        mask = mask | ~mask.any(-1, keepdim=True).any(-2, keepdim=True)
    return mask


def mask_with_bias(mask: Tensor, bias: Tensor | None, num_heads: int) -> Tensor:
    """Bool [B or 1,N,K] and float [h,T,K] or None -> one mask that broadcasts to [B,N*h,T,K]."""
    mask = mask[:, :, None, None, :]
    if bias is None:
        return mask.expand(-1, -1, num_heads, -1, -1).flatten(1, 2)
    return torch.where(mask, bias, -torch.inf).flatten(1, 2)


def mask_with_front(mask: Tensor, bias: Tensor | None, E: int, N: int) -> Tensor:
    """[B,N*h,T or 1,K], and float [h,E] or None -> [B,N*h,T or 1,E+K]."""
    if bias is None:
        seen = 1.0 if mask.dtype == torch.bool else 0.0
        return torch.nn.functional.pad(mask, (E, 0), value=seen)
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=bias.dtype).masked_fill(~mask, -torch.inf)
    front = bias.repeat(N, 1)[None, :, None, :].expand(mask.shape[0], -1, mask.shape[2], -1)
    return torch.cat((front, mask), dim=3)
