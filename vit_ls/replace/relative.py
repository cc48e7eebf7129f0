"""The relative position bias of timm's BEiT, of a window in place of the whole grid.

Its table has (2H-1)(2W-1) rows for offsets between patches, then three: from the class token to a
patch, from a patch to the class token, and of the class token to itself.
"""

import torch
from torch import Tensor

from vit_ls.ops import Windows


def of_windows(table: Tensor, grid: tuple[int, int], windows: Windows) -> tuple[Tensor, Tensor]:
    """Bias of a window's keys [h,T,K], and of the class token as a key [h,1].

    Args:
        table: [(2H-1)(2W-1)+3,h].
        grid: (H, W) in tokens, of the table and of the image.
        windows: The windows of the grid. Keys farther off than the table knows are outside the
            grid, and masked.
    """
    dy, dx = (
        _offsets(*sides, table.device)
        for sides in zip(windows.window, windows.halo, grid, strict=True)
    )
    # [a,a+2sa], [b,b+2sb] -> [a,b,a+2sa,b+2sb] -> [T,K]
    rows = dy[:, None, :, None] * (2 * grid[1] - 1) + dx[None, :, None, :]
    rows = rows.flatten(2, 3).flatten(0, 1)
    return table[rows].permute(2, 0, 1), table[-2][:, None]


def _offsets(window: int, halo: int, side: int, device: torch.device) -> Tensor:
    query = torch.arange(window, device=device)
    key = torch.arange(window + 2 * halo, device=device) - halo
    return (query[:, None] - key[None]).clamp(1 - side, side - 1) + side - 1


def of_prefix(table: Tensor, tokens: int) -> Tensor:
    """Bias of the class token's scores with itself and the patches [1,h,1,1+N]."""
    own, patches = table[-1][:, None], table[-3][:, None]
    return torch.cat((own, patches.expand(-1, tokens - 1)), dim=1)[None, :, None]
