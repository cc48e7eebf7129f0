"""Scores of inference on a CPU, piece after piece in the same memory.

Fresh memory for each piece costs more than the softmax of it wherever the allocator gives memory
back to the system in between: the system then clears each page anew.
"""

import torch
from torch import Tensor


class Scratch:
    """Memory for the scores of a piece, in which they become weights.

    Args:
        numbers: Scores of the largest piece.
        dtype: Of queries, keys, values and scores; the softmax is in float32 or wider.
    """

    def __init__(self, numbers: int, dtype: torch.dtype) -> None:
        self.scores = torch.empty(numbers, dtype=dtype)
        self.narrow = dtype in (torch.float16, torch.bfloat16)
        wide = torch.float32 if self.narrow else dtype
        # not in place: a softmax into its own input takes up to twice the time
        self.weights = torch.empty(numbers, dtype=wide)
        self.wide = torch.empty(numbers if self.narrow else 0, dtype=wide)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None) -> Tensor:
        """softmax(q k^T + added) v of one piece.

        Args:
            q: Queries, scaled, [...,T,d], contiguous.
            k: Keys [...,K,d], contiguous.
            v: Values [...,K,d], contiguous.
            added: Broadcasts to the scores [...,T,K], or None.

        Returns:
            [...,T,d]
        """
        batch, T, K = q.shape[:-2], q.shape[-2], k.shape[-2]
        n = batch.numel() * T * K
        scores = self.scores[:n].view(-1, T, K)
        torch.bmm(q.flatten(0, -3), k.flatten(0, -3).mT, out=scores)
        if added is not None:
            scores.view(*batch, T, K).add_(added)
        weights = self.weights[:n].view(-1, T, K)
        if self.narrow:
            wide = self.wide[:n].view(-1, T, K).copy_(scores)
            weights = scores.copy_(torch.softmax(wide, -1, out=weights))
        else:
            torch.softmax(scores, -1, out=weights)
        return torch.bmm(weights, v.flatten(0, -3)).view(*batch, T, -1)


def dtype_of_products(x: Tensor) -> torch.dtype:
    """What matrix products of tensors like `x` are computed in: autocast narrows float32."""
    if x.dtype == torch.float32 and torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu")
    return x.dtype
