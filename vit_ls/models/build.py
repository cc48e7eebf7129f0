"""From specs to modules."""

from typing import NamedTuple

import torch
from torch import nn

from vit_ls.grid import num_windows
from vit_ls.layers import (
    Block,
    CompositeSliceAttention,
    ConvEmbed,
    Convolutions,
    FullAttention,
    GridGeometry,
    LongShortAttention,
    SliceGeometry,
    Stage,
    WindowGeometry,
)
from vit_ls.models.specs import BackboneSpec, CompositeSlice, Full, LongShort, StageSpec


class Drops(NamedTuple):
    """Rates of dropout within the blocks, as timm's transformers have them."""

    attention: float = 0.0
    """Of the weights of a softmax over keys."""
    projection: float = 0.0
    """Of what attention gives, and of the MLP's numbers."""


def build_stage(
    spec: StageSpec,
    backbone: BackboneSpec,
    in_chans: int,
    grid: tuple[int, int],
    drop_path_rates: list[float],
    drops: Drops,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Stage:
    """The stage of a spec.

    Args:
        spec: Of the stage.
        backbone: What its stages have in common.
        in_chans: Channels that enter the stage.
        grid: (H, W) of the stage, in tokens, at the image size that position tables are made for.
        drop_path_rates: One per block.
        drops: Of every block.
        device: Of the parameters.
        dtype: Of the parameters.
    """
    embed = ConvEmbed(
        in_chans,
        spec.dim,
        kernel=spec.embed.kernel,
        stride=spec.embed.stride,
        padding=spec.embed.padding,
        cut=spec.embed.cut,
        norm_eps=backbone.norm_eps if spec.embed.norm else None,
        pos_grid=grid if spec.embed.position else None,
        pos_axes=spec.embed.position == "axes",
        device=device,
        dtype=dtype,
    )
    blocks: list[nn.Module] = [
        Block(
            spec.dim,
            _attention(spec, backbone.conv_projection, grid, drops, device, dtype),
            mlp_ratio=backbone.mlp_ratio,
            activation=backbone.activation,
            norm_eps=backbone.norm_eps,
            proj_drop=drops.projection,
            drop_path_rate=rate,
            device=device,
            dtype=dtype,
        )
        for rate in drop_path_rates
    ]
    return Stage(
        embed,
        _geometry(spec, grid, device, dtype),
        blocks,
        dim=spec.dim,
        num_global=spec.num_global,
        device=device,
        dtype=dtype,
    )


def grid_after(grid: tuple[int, int], spec: StageSpec) -> tuple[int, int]:
    """(H, W) of a stage whose input is `grid`: divided by its stride and rounded up, or cut."""
    stride = spec.embed.stride
    if spec.embed.cut:
        beyond = 2 * spec.embed.padding - spec.embed.kernel
        return (grid[0] + beyond) // stride + 1, (grid[1] + beyond) // stride + 1
    return num_windows(grid[0], stride), num_windows(grid[1], stride)


def _geometry(
    spec: StageSpec,
    grid: tuple[int, int],
    device: torch.device | None,
    dtype: torch.dtype | None,
) -> nn.Module:
    match spec.attention:
        case LongShort() as attention:
            return WindowGeometry(attention.window, attention.position_table, attention.whole_halo)
        case CompositeSlice() as attention:
            return SliceGeometry(
                spec.dim,
                grid,
                slice_size=attention.slice_size,
                alpha=attention.alpha,
                pos_embed=attention.pos_embed,
                local_mixer=attention.local_mixer,
                device=device,
                dtype=dtype,
            )
        case Full(position_table):
            return GridGeometry(position_table)


def _attention(
    spec: StageSpec,
    conv_projection: Convolutions | None,
    grid: tuple[int, int],
    drops: Drops,
    device: torch.device | None,
    dtype: torch.dtype | None,
) -> nn.Module:
    match spec.attention:
        case LongShort() as attention:
            return LongShortAttention(
                spec.dim,
                spec.num_heads,
                window=attention.window,
                rank=attention.rank,
                dual_ln=attention.dual_ln,
                position_table=attention.position_table,
                whole_halo=attention.whole_halo,
                token_bias=spec.num_global if attention.token_bias else 0,
                tokens_read=attention.tokens_read,
                conv_projection=conv_projection,
                attn_drop=drops.attention,
                proj_drop=drops.projection,
                device=device,
                dtype=dtype,
            )
        case CompositeSlice() as attention:
            return CompositeSliceAttention(
                spec.dim,
                spec.num_heads,
                slice_size=attention.slice_size,
                composition=attention.composition,
                aggregation=attention.aggregation,
                local_mixer=attention.local_mixer,
                mixer_hidden=attention.mixer_hidden,
                pos_embed=attention.pos_embed,
                alpha=attention.alpha,
                shared_qkv=attention.shared_qkv,
                attn_drop=drops.attention,
                proj_drop=drops.projection,
                device=device,
                dtype=dtype,
            )
        case Full(position_table):
            return FullAttention(
                spec.dim,
                spec.num_heads,
                table_grid=grid if position_table else None,
                num_global=spec.num_global,
                conv_projection=conv_projection,
                attn_drop=drops.attention,
                proj_drop=drops.projection,
                device=device,
                dtype=dtype,
            )
