"""The windows of the registered models, and inputs of their shapes."""

from typing import NamedTuple

import torch
from torch import Tensor

from vit_ls.attention import CompositeSlice, LongShort
from vit_ls.blocks import StageSpec
from vit_ls.models import cst_vit, cvt, cvt_ls, vil, vil_ls
from vit_ls.models.backbone import BackboneSpec
from vit_ls.ops import slice_halo, window_halo
from vit_ls.ops.impl.triton.tiles import Inputs


class Shape(NamedTuple):
    """What a kernel is compiled for, and what its tiles depend on."""

    window: tuple[int, int]
    halo: tuple[int, int]
    head_dim: int
    front: int
    """E, keys in front."""
    bias: bool
    front_bias: bool
    positions: bool
    """Of queries and keys."""


def shapes() -> dict[Shape, list[str]]:
    """The windows of the registered models, and the models that have them."""
    found: dict[Shape, list[str]] = {}
    for name, spec in specs().items():
        for stage in spec.stages:
            shape = _shape(stage)
            if shape is not None and name not in found.setdefault(shape, []):
                found[shape].append(name)
    return found


def specs() -> dict[str, BackboneSpec]:
    """What each registered model is made of."""
    return cvt.VARIANTS | cvt_ls.VARIANTS | vil.VARIANTS | vil_ls.VARIANTS | cst_vit.VARIANTS


def _shape(stage: StageSpec) -> Shape | None:
    attention, head_dim = stage.attention, stage.dim // stage.num_heads
    if isinstance(attention, LongShort):
        w = attention.window
        s = window_halo(w, attention.whole_halo)
        front = attention.rank + stage.num_global
        of_tokens = attention.position_table and attention.token_bias
        return Shape((w, w), (s, s), head_dim, front, attention.position_table, of_tokens, False)
    if isinstance(attention, CompositeSlice):
        assert isinstance(attention.slice_size, int)
        window = (attention.slice_size, attention.slice_size)
        halo = slice_halo(window, attention.alpha)
        return Shape(window, halo, head_dim, 0, False, False, attention.pos_embed == "ms_vipe")
    return None


def inputs(
    shape: Shape,
    dtype: torch.dtype,
    *,
    batch: int,
    grid: tuple[int, int],
    heads: int,
    device: str,
) -> Inputs:
    """Random inputs of a shape, with the strides that a model's linear layer gives them."""
    (a, b), (sa, sb), d, E, *_ = shape
    C, K = heads * d, (a + 2 * sa) * (b + 2 * sb)

    def make(*size: int) -> Tensor:
        return torch.randn(*size, dtype=dtype, device=device)

    qkv = make(batch, *grid, 3, C).movedim(-2, 0)
    return Inputs(
        q=qkv[0],
        kv=qkv[1:],
        front=make(2, batch, E, C) if E else None,
        bias=make(heads, a * b, K) if shape.bias else None,
        query_pos=make(a, b, C) if shape.positions else None,
        key_pos=make(a + 2 * sa, b + 2 * sb, C) if shape.positions else None,
        front_bias=make(heads, E) if shape.front_bias else None,
        valid=None,
        window=shape.window,
        halo=shape.halo,
        num_heads=heads,
    )
