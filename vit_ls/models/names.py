"""Whose names a file of weights has: every known style to the names of this package."""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from vit_ls.models.wrappers import cleaned, held, unwrapped

Origin = Literal["cvt", "vil", "vit", "other"]
"""What the tensors are of, as far as loading has to know; "other" fits its own model or none."""

Renames = tuple[tuple[str, str], ...]

_RELEASED_NAMES = (
    (r"^head\.", "head.fc."),
    (r"\.embed\.cls_token$", ".global_tokens"),
    (r"\.norm_embed\.", ".norm."),
    (r"\.x_pos_embed$", ".pos_rows"),  # the released code calls rows x
    (r"\.y_pos_embed$", ".pos_columns"),
    (r"\.local_relative_position_bias_table$", ".position_bias.table"),
    (r"\.g2l_relative_position_bias$", ".position_bias.global_local"),
    (r"\.g2g_relative_position_bias$", ".position_bias.global_global"),
    (r"\.to_dynamic_projection\.", ".dynamic_projection."),
    (r"\.dual_ln_full\.", ".norm_kv."),
    (r"\.dual_ln_dp\.", ".norm_projected."),
)

_PLAIN_NAMES = (
    (r"^patch_embed\.", "stages.0.embed."),
    (r"^blocks\.", "stages.0.blocks."),
    (r"^head\.", "head.fc."),
)

_CVT_NAMES = (
    (r"^stage(\d+)\.", r"stages.\1."),
    (r"\.patch_embed\.", ".embed."),
    (r"\.cls_token$", ".global_tokens"),
    (r"\.attn\.conv_proj_(q|k|v)\.conv\.", r".attn.qkv.\1.depthwise."),
    (r"\.attn\.conv_proj_(q|k|v)\.bn\.", r".attn.qkv.\1.norm."),
    (r"\.attn\.proj_(q|k|v)\.", r".attn.qkv.\1.pointwise."),
    (r"^head\.", "head.fc."),
)

_CONVOLUTION = r"\.attention\.attention\.convolution_projection_(q|k|v)\w*\.convolution_projection"
_HUGGING_FACE_CVT = re.compile(r"^(?:cvt\.)?encoder\.stages\.")
_HUGGING_FACE_CVT_NAMES = (
    (_HUGGING_FACE_CVT.pattern, "stages."),
    (r"\.embedding\.convolution_embeddings\.projection\.", ".embed.proj."),
    (r"\.embedding\.convolution_embeddings\.normalization\.", ".embed.norm."),
    (r"\.cls_token$", ".global_tokens"),
    (r"\.layers\.(\d+)\.", r".blocks.\1."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (_CONVOLUTION + r"\.convolution\.", r".attn.qkv.\1.depthwise."),
    (_CONVOLUTION + r"\.normalization\.", r".attn.qkv.\1.norm."),
    (r"\.attention\.attention\.projection_(q|k|v)\w*\.", r".attn.qkv.\1.pointwise."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),  # before the MLP's, which is its end
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"^layernorm\.", "norm."),
    (r"^classifier\.", "head.fc."),
)

_VIL = dict.fromkeys(
    ("stages.0.blocks.0.attn.position_bias.global_local", "stages.0.embed.pos_rows")
)
"""What only a ViL has: a bias of global tokens beside windows, or embeddings of rows."""


class Named(NamedTuple):
    """The tensors of a file under this package's names."""

    kind: Origin
    title: str
    """What the file is, for a person."""
    unscaled: bool
    """The queries' weights are those of a scale of dim^-0.5: CvT's, where here it is head_dim's."""
    tensors: dict[str, Tensor]


def under_our_names(state_dict: Mapping[str, Any]) -> Named:
    """The tensors of a file under this package's names, whosever they were; none is changed.

    Args:
        state_dict: As read from a file, with or without what a trainer wraps around it; of a file
            with an average the weights themselves.
    """
    which = held(state_dict)[0]
    tensors = cleaned(unwrapped(state_dict, which))
    if "layer1.0.proj.weight" in tensors:
        windows = "layer1.1.attn.query.weight" in tensors
        kind: Origin = "vil" if windows else "other"
        title = "a ViL with Microsoft's names" if windows else "a ViL-LS as released"
        return Named(kind, title, False, convert_released(tensors))
    if any(_HUGGING_FACE_CVT.match(key) for key in tensors):
        renamed = _renamed_all(tensors, _HUGGING_FACE_CVT_NAMES)
        return Named("cvt", "a CvT with Hugging Face's names", True, renamed)
    if "stage0.patch_embed.proj.weight" in tensors:
        return Named("cvt", "a CvT with Microsoft's names", True, _renamed_all(tensors, _CVT_NAMES))
    if "patch_embed.proj.weight" in tensors and "stages.0.embed.proj.weight" not in tensors:
        return Named("vit", "a plain ViT", False, _renamed_all(tensors, _PLAIN_NAMES))
    if "stages.0.embed.proj.weight" not in tensors:
        return Named("other", "of no kind that is known here", False, tensors)
    if _VIL.keys() & tensors.keys():
        return Named("vil", "a ViL of this package", False, tensors)
    depthwise = "stages.0.blocks.0.attn.qkv.q.depthwise"
    if f"{depthwise}.weight" in tensors and f"{depthwise}.bias" not in tensors:
        return Named("cvt", "a CvT of this package", False, tensors)
    return Named("other", "of this package", False, tensors)


def convert_released(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keys of the released ViL-LS and ViL files -> ours; index buffers are left out.

    There a stage is `layer{1..4}`: entry 0 is the embedding, odd entries are attentions and even
    ones MLPs. Of ViL, `query` and `kv` become one; their copies for global tokens (`*_global`) are
    left out, and the position embedding of a global token is added to it.

    Raises:
        ValueError: such a copy differs from what it is a copy of.
    """
    state_dict = _of_one_layer(state_dict)
    converted = {}
    for key, value in state_dict.items():
        if key.endswith("relative_position_index"):
            continue
        new = re.sub(r"^layer(\d)\.(\d+)\.(norm\.)?", _released_place, key)
        converted[_renamed(new, _RELEASED_NAMES)] = value
    return converted


def _of_one_layer(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """ViL's tensors of a layer that belong together as one; others as they are."""
    tensors = {}
    for key, value in state_dict.items():
        place, _, end = key.rpartition(".")
        shared = state_dict.get(f"{place.removesuffix('_global')}.{end}")
        if place.endswith("_global"):
            if shared is not None and not torch.equal(shared, value):
                raise ValueError(
                    "Global tokens must share the patches' projections, "
                    f"got another {key} than {place.removesuffix('_global')}.{end}."
                )
            if shared is not None:
                continue
        tensors[key] = value
    for key in [key for key in tensors if ".attn.query." in key]:
        kv = key.replace(".query.", ".kv.")
        if kv in tensors:
            tensors[key.replace(".query.", ".qkv.")] = torch.cat(
                (tensors.pop(key), tensors.pop(kv))
            )
    for key in [key for key in tensors if key.endswith(".cls_pos_embed")]:
        positions, token = tensors.pop(key), key.replace("cls_pos_embed", "cls_token")
        if token in tensors:
            tensors[token] = tensors[token] + positions
    for key in [key for key in tensors if key.endswith(("x_pos_embed", "y_pos_embed"))]:
        tensors[key] = tensors[key][0]
    return tensors


def _released_place(match: re.Match[str]) -> str:
    stage, entry, norm = int(match[1]) - 1, int(match[2]), match[3]
    if entry == 0:
        return f"stages.{stage}.embed." + (norm or "")
    half = "norm1." if entry % 2 else "norm2."
    return f"stages.{stage}.blocks.{(entry - 1) // 2}." + (half if norm else "")


def _renamed_all(tensors: Mapping[str, Tensor], names: Renames) -> dict[str, Tensor]:
    return {_renamed(key, names): value for key, value in tensors.items()}


def _renamed(key: str, names: Renames) -> str:
    for pattern, name in names:
        key = re.sub(pattern, name, key)
    return key
