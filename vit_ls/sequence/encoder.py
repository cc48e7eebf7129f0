"""The papers' encoder of sequences: embeddings, pre-norm blocks, one vector for each sequence."""

from typing import Literal

import torch
from timm.layers import Mlp, trunc_normal_
from torch import Tensor, nn

from vit_ls.sequence.composite_slice import (
    CompositeSliceAttention1d,
    SlicePositionEmbedding,
    SlicePositions,
)
from vit_ls.sequence.full import FullAttention1d
from vit_ls.sequence.long_short import LongShortAttention1d
from vit_ls.sequence.specs import Attention, CompositeSlice, Full

Pooling = Literal["cls", "mean"]


class SequenceEncoder(nn.Module):
    """Token ids [B,N] -> features [B,C].

    The class token, zero at first, enters in the last layer only, and is not normalised before its
    attention, as in the released code of arXiv:2107.02192. Pooling by the mean leaves padding out,
    as in the Composite Slice Transformer.

    Args:
        vocab_size: Number of ids.
        dim: C.
        depth: Number of blocks.
        num_heads: h.
        hidden: Width of the MLPs.
        max_length: N of the longest sequence.
        attention: Of every block.
        pooling: "cls", or "mean", which composite slices need.
        pad_id: The id that is no token; None where every id is one.
        dropout: Of embeddings, attention outputs and MLPs.

    Raises:
        ValueError: numbers that do not fit each other, or an unknown pooling.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        dim: int,
        depth: int,
        num_heads: int,
        hidden: int,
        max_length: int,
        attention: Attention,
        pooling: Pooling = "cls",
        pad_id: int | None = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(
            vocab_size=vocab_size, dim=dim, depth=depth, hidden=hidden, max_length=max_length
        )
        if pad_id is not None and not 0 <= pad_id < vocab_size:
            raise ValueError(f"pad_id must lie in [0, {vocab_size}), got {pad_id}.")
        if pooling not in ("cls", "mean"):
            raise ValueError(f"pooling must be 'cls' or 'mean', got {pooling!r}.")
        sliced = isinstance(attention, CompositeSlice)
        if sliced and pooling == "cls":
            raise ValueError("Composite slices have no class token: pooling must be 'mean'.")
        self.dim, self.vocab_size, self.max_length = dim, vocab_size, max_length
        self.pad_id = pad_id
        self.embed = nn.Embedding(vocab_size, dim)
        self.slice_positions: SlicePositionEmbedding | None = None
        self.pos_embed: nn.Parameter | None = None
        if isinstance(attention, CompositeSlice) and attention.pos_embed == "ms_vipe":
            self.slice_positions = SlicePositionEmbedding(
                dim,
                slice_size=attention.windows.window[1],
                max_length=max_length,
                alpha=attention.alpha,
            )
        else:
            self.pos_embed = nn.Parameter(torch.empty(max_length, dim))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if pooling == "cls" else None
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                dim,
                num_heads,
                hidden,
                attention,
                dropout,
                cls_token=pooling == "cls" and number == depth - 1,
            )
            for number in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the embeddings anew."""
        trunc_normal_(self.embed.weight, std=0.02)
        if self.pos_embed is not None:
            trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids [B,N] -> [B,C]: the class token, or the mean over what is no padding.

        Raises:
            ValueError: an id outside the vocabulary, or an empty or too long sequence.
        """
        x, cls = self.forward_tokens(ids)
        if cls is not None:
            return cls[:, 0]
        valid = self._valid(ids)
        if valid is None:
            return x.mean(1)
        x = x.masked_fill(~valid.unsqueeze(2), 0.0)
        return x.sum(1) / valid.sum(1, keepdim=True).clamp(min=1)

    def forward_tokens(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Token ids [B,N] -> tokens [B,N,C], and the class token [B,1,C] or None."""
        check_ids(ids, self.vocab_size, self.max_length)
        valid = self._valid(ids)
        x = self.embed(ids)
        if self.pos_embed is not None:
            x = x + self.pos_embed[: ids.shape[1]]
        x = self.dropout(x)
        positions = None if self.slice_positions is None else self.slice_positions()
        cls: Tensor | None = None
        for i, block in enumerate(self.blocks):
            if i == len(self.blocks) - 1 and self.cls_token is not None:
                cls = self.cls_token.expand(ids.shape[0], -1, -1)
            x, cls = block(x, cls, valid, positions)
        return self.norm(x), None if cls is None else self.norm(cls)

    def _valid(self, ids: Tensor) -> Tensor | None:
        return None if self.pad_id is None else ids != self.pad_id


class EncoderBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); the class token is not normalised at first."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        hidden: int,
        attention: Attention,
        dropout: float,
        *,
        cls_token: bool,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = make_attention(dim, num_heads, attention, cls_token=cls_token)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, hidden, drop=dropout)

    def forward(
        self,
        x: Tensor,
        cls: Tensor | None,
        valid: Tensor | None,
        positions: SlicePositions | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens [B,N,C] and class token [B,1,C] or None -> the same shapes."""
        if isinstance(self.attn, CompositeSliceAttention1d):
            x = x + self.dropout(self.attn(self.norm1(x), positions, valid))
        else:
            dx, dcls = self.attn(self.norm1(x), cls, valid)
            x = x + self.dropout(dx)
            if cls is not None:
                cls = cls + self.dropout(dcls)
                cls = cls + self.mlp(self.norm2(cls))
        return x + self.mlp(self.norm2(x)), cls


class SequenceClassifier(nn.Module):
    """An encoder, and two linear layers with a ReLU between them; one sequence, or a pair.

    A pair [B,2,N] is classified by [a, b, a * b, a - b] of its two features, as in the released
    code of arXiv:2107.02192.

    Args:
        encoder: Of the sequences.
        hidden: Between the two linear layers.
        num_classes: Of the task.
        pair: Whether an input is a pair of sequences.

    Raises:
        ValueError: a number is not positive.
    """

    def __init__(
        self, encoder: SequenceEncoder, *, hidden: int, num_classes: int, pair: bool = False
    ) -> None:
        super().__init__()
        check_sizes(hidden=hidden, num_classes=num_classes)
        self.encoder = encoder
        self.pair = pair
        self.head = nn.Sequential(
            nn.Linear(encoder.dim * (4 if pair else 1), hidden),
            nn.ReLU(),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Ids [B,N], or [B,2,N] of pairs -> logits [B,classes].

        Raises:
            ValueError: as of `SequenceEncoder.forward`; or a pair where none is due, or none.
        """
        if ids.ndim != (3 if self.pair else 2) or (self.pair and ids.shape[1] != 2):
            due = "[B, 2, N]" if self.pair else "[B, N]"
            raise ValueError(f"Token ids must be {due}, got {list(ids.shape)}.")
        if not self.pair:
            return self.head(self.encoder(ids))
        a, b = self.encoder(ids.flatten(0, 1)).unflatten(0, (-1, 2)).unbind(1)
        return self.head(torch.cat((a, b, a * b, a - b), dim=1))


def make_attention(dim: int, num_heads: int, attention: Attention, *, cls_token: bool) -> nn.Module:
    """The layer of a spec; only one that a class token reaches has a norm for that alone."""
    if isinstance(attention, Full):
        return FullAttention1d(dim, num_heads, attention)
    if isinstance(attention, CompositeSlice):
        return CompositeSliceAttention1d(dim, num_heads, attention)
    return LongShortAttention1d(dim, num_heads, attention, cls_token=cls_token)


def check_sizes(**sizes: int) -> None:
    """Raise ValueError where a size of a model is not positive."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be positive, got {size}.")


def check_ids(ids: Tensor, vocab_size: int, max_length: int | None = None) -> None:
    """Check token ids before they index anything.

    Raises:
        ValueError: not [B,N] of integers, empty, longer than `max_length`, or an id outside
            [0, vocab_size).
    """
    if ids.ndim != 2 or ids.numel() == 0 or ids.dtype != torch.long:
        raise ValueError(
            "Token ids must be long [B, N] with at least one each, "
            f"got {ids.dtype} {list(ids.shape)}."
        )
    if max_length is not None and ids.shape[1] > max_length:
        raise ValueError(
            f"A sequence must be no longer than the position table, {max_length} tokens, "
            f"got {ids.shape[1]}."
        )
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    low, high = (int(i) for i in ids.aminmax())
    if low < 0 or high >= vocab_size:
        worst = low if low < 0 else high
        raise ValueError(f"A token id must lie in [0, {vocab_size}), got {worst}.")
