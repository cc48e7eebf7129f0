"""What a backbone is made of, as frozen data: one spec per attention, stage and backbone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from vit_ls.layers import (
    Activation,
    Aggregation,
    Composition,
    Convolutions,
    LocalMixer,
    PosEmbed,
)


@dataclass(frozen=True)
class LongShort:
    """Long-short attention: `vit_ls.layers.LongShortAttention`."""

    window: int
    """Side w of the square window, in tokens; 0 for the projection alone."""
    rank: int
    """r, tokens that keys and values are projected onto; 0 for the window alone."""
    dual_ln: bool = True
    position_table: bool = False
    whole_halo: bool = False
    """A window's keys reach a whole window beyond it, not half of one."""
    token_bias: bool = False
    """With a position table: a bias to and from the stage's global tokens too."""
    tokens_read: Literal["outputs", "keys"] = "outputs"
    """What the global tokens attend to on the grid: its outputs, or its keys and values."""


@dataclass(frozen=True)
class Full:
    """Full attention: `vit_ls.layers.FullAttention`."""

    position_table: bool = False


@dataclass(frozen=True)
class CompositeSlice:
    """Composite slice attention: `vit_ls.layers.CompositeSliceAttention`, where each is explained.

    The values of the options are checked there and in `vit_ls.layers.SliceGeometry`.
    """

    slice_size: int | Sequence[int]
    """Side of a square slice, or (a, b), in tokens."""
    composition: Composition = "local_first"
    aggregation: Aggregation = "mean"
    local_mixer: LocalMixer = "attention"
    mixer_hidden: int = 16
    pos_embed: PosEmbed = "ms_vipe"
    """"absolute" goes with an `Embed.position` at the bottom."""
    alpha: float = 1.0
    shared_qkv: bool = True


Attention = LongShort | Full | CompositeSlice


@dataclass(frozen=True)
class Embed:
    """Strided convolution from an image, or from the stage before: `vit_ls.layers.ConvEmbed`."""

    kernel: int
    stride: int
    padding: int = 0
    cut: bool = False
    """Leave out what the kernel does not reach instead of padding a size."""
    norm: bool = True
    position: Literal["grid", "axes"] | None = None
    """A learned absolute position embedding, added to the tokens: one for each token, or half of
    the channels for its row and half for its column."""


@dataclass(frozen=True)
class StageSpec:
    """An embedding and the blocks that follow it on one grid."""

    embed: Embed
    num_heads: int
    dim: int
    depth: int
    attention: Attention
    num_global: int = 0
    """Global tokens that the stage brings, learned, and drops at its end."""


@dataclass(frozen=True)
class BackboneSpec:
    """Stages, and what is the same in all of them."""

    stages: tuple[StageSpec, ...]
    img_size: int
    """Side of the images, in pixels, that position tables are made for; others run too."""
    global_pool: Literal["avg", "token"] = "avg"
    """What the classifier reads: the mean of the last grid, or its stage's global token."""
    conv_projection: Convolutions | None = None
    """How convolutions make q, k, v and the dynamic projection (CvT); None for linear layers."""
    norm_eps: float = 1e-6
    """Of every layer norm but DualLN's."""
    mlp_ratio: float = 4.0
    activation: Activation = "gelu"
    released: Literal["cvt", "vil"] | None = None
    """The kind of file (`vit_ls.models.convert.KINDS`) that this architecture was released in: it
    must fit whole, where other models take what they can use of it."""
    maps_of_blocks: bool = False
    """Each block gives a feature map, as in timm's plain ViT; else each stage gives one."""
    features: tuple[int, ...] | None = None
    """Which of the maps timm's `features_only` gives where it is not told; None for all."""


def change_long_short(
    spec: BackboneSpec,
    *,
    window: int | Sequence[int] | None = None,
    rank: int | Sequence[int] | None = None,
    dual_ln: bool | None = None,
) -> BackboneSpec:
    """The spec with other long-short attentions: the ablations of the paper, and other image sizes.

    Args:
        spec: To change.
        window: One for all long-short stages, or one for each; 0 for the projection alone. None
            leaves it.
        rank: Likewise; 0 for the window alone.
        dual_ln: False leaves the layer norms of keys and values out.

    Raises:
        ValueError: a sequence whose length is not the number of long-short stages.
    """
    places = [i for i, stage in enumerate(spec.stages) if isinstance(stage.attention, LongShort)]
    stages = list(spec.stages)
    windows = _per_stage("window", window, len(places))
    ranks = _per_stage("rank", rank, len(places))
    for i, w, r in zip(places, windows, ranks, strict=True):
        old = spec.stages[i].attention
        assert isinstance(old, LongShort)
        attention = replace(
            old,
            window=old.window if w is None else w,
            rank=old.rank if r is None else r,
            dual_ln=old.dual_ln if dual_ln is None else dual_ln,
        )
        stages[i] = replace(stages[i], attention=attention)
    return replace(spec, stages=tuple(stages))


def change_composite_slice(spec: BackboneSpec, **options: Any) -> BackboneSpec:
    """The spec with other composite slice attentions: the paper's ablations, and other sizes.

    Args:
        spec: To change.
        **options: Fields of `CompositeSlice`: one value for all of its stages, or a sequence of one
            for each. Since (a, b) is one slice, slices that differ are ((a, b), (c, d)).

    Raises:
        ValueError: a sequence whose length is not the number of these stages.
    """
    places = [
        i for i, stage in enumerate(spec.stages) if isinstance(stage.attention, CompositeSlice)
    ]
    by_stage = {
        name: _per_stage(name, value, len(places), pairs=name == "slice_size")
        for name, value in options.items()
    }
    stages = list(spec.stages)
    for n, i in enumerate(places):
        attention = replace(
            stages[i].attention, **{name: values[n] for name, values in by_stage.items()}
        )
        stages[i] = replace(stages[i], attention=attention)
    if "pos_embed" in options:
        absolute = "absolute" in by_stage["pos_embed"]
        embed = replace(stages[0].embed, position="grid" if absolute else None)
        stages[0] = replace(stages[0], embed=embed)
    return replace(spec, stages=tuple(stages))


def _per_stage(name: str, value: Any, n: int, *, pairs: bool = False) -> Sequence[Any]:
    """The value for each of n stages; `pairs` where two numbers are one value."""
    one = not isinstance(value, Sequence) or isinstance(value, str)
    if one or (pairs and not any(isinstance(v, Sequence) for v in value)):
        return (value,) * n
    if len(value) != n:
        raise ValueError(
            f"{name} must be one value or one for each of {n} stages, got {name}={value}."
        )
    return value
