"""The model of a task's settings."""

import torch
from torch import Tensor, nn

from sequence.data import Task
from sequence.settings import SequenceConfig
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
    """A language model as a classifier of each token: logits [B*N,V], the engine's labels too."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """[B,N] -> [B*N,V]."""
        logits: Tensor = self.model(ids)[0]
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


def _both_directions(config: SequenceConfig) -> Attention:
    if config.attention == "full":
        return Full()
    if config.attention == "cst":
        return CompositeSlice(config.slice_size, config.alpha)
    return LongShort(config.window, config.rank)


def _causal(config: SequenceConfig) -> CausalAttention:
    """Full attention is a window over the whole block, so that positions are the same in all."""
    if config.attention == "cst":
        return CausalCompositeSlice(config.slice_size, config.alpha)
    window = config.length if config.attention == "full" else config.window
    rank = config.rank if config.attention == "ls" else 0
    return CausalLongShort(window, config.segment, rank)
