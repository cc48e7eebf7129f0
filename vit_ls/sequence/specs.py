"""What attends in a sequence model, as frozen data: one spec per attention.

Those of both directions are the options of `vit_ls.attention`, on rows of tokens.
"""

from dataclasses import dataclass
from typing import Literal

from vit_ls import attention
from vit_ls.ops import Windows, slice_halo, window_halo
from vit_ls.sequence.spans import check_probability


@dataclass(frozen=True)
class Full:
    """Full attention: `FullAttention1d`."""

    attn_drop: float = 0.0
    """Probability of dropping a weight in training, after the softmax: in [0, 1)."""

    def __post_init__(self) -> None:
        check_probability(self.attn_drop)


@dataclass(frozen=True)
class LongShort(attention.LongShort):
    """Long-short attention: `LongShortAttention1d`. `window` is w in a row, 0 for the projection.

    Raises:
        ValueError: as `vit_ls.attention.LongShort`; an option that only a grid has.
    """

    attn_drop: float = 0.0
    """Probability of dropping a weight of a token in training, after the softmax: in [0, 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.attn_drop)
        grid = {"position_table": False, "whole_halo": False, "token_bias": False}
        for name, value in {**grid, "tokens_read": "outputs"}.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must be {value!r} on rows of tokens, got {getattr(self, name)!r}."
                )

    @property
    def windows(self) -> Windows:
        """The windows of any row; without a window and a projection a token sees itself."""
        if self.window == 0 and self.rank == 0:
            return Windows((1, 1), (0, window_halo(0)))
        return Windows((min(1, self.window), self.window), (0, window_halo(self.window)))


@dataclass(frozen=True)
class CompositeSlice(attention.CompositeSlice):
    """Composite slice attention: `CompositeSliceAttention1d`. `slice_size` is L, in a row.

    Raises:
        ValueError: as `vit_ls.attention.CompositeSlice`; a slice of more than one row.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.slice_size, int):
            raise ValueError(
                f"slice_size must be an integer on rows of tokens, got {self.slice_size!r}."
            )

    @property
    def windows(self) -> Windows:
        """The slices of any row, which has no neighbours above and below."""
        assert isinstance(self.slice_size, int)
        reach = slice_halo((1, self.slice_size), self.alpha)[1]
        return Windows((1, self.slice_size), (0, reach))


@dataclass(frozen=True)
class CausalLongShort:
    """Causal long-short attention: `CausalLongShortAttention`.

    Raises:
        ValueError: numbers that do not fit each other, or an unknown option.
    """

    window: int
    """w, in tokens."""
    segment: int
    """l, in tokens."""
    rank: int
    """r, vectors that a segment is projected onto; 0 for the window alone."""
    bias: bool = False
    """Whether q, k, v and the output have one."""
    dual_ln: bool = True
    """LN_L and LN_G."""
    window_form: Literal["band", "group"] = "band"
    """"band", or "group": token t sees floor(t / w) w - w <= s <= t."""
    cached_projection: Literal["keys", "hidden"] = "keys"
    """"keys", or "hidden" for what `read` makes of cached segments."""
    stored_frequencies: bool = False
    """The frequencies of sines and cosines are a buffer that a checkpoint holds, as in the released
    code, whose float16 checkpoints have rounded ones."""

    def __post_init__(self) -> None:
        if self.window < 1 or self.segment < 1 or self.rank < 0:
            raise ValueError(
                "window and segment must be positive and rank not negative, "
                f"got window={self.window}, segment={self.segment}, rank={self.rank}."
            )
        if self.window_form not in ("band", "group"):
            raise ValueError(f"window_form must be 'band' or 'group', got {self.window_form!r}.")
        if self.cached_projection not in ("keys", "hidden"):
            raise ValueError(
                f"cached_projection must be 'keys' or 'hidden', got {self.cached_projection!r}."
            )


@dataclass(frozen=True)
class CausalCompositeSlice:
    """Causal composite slice attention: `CausalCompositeSliceAttention1d`."""

    slice_size: int
    """L, in tokens."""
    alpha: float = 1.0
    """Extent of a slice's keys, 1 to 3."""


Attention = Full | LongShort | CompositeSlice
CausalAttention = CausalLongShort | CausalCompositeSlice
