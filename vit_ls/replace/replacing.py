"""Which blocks of a model can take our attention, and putting it there."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from timm.layers import (
    Attention,
    AttentionRope,
    RotaryEmbeddingCat,
    RotaryEmbeddingDinoV3,
    RotaryEmbeddingMixed,
    RotaryEmbeddingMRope,
)
from timm.models import beit, eva
from timm.models._features import FeatureGetterNet
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vit_ls.attention import CompositeSlice, LongShort, Place
from vit_ls.replace.kinds import LongShortTokens, SliceTokens
from vit_ls.replace.patches import Patches
from vit_ls.replace.tokens import TokenAttention

Options = LongShort | CompositeSlice

KINDS: Mapping[str, type[LongShort | CompositeSlice]] = {
    "long_short": LongShort,
    "composite_slice": CompositeSlice,
}
"""Names of the kinds for settings."""

_MODELS = (VisionTransformer, eva.Eva, beit.Beit)
_ATTENTION = (Attention, AttentionRope, eva.EvaAttention, beit.Attention)
_ROTARY = (
    RotaryEmbeddingCat,
    RotaryEmbeddingDinoV3,
    RotaryEmbeddingMixed,
    RotaryEmbeddingMRope,
)


class _Site(NamedTuple):
    """A place of an attention layer in a model."""

    block: int
    parent: nn.Module
    name: str
    attention: nn.Module


def replaceable(model: nn.Module) -> list[int]:
    """Give the indices of a model's blocks whose attention `replace_attention` can replace.

    Args:
        model: Of timm's `VisionTransformer`, `Eva` or `Beit`; of another there are none.
    """
    inner = _inner(model)
    if _why_not(inner) is not None:
        return []
    return sorted({site.block for site in _sites(inner)})


def replace_attention(
    model: nn.Module, options: LongShort | CompositeSlice, *, keep: Sequence[int] = ()
) -> Any:
    """Put long-short or composite slice attention into a transformer of timm's, weights kept.

    Prefix tokens (class, registers, distillation) attend to all tokens as they did, and every patch
    attends to them. With rank 0 there are no new parameters, and the names are timm's.

    Args:
        model: Of timm's `VisionTransformer`, `Eva` or `Beit`, or of these with `features_only`.
            It is changed in place.
        options: The kind of attention. Prefix tokens read the patches' keys and values whatever
            `tokens_read` says, and DualLN goes with a rank above 0 alone.
        keep: Blocks that keep their attention, from 0.

    Returns:
        The same model.

    Raises:
        ValueError: The model, a block or an option cannot be used; the model is as it was.
    """
    inner = _inner(model)
    reason = _why_not(inner)
    if reason is not None:
        raise ValueError(reason)
    _check_options(options)
    chosen = _chosen(inner, keep)
    patches = Patches(inner.patch_embed, dynamic=bool(getattr(inner, "dynamic_img_size", False)))
    layers = [_layer(inner, site, options, patches) for site in chosen]
    for site, layer in zip(chosen, layers, strict=True):
        setattr(site.parent, site.name, layer)
    patches.watch()
    return model


def new_parameters(model: nn.Module) -> list[str]:
    """Give the names of the parameters that `replace_attention` added to a model."""
    return [
        f"{name}.{one}"
        for name, module in model.named_modules()
        if isinstance(module, TokenAttention)
        for one in module.added
    ]


def _inner(model: nn.Module) -> Any:
    """The transformer itself, also where its features alone were asked for."""
    return model.model if isinstance(model, FeatureGetterNet) else model


def _why_not(model: Any) -> str | None:
    """Why the attention of a model cannot be replaced, or None."""
    name = type(model).__name__
    if not isinstance(model, _MODELS):
        return (
            "model must be timm's VisionTransformer, Eva or Beit, neither compiled nor wrapped, "
            f"got {name}."
        )
    if any(one._compiled_call_impl is not None for one in model.modules()):
        return f"model must not be compiled yet, got a compiled {name}."
    rope = getattr(model, "rope", None)
    if rope is not None and type(rope) not in _ROTARY:
        known = ", ".join(one.__name__ for one in _ROTARY)
        return f"rotary positions must be of {known}, got {type(rope).__name__}."
    if getattr(model, "rel_pos_bias", None) is not None:
        return "Relative biases must be of each block, got one that all blocks share."
    if not isinstance(getattr(model, "patch_drop", None), nn.Identity | None):
        return "patch_drop_rate must be 0: windows need every patch."
    if not isinstance(getattr(model.patch_embed, "proj", None), nn.Module):
        return f"patches must come from a layer 'proj', got {type(model.patch_embed).__name__}."
    return None


def _sites(model: Any) -> Iterator[_Site]:
    """The attention layers of timm's in the blocks of a model."""
    for index, block in enumerate(model.blocks):
        for path, module in block.named_modules():
            if type(module) in _ATTENTION:
                parent, _, name = path.rpartition(".")
                yield _Site(index, block.get_submodule(parent), name, module)


def _check_options(options: Options) -> None:
    """Raise ValueError for options without a meaning in a model that has positions of its own."""
    if not isinstance(options, LongShort | CompositeSlice):
        raise ValueError(f"options must be a LongShort or a CompositeSlice, got {options!r}.")
    if isinstance(options, CompositeSlice):
        if options.local_mixer != "attention" or options.composition == "slices_first":
            raise ValueError(
                "Slices in place of attention must have local_mixer='attention', and local "
                f"attention of the block's input, got local_mixer={options.local_mixer!r}, "
                f"composition={options.composition!r}."
            )
        return
    if options.window == 0 and options.rank == 0:
        raise ValueError("A window of 0 needs a projection, got window=0, rank=0.")
    if options.position_table or options.token_bias:
        raise ValueError(
            "The model's own positions must stay the only ones, got position_table or token_bias."
        )


def _chosen(model: Any, keep: Sequence[int]) -> list[_Site]:
    """The attention layers to replace."""
    depth = len(model.blocks)
    wrong = [one for one in keep if not 0 <= one < depth]
    if wrong:
        raise ValueError(f"keep must name blocks from 0 to {depth - 1}, got {wrong[0]}.")
    every = list(_sites(model))
    found = {site.block for site in every}
    others = [i for i in range(depth) if i not in found and i not in keep]
    if others:
        block = model.blocks[others[0]]
        inside = "replaced" if _is_replaced(block) else type(block).__name__
        known = ", ".join(sorted({one.__name__ for one in _ATTENTION}))
        raise ValueError(
            f"Blocks to replace must have attention of timm's ({known}), got {inside} at block "
            f"{others[0]}."
        )
    chosen = [site for site in every if site.block not in keep]
    if not chosen:
        raise ValueError(f"keep must leave a block to replace, got all {depth}.")
    return chosen


def _is_replaced(block: nn.Module) -> bool:
    return any(isinstance(one, TokenAttention) for one in block.modules())


def _layer(model: Any, site: _Site, options: Options, patches: Patches) -> TokenAttention:
    """The layer that takes the place of another."""
    attention: Any = site.attention
    weight = attention.proj.weight
    place = Place(
        int(model.embed_dim),
        attention.num_heads,
        tuple(model.patch_embed.grid_size),
        model.num_prefix_tokens,
        device=weight.device,
        dtype=weight.dtype,
    )
    layer: TokenAttention
    if isinstance(options, LongShort):
        layer = LongShortTokens(attention, patches, options, place)
    else:
        layer = SliceTokens(attention, patches, options, place)
    return layer
