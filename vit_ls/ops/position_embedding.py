"""Position embeddings of tokens and of slices, resized from one grid to another."""

import torch.nn.functional as F
from torch import Tensor


def resize_positions(positions: Tensor, height: int, width: int) -> Tensor:
    """Resize position embeddings bicubically to another grid: [H0,W0,C] -> [height,width,C].

    On the grid they were made for that changes no bit of them, which spares a branch on the size.
    """
    image = positions.permute(2, 0, 1)[None]
    image = F.interpolate(image, size=[height, width], mode="bicubic", align_corners=False)
    return image[0].permute(1, 2, 0)


def resize_axis(positions: Tensor, size: int) -> Tensor:
    """Resize positions along one axis, as the released ViL code does: [N0,C] -> [size,C]."""
    image = positions.T[None, :, None]
    image = F.interpolate(image, size=[1, size], mode="bilinear", align_corners=False)
    return image[0, :, 0].T
