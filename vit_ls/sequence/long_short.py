"""Long-short attention on sequences, both directions (arXiv:2107.02192, section 3)."""

import torch
from torch import Tensor

from vit_ls.attention import LongShortAttention, Place
from vit_ls.attention.long_short import KeyValueNorm
from vit_ls.ops import (
    Positions,
    Windows,
    dynamic_projection,
    global_attention,
    long_short_attention,
)
from vit_ls.sequence.spans import check_row, row_mask
from vit_ls.sequence.specs import LongShort


class LongShortAttention1d(LongShortAttention):
    """A window, a dynamic projection of the sequence, and perhaps a class token, one softmax.

    `LongShortAttention` on a grid of height 1, for any N. With t and s from 0 and e = max(floor(w /
    2), 1):

    - token t sees the keys floor(t / w) w - e <= s < floor(t / w) w + w + e that are real tokens:
      2 w of them for an even w, 2 w - 1 for an odd one of at least 3, and 3 for w = 1;
    - and r vectors LN_G(P^T LN_L(X W_k)) with P = softmax over the real tokens of X W_p (Eq. 3 and
      the remark after Eq. 7), values likewise.
    - The class token's raw key and value stand in front of the r vectors, before LN_G, which
      normalises them with r = 0 too; they are no part of windows or of P. Its own output: q over
      [its raw key | the tokens' outputs], with the same outputs for values, before W_o, which is
      shared.

    Differs from the paper, as the authors' released code does: 3 keys for w = 1 and 2 w - 1 for an
    odd w, where the paper has 2 w; keys outside the sequence receive no attention, where the paper
    has zeros; one layer norm for all heads; and the class token, which the paper does not have.
    Differs from the released code: N need not be a multiple of w, and a sample without a real token
    is finite. Its depthwise convolution of values, off in all of its runs, is not here.

    Args:
        dim: C, divisible by num_heads.
        num_heads: h.
        options: Of this kind. With window and rank 0 a token sees itself and the class token.
        cls_token: Whether a class token may come. Without one and with rank 0 there is nothing for
            LN_G to normalise, and no LN_G.
        device: Of the parameters.
        dtype: Of the parameters.

    Raises:
        ValueError: dim is not divisible by num_heads.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        options: LongShort,
        *,
        cls_token: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            options, Place(dim, num_heads, attn_drop=options.attn_drop, device=device, dtype=dtype)
        )
        self.dim, self.cls_token = dim, cls_token
        if options.dual_ln and cls_token and self.norm_projected is None:
            self.norm_projected = KeyValueNorm(dim, device=device, dtype=dtype)
        self.alone = options.window == 0 and options.rank == 0

    def forward(  # type: ignore[override]
        self, x: Tensor, cls: Tensor | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens x [B,N,C], class token [B,1,C] or None, real tokens [B,N] -> x and cls alike.

        What comes out at tokens that are not real is the bias of W_o.

        Raises:
            ValueError: x is empty or of another width, `valid` of another shape, there is no key
                at all, or a class token comes to a layer without.
        """
        check_row(x, self.dim)
        if cls is not None and not self.cls_token:
            raise ValueError("A class token needs a layer with one, got cls_token=False.")
        if self.alone and cls is None:
            raise ValueError("window and rank may both be 0 only with a class token, got none.")
        real = None if valid is None else row_mask(valid, x)[:, None]
        q, kv = self.qkv(x.unsqueeze(1))
        if self.norm_kv is not None:
            kv = self.norm_kv(kv)
        front = self._project_real(x.unsqueeze(1), kv, real)
        cls_q = cls_kv = None
        if cls is not None:
            cls_q, cls_kv = self.qkv.tokens(cls)
            front = cls_kv if front is None else torch.cat((cls_kv, front), dim=2)
        if front is not None and self.norm_projected is not None:
            front = self.norm_projected(front)
        y = self._attend(q, kv, front, real)
        if real is not None:
            y = y.masked_fill(~real.unsqueeze(3), 0.0)
        if cls_q is None or cls_kv is None:
            return self.proj(y[:, 0]), None
        cls = global_attention(
            cls_q, cls_kv, y.expand(2, *y.shape), valid=real, num_heads=self.num_heads
        )
        return self.proj(y[:, 0]), self.proj(cls)

    def _attend(self, q: Tensor, kv: Tensor, front: Tensor | None, real: Tensor | None) -> Tensor:
        """[B,1,N,C], [2,B,1,N,C] and [2,B,F,C] -> [B,1,N,C]."""
        windows = Windows(self.window, self.halo, valid=real)
        return long_short_attention(
            *(q, kv, front, None, Positions(), windows),
            num_heads=self.num_heads,
            impl=self.impl,
            drop=self.attn_drop.p if self.training else 0.0,
        )

    def _project_real(self, x: Tensor, kv: Tensor, real: Tensor | None) -> Tensor | None:
        """P^T k and P^T v [2,B,r,C] before LN_G, or None for rank 0."""
        if self.dynamic_projection is None:
            return None
        logits = self.dynamic_projection(x)
        if real is not None:
            # not -inf: where no token is real, a softmax of nothing else would be NaN
            logits = logits.masked_fill(~real.unsqueeze(3), torch.finfo(logits.dtype).min)
        return dynamic_projection(logits, kv, num_heads=self.num_heads)
