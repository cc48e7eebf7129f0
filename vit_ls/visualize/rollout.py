"""Attention rollout over all layers and stages (arXiv:2005.00928), from the output to the image."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vit_ls.recording import Attention, spread


def rollout(records: Mapping[str, Attention], *, from_token: bool) -> Tensor:
    """How much each token of the first grid counts for the classifier [B,H,W]; sums to at most one.

    Each layer hands half of a token's relevance to what it attends to, by the mean of the heads,
    and keeps half (the residual). Between stages a token's relevance goes in equal parts to the
    tokens under it. What the learned global tokens of a stage hold at its start is on no image, and
    is missing in the sum.

    Args:
        records: Of one forward pass of a whole model.
        from_token: Start at the global token of the last stage, not at the mean of its grid.
    """
    layers = list(records.values())
    last = layers[-1]
    B, (H, W) = len(last.weights), last.grid
    start = 0.0 if from_token else 1 / (H * W)
    grid = last.weights.new_full((B, H, W), start, dtype=torch.float64)
    tokens = grid.new_zeros(B, last.num_global)
    if from_token:
        tokens += 1 / last.num_global
    for before, layer in zip([*layers[-2::-1], None], reversed(layers), strict=True):
        to_grid, to_tokens = layer.pull(grid, tokens)
        grid, tokens = (grid + to_grid) / 2, (tokens + to_tokens) / 2
        if before is not None and _stage(before) != _stage(layer):
            (H, W), (h, w) = before.grid, layer.grid
            grid = spread(grid[:, None], (-(-H // h), -(-W // w)), before.grid)[:, 0]
            tokens = grid.new_zeros(B, before.num_global)
    return grid


def _stage(layer: Attention) -> str:
    return layer.name.split(".blocks.")[0]
