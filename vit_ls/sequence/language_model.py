"""A causal language model: forward in blocks with a cache, and token by token with a state."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from timm.layers import Mlp
from torch import Tensor, nn

from vit_ls.sequence.causal_composite_slice import CausalCompositeSliceAttention1d, SliceState
from vit_ls.sequence.causal_long_short import CausalLongShortAttention, LongShortState
from vit_ls.sequence.composite_slice import SlicePositionEmbedding, SlicePositions
from vit_ls.sequence.encoder import check_ids, check_sizes
from vit_ls.sequence.specs import CausalAttention, CausalCompositeSlice

Memory = list[Tensor]
"""Inputs of each layer at the tokens of the calls before [B,L,C], detached."""
State = LongShortState | SliceState


class LanguageModel(nn.Module):
    """Logits of the next token, with the embedding's weights for the output.

    Differs from the released code of arXiv:2107.02192: there a block adds its branches to the
    NORMALISED input, a = norm(h), a + attention(a), no norm follows the last one, and the weights
    of norms are drawn around 1 with the std of all others (`residual="normalised"`).

    Args:
        vocab_size: Number of ids.
        dim: C.
        depth: Number of blocks.
        num_heads: h.
        hidden: Width of the MLPs.
        attention: Of every block.
        max_length: N of the longest sequence, of which P_g of composite slices has its size;
            long-short attention has no table and takes None.
        memory_length: Tokens that `forward` keeps for its next call, rounded up so that a segment
            is kept whole; long-short attention only.
        residual: "input", or "normalised".
        dropout: Of embeddings, sines and cosines of the window's distances (once for all layers),
            attention outputs, MLPs, and before the logits.

    Raises:
        ValueError: numbers that do not fit each other, or an unknown residual.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        dim: int,
        depth: int,
        num_heads: int,
        hidden: int,
        attention: CausalAttention,
        max_length: int | None = None,
        memory_length: int = 0,
        residual: str = "input",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(vocab_size=vocab_size, dim=dim, depth=depth, hidden=hidden)
        sliced = isinstance(attention, CausalCompositeSlice)
        if sliced != (max_length is not None):
            raise ValueError(
                "max_length must be given for composite slices and for nothing else, "
                f"got max_length={max_length}."
            )
        if memory_length < 0 or (sliced and memory_length):
            raise ValueError(
                "memory_length must not be negative, and 0 for composite slices, "
                f"got {memory_length}."
            )
        if residual not in ("input", "normalised"):
            raise ValueError(f"residual must be 'input' or 'normalised', got {residual!r}.")
        self.vocab_size, self.dim, self.max_length = vocab_size, dim, max_length
        self.memory_length = memory_length
        self.segment = 1 if isinstance(attention, CausalCompositeSlice) else attention.segment
        self.embed = nn.Embedding(vocab_size, dim)
        self.slice_positions: SlicePositionEmbedding | None = None
        if isinstance(attention, CausalCompositeSlice) and max_length is not None:
            self.slice_positions = SlicePositionEmbedding(
                dim,
                slice_size=attention.slice_size,
                max_length=max_length,
                alpha=attention.alpha,
                causal=True,
            )
        self.dropout = nn.Dropout(dropout)
        normalised = residual == "normalised"
        self.blocks = nn.ModuleList(
            DecoderBlock(dim, num_heads, hidden, attention, normalised, dropout)
            for _ in range(depth)
        )
        self.norm = nn.Identity() if normalised else nn.LayerNorm(dim)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.apply(_draw)
        if normalised:
            self.apply(_draw_norm)

    def forward(self, ids: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """Ids [B,T] after those that `memory` holds -> float32 logits [B,T,V], and what to keep.

        The first token that a memory holds begins a segment; whole segments are dropped from its
        front. A start without memory is a cold one: nothing stands before the first token.

        Raises:
            ValueError: an id outside the vocabulary, an empty or too long sequence, or a memory of
                another model or batch.
        """
        x = self._embed(ids)
        if memory:
            self._check_memory(memory, x)
        positions = self._positions(x)
        kept = []
        for i, block in enumerate(self.blocks):
            assert isinstance(block, DecoderBlock)
            past = memory[i] if memory else x[:, :0]
            if self.memory_length:
                kept.append(self._keep(torch.cat((past, x), dim=1)))
            x, _ = block(x, block.read(past), positions)
        return self._logits(x), kept

    def advance(
        self, ids: Tensor, states: Sequence[State] | None = None
    ) -> tuple[Tensor, list[State]]:
        """Ids [B,T] after those of `states` -> float32 logits [B,T,V], and the states after them.

        In pieces of any length it gives what one call gives, and nothing of the past is dropped or
        computed again: the form for generation.

        Raises:
            ValueError: as `forward`, or states of another model or batch.
        """
        x = self._embed(ids)
        if states is not None and len(states) != len(self.blocks):
            raise ValueError(f"There must be {len(self.blocks)} states, got {len(states)}.")
        positions = self._positions(x)
        after = []
        for i, block in enumerate(self.blocks):
            x, state = block(x, None if states is None else states[i], positions)
            after.append(state)
        return self._logits(x), after

    @torch.no_grad()
    def generate(
        self,
        prompt: Tensor,
        count: int,
        *,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Ids [B,T] -> [B,T+count], drawn token by token; temperature 0 takes the likeliest.

        Nothing is dropped out: the model evaluates, and each module gets its mode back.

        Raises:
            ValueError: as `advance`, or count or temperature is negative, or the prompt and `count`
                are longer than `max_length`.
        """
        # written so that a temperature of NaN is refused too
        if count < 0 or not temperature >= 0:
            raise ValueError(
                "count and temperature must not be negative, "
                f"got count={count}, temperature={temperature}."
            )
        longest = self.max_length
        # the last id that is drawn is not read
        if count and longest is not None and prompt.shape[-1] + count - 1 > longest:
            raise ValueError(
                f"Of prompt and count at most {longest + 1} tokens must come, "
                f"got {prompt.shape[-1]} and {count}."
            )
        ids, states = [prompt], None
        with _evaluating(self):
            for _ in range(count):
                logits, states = self.advance(ids[-1], states)
                ids.append(_draw_token(logits[:, -1], temperature, generator))
        return torch.cat(ids, dim=1)

    def zero_memory(self, batch: int) -> Memory:
        """The released code's cold start: a full memory of zeros, which receive attention."""
        zeros = self.bias.new_zeros(batch, self.memory_length, self.dim)
        return [zeros for _ in self.blocks]

    def _embed(self, ids: Tensor) -> Tensor:
        check_ids(ids, self.vocab_size, self.max_length)
        return self.dropout(self.embed(ids) * self.dim**0.5)

    def _positions(self, x: Tensor) -> SlicePositions | Tensor:
        """What all layers share: P_l and P_g of slices, or the sines of a window's distances."""
        if self.slice_positions is not None:
            return self.slice_positions()
        attn = self.blocks[0].attn
        assert isinstance(attn, CausalLongShortAttention)
        sines: Tensor = self.dropout(attn.window_sines(x))
        return sines

    def _logits(self, x: Tensor) -> Tensor:
        x = self.dropout(self.norm(x))
        return nn.functional.linear(x, self.embed.weight, self.bias).float()

    def _keep(self, x: Tensor) -> Tensor:
        dropped = max(0, x.shape[1] - self.memory_length) // self.segment * self.segment
        return x[:, dropped:].detach()

    def _check_memory(self, memory: Memory, x: Tensor) -> None:
        longest = self.memory_length + self.segment - 1
        kinds = {(tuple(past.shape), past.dtype) for past in memory}
        shape, dtype = next(iter(kinds))
        fits = len(memory) == len(self.blocks) and len(kinds) == 1 and len(shape) == 3
        fits = fits and (shape[0], shape[2]) == (len(x), self.dim) and shape[1] <= longest
        if not fits or dtype != x.dtype:
            found = ", ".join(sorted(f"{shape} {dtype}" for shape, dtype in kinds))
            raise ValueError(
                f"A memory must have {len(self.blocks)} tensors of shape ({len(x)}, at most "
                f"{longest}, {self.dim}) and type {x.dtype}, got {len(memory)} of {found}."
            )


class DecoderBlock(nn.Module):
    """Pre-norm attention and MLP, each added to its input or to its normalised input."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        hidden: int,
        attention: CausalAttention,
        normalised: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.normalised = normalised
        self.norm1 = nn.LayerNorm(dim)
        self.attn = make_causal_attention(dim, num_heads, attention)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, hidden, drop=dropout)

    def read(self, past: Tensor) -> State | None:
        """The state that inputs of this block [B,L,C] leave; None of none."""
        if past.shape[1] == 0:
            return None
        assert isinstance(self.attn, CausalLongShortAttention)
        return self.attn.read(self.norm1(past))

    def forward(
        self, x: Tensor, state: State | None, positions: SlicePositions | Tensor
    ) -> tuple[Tensor, State]:
        """Tokens [B,T,C] after those of `state` -> [B,T,C], and the state after them."""
        a = self.norm1(x)
        if isinstance(self.attn, CausalCompositeSliceAttention1d):
            dx, state = self.attn(a, positions, state)
        else:
            dx, state = self.attn(a, state, positions)
        x = (a if self.normalised else x) + self.dropout(dx)
        b = self.norm2(x)
        return (b if self.normalised else x) + self.mlp(b), state


def make_causal_attention(dim: int, num_heads: int, attention: CausalAttention) -> nn.Module:
    """The layer of a spec."""
    if isinstance(attention, CausalCompositeSlice):
        return CausalCompositeSliceAttention1d(dim, num_heads, attention)
    return CausalLongShortAttention(dim, num_heads, attention)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards each module has the mode that it had, frozen ones too."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _draw_token(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """Float32 logits [B,V] -> ids [B,1]."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    # the best has 0, not 0 / temperature: one so small that it counts as 0 would make NaN of it
    behind = logits - logits.amax(-1, keepdim=True)
    scaled = (behind / temperature).masked_fill(behind == 0, 0.0)
    return torch.multinomial(scaled.softmax(-1), 1, generator=generator)


def _draw(module: nn.Module) -> None:
    """Weights from a normal distribution of std 0.02, biases 0, as the released code."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _draw_norm(module: nn.Module) -> None:
    if isinstance(module, nn.LayerNorm):
        nn.init.normal_(module.weight, mean=1.0, std=0.02)
