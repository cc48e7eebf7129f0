"""Full attention on sequences: what the others are measured against."""

import torch
from torch import Tensor, nn

from vit_ls.attention.projections import LinearQKV
from vit_ls.ops import attend, check_heads, merge_heads, split_heads
from vit_ls.sequence.spans import check_row, row_mask
from vit_ls.sequence.specs import Full


class FullAttention1d(nn.Module):
    """Each token sees each real token, and the class token where there is one.

    Args:
        dim: C, divisible by num_heads.
        num_heads: h.
        options: Of this kind.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: dim is not divisible by num_heads.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        options: Full = Full(),  # noqa: B008 - frozen
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads(dim, num_heads)
        self.dim, self.num_heads = dim, num_heads
        self.attn_drop = options.attn_drop
        self.qkv = LinearQKV(dim, device, dtype)
        self.proj = nn.Linear(dim, dim, device=device, dtype=dtype)

    def forward(
        self, x: Tensor, cls: Tensor | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens x [B,N,C], class token [B,1,C] or None, real tokens [B,N] -> x and cls alike.

        What comes out at tokens that are not real is the bias of the output.

        Raises:
            ValueError: x is empty or of another width, or `valid` of another shape.
        """
        check_row(x, self.dim)
        G = 0 if cls is None else cls.shape[1]
        seen = None
        if valid is not None:
            seen = row_mask(valid, x)
            if G:
                seen = torch.cat((seen.new_ones(seen.shape[0], G), seen), dim=1)
        tokens = x if cls is None else torch.cat((cls, x), dim=1)
        q, kv = self.qkv.tokens(tokens)
        q, k, v = (split_heads(y, self.num_heads) for y in (q, kv[0], kv[1]))
        mask = None
        if seen is not None:
            mask = (seen | ~seen.any(1, keepdim=True))[:, None, None, :]
        y = merge_heads(attend(q, k, v, mask, drop=self.attn_drop if self.training else 0.0))
        if seen is not None:
            y = y.masked_fill(~seen.unsqueeze(2), 0.0)
        y = self.proj(y)
        return y[:, G:], None if cls is None else y[:, :G]
