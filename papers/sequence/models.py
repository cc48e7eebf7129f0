"""The model of a task's settings, and how well it predicts each place."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from papers.sequence.data import HeldOut, Task
from papers.sequence.settings import SequenceConfig
from vit_ls.job import Ranks
from vit_ls.sequence import (
    CausalCompositeSlice,
    CausalLongShort,
    CompositeSlice,
    Full,
    LanguageModel,
    LongShort,
    SequenceClassifier,
    SequenceEncoder,
)
from vit_ls.sequence.specs import Attention, CausalAttention


class NextToken(nn.Module):
    """A language model as a classifier of each token: logits [B*N,V], the engine's labels too.

    Differs from the released code of arXiv:2107.02192: what its memory carries from batch to batch
    is computed for each block from the M bytes before it, by the weights of that moment. So a batch
    says all that an update needs, a run goes on bit by bit where it was stopped, and a token of a
    deep layer sees no further back than M + N.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """[B,M+N] -> [B*N,V], of which nothing flows back into the first M.

        M tokens and fewer are the beginning of a text, and all are predicted: [B,N] -> [B*N,V].
        """
        M, memory = self.model.memory_length, None
        if 0 < M < ids.shape[1]:
            with torch.no_grad():
                memory = self.model(ids[:, :M])[1]
            ids = ids[:, M:]
        logits: Tensor = self.model(ids, memory)[0]
        return logits.flatten(0, 1)


def make_model(config: SequenceConfig, task: Task) -> nn.Module:
    """A classifier of sequences, or a language model."""
    torch.manual_seed(config.seed)
    drop = config.drop or 0.0
    if config.task == "bytes":
        sliced = config.attention == "cst"
        return NextToken(
            LanguageModel(
                vocab_size=task.vocab_size,
                dim=config.dim,
                depth=config.depth,
                num_heads=config.num_heads,
                hidden=config.hidden,
                attention=_causal(config),
                max_length=config.length if sliced else None,
                memory_length=config.memory,
                residual=config.residual,
                dropout=drop,
            )
        )
    encoder = SequenceEncoder(
        vocab_size=task.vocab_size,
        dim=config.dim,
        depth=config.depth,
        num_heads=config.num_heads,
        hidden=config.hidden,
        max_length=config.length,
        attention=_both_directions(config),
        pooling="mean" if (config.pooling or config.attention) in ("mean", "cst") else "cls",
        pad_id=task.pad_id,
        dropout=drop,
    )
    return SequenceClassifier(
        encoder, hidden=config.hidden, num_classes=task.num_classes, pair=task.pair
    )


@torch.no_grad()
def nats_by_place(
    model: nn.Module,
    batches: HeldOut,
    ranks: Ranks,
    context: AbstractContextManager[Any],
    length: int,
) -> Tensor:
    """Losses and their number at each place of a block, over all processes: float64 [2,N+1].

    The last place is for the first tokens of the text, which have no whole memory before them.
    """
    model.eval()
    totals = torch.zeros(2, length + 1, dtype=torch.float64)
    for ids, targets in batches:
        with context:
            logits = model(ids)
        losses = cross_entropy(logits.float(), targets, reduction="none").cpu().double()
        if ids.shape[1] <= batches.split.memory:
            totals[:, -1] += torch.stack((losses, torch.ones_like(losses))).sum(1)
            continue
        losses = losses.view(len(ids), -1)
        here = totals[:, : losses.shape[1]]
        here += torch.stack((losses, torch.ones_like(losses))).sum(1)
    return ranks.total(totals)


def _both_directions(config: SequenceConfig) -> Attention:
    if config.attention == "full":
        return Full(attn_drop=config.attn_drop)
    if config.attention == "cst":
        return CompositeSlice(config.slice_size, alpha=config.alpha)
    return LongShort(config.window, config.rank, attn_drop=config.attn_drop)


def _causal(config: SequenceConfig) -> CausalAttention:
    """Full attention is a window over all that a block sees, with the positions of the others."""
    if config.attention == "cst":
        return CausalCompositeSlice(config.slice_size, config.alpha)
    window = config.memory + config.length if config.attention == "full" else config.window
    rank = config.rank if config.attention == "ls" else 0
    return CausalLongShort(window, config.segment, rank)
