"""Checkpoints of others, and of other sizes, to the keys and shapes of a model here."""

import logging
import re
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from vit_ls.ops import resize_positions

_logger = logging.getLogger(__name__)

_SHOWN = 5

_RELEASED_NAMES = (
    (r"^head\.", "head.fc."),
    (r"\.embed\.cls_token$", ".global_tokens"),
    (r"\.norm_embed\.", ".norm."),
    (r"\.local_relative_position_bias_table$", ".position_bias.table"),
    (r"\.g2l_relative_position_bias$", ".position_bias.global_local"),
    (r"\.g2g_relative_position_bias$", ".position_bias.global_global"),
    (r"\.to_dynamic_projection\.", ".dynamic_projection."),
    (r"\.dual_ln_full\.", ".norm_kv."),
    (r"\.dual_ln_dp\.", ".norm_projected."),
)

_PLAIN_NAMES = (
    (r"^patch_embed\.", "stages.0.embed."),
    (r"^blocks\.(\d+)\.", r"stages.\1.blocks.0."),
    (r"^head\.", "head.fc."),
)
_PLAIN_ONLY = ("cls_token", "pos_embed")
_NOT_PLAIN = re.compile(r"\.geometry\.|\.pos_embed$|\.attn\.(slice_qkv|mixer|aggregate)\.")

_POSITION_GRIDS = ("geometry.local_pos", "geometry.slice_pos", "embed.pos_embed")


def checkpoint_filter_fn(state_dict: Mapping[str, Any], model: nn.Module) -> dict[str, Tensor]:
    """A state dict of any accepted kind -> one that fits the model, as timm calls it on loading.

    Accepted are the model's own keys, returned as they are; the ViL-LS files released with
    arXiv:2107.02192, with their wrapper, `module.` prefix and index buffers; and, for `cst_vit_*`,
    timm's plain ViT and DeiT. Position tables of another size are resized. A dynamic projection of
    another rank cannot be carried over: the model's own stays, and a warning names it.

    Args:
        state_dict: As read from a file.
        model: That it is to be loaded into; not changed.

    Raises:
        ValueError: what is left does not fit the model; lists what is missing, unexpected and of
            another shape.
    """
    state_dict = state_dict.get("net", state_dict)
    state_dict = {key.removeprefix("module."): value for key, value in state_dict.items()}
    if any(key.startswith("layer1.") for key in state_dict):
        state_dict = convert_released(state_dict)
    if "patch_embed.proj.weight" in state_dict:
        state_dict = convert_plain(state_dict, model)
    _resize_position_tables(state_dict, model)
    _keep_projections_of_another_rank(state_dict, model)
    _check_fits(state_dict, model)
    return state_dict


def convert_released(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keys of the released ViL-LS files -> ours; index buffers are left out.

    There a stage is `layer{1..4}`: entry 0 is the embedding, odd entries are attentions and even
    ones MLPs.
    """
    converted = {}
    for key, value in state_dict.items():
        if key.endswith("relative_position_index"):
            continue
        new = re.sub(r"^layer(\d)\.(\d+)\.(norm\.)?", _released_place, key)
        converted[_renamed(new, _RELEASED_NAMES)] = value
    return converted


def _released_place(match: re.Match[str]) -> str:
    stage, entry, norm = int(match[1]) - 1, int(match[2]), match[3]
    if entry == 0:
        return f"stages.{stage}.embed." + (norm or "")
    half = "norm1." if entry % 2 else "norm2."
    return f"stages.{stage}.blocks.{(entry - 1) // 2}." + (half if norm else "")


def convert_plain(state_dict: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Keys of timm's plain ViT and DeiT -> those of a `cst_vit_*` model.

    The class token and the position embedding are left out, and what a plain ViT has no weights for
    (P_l, P_g, the parameters of the ablations) stays as the model has it; a warning names both.
    """
    converted = {
        _renamed(k, _PLAIN_NAMES): v for k, v in state_dict.items() if k not in _PLAIN_ONLY
    }
    kept = {k: v for k, v in model.state_dict().items() if _NOT_PLAIN.search(k)}
    _logger.warning(
        "The checkpoint is of a plain ViT. Left out: %s. Left as initialised: %s.",
        ", ".join(k for k in _PLAIN_ONLY if k in state_dict),
        ", ".join(kept),
    )
    return {**converted, **kept}


def _renamed(key: str, names: tuple[tuple[str, str], ...]) -> str:
    for pattern, name in names:
        key = re.sub(pattern, name, key)
    return key


def _resize_position_tables(state_dict: dict[str, Tensor], model: nn.Module) -> None:
    own = model.state_dict()
    for key, positions in state_dict.items():
        if key.endswith(_POSITION_GRIDS) and key in own and positions.shape != own[key].shape:
            state_dict[key] = resize_positions(positions, *own[key].shape[:2])
    for key in [k for k in state_dict if k.endswith("position_bias.table")]:
        bias = dict(model.named_modules()).get(key.removesuffix(".table"))
        if bias is not None and state_dict[key].shape[0] != bias.table.shape[0]:
            state_dict[key] = bias.resize(state_dict[key])


def _keep_projections_of_another_rank(state_dict: dict[str, Tensor], model: nn.Module) -> None:
    kept = []
    for key, own in model.state_dict().items():
        fits = key not in state_dict or state_dict[key].shape == own.shape
        if not fits and re.search(r"\.dynamic_projection\.(pointwise\.)?(weight|bias)$", key):
            state_dict[key] = own
            kept.append(key)
    if kept:
        _logger.warning(
            "The checkpoint has dynamic projections of another rank. Left as initialised: %s.",
            ", ".join(kept),
        )


def _check_fits(state_dict: Mapping[str, Tensor], model: nn.Module) -> None:
    """Raise before anything is loaded, unless timm adapts it: the classifier, input channels."""
    own = model.state_dict()
    cfg = cast("dict[str, Any]", model.pretrained_cfg)
    adapted = set()
    if model.num_classes != cfg["num_classes"]:
        adapted |= {f"{cfg['classifier']}.weight", f"{cfg['classifier']}.bias"}
    if model.in_chans != cfg["input_size"][0]:
        adapted |= {f"{cfg['first_conv']}.weight"}
    missing = [k for k in own if k not in state_dict and k not in adapted]
    unexpected = [k for k in state_dict if k not in own and k not in adapted]
    other_shape = [
        f"{k} {tuple(state_dict[k].shape)} instead of {tuple(own[k].shape)}"
        for k in own
        if k in state_dict and k not in adapted and state_dict[k].shape != own[k].shape
    ]
    parts = {"missing": missing, "unexpected": unexpected, "of another shape": other_shape}
    if any(parts.values()):
        lists = "; ".join(f"{len(found)} {what}{_first(found)}" for what, found in parts.items())
        raise ValueError(f"The checkpoint must fit {cfg['architecture']}, got one with {lists}.")


def _first(found: list[str]) -> str:
    more = ", ..." if len(found) > _SHOWN else ""
    return f" ({', '.join(found[:_SHOWN])}{more})" if found else ""
