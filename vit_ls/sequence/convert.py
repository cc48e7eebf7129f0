"""State dicts of the released sequence code of arXiv:2107.02192 -> ours.

Two codes were released, and name the same things differently: that of the Long Range Arena (both
directions) and the autoregressive one.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_BOTH_DIRECTIONS = (
    (r"^embeddings\.word_embeddings\.", "embed."),
    (r"^embeddings\.position_embeddings\.weight$", "pos_embed"),
    (r"^cls_embed$", "cls_token"),
    (r"^transformer_(\d+)\.", r"blocks.\1."),
    (r"\bmha\.", "attn."),
    (r"\bmlpblock\.0\.", "mlp.fc1."),
    (r"\bmlpblock\.3\.", "mlp.fc2."),
    (r"\bW_o\.", "proj."),
    (r"\bdconv_fc\.", "dynamic_projection."),
    (r"\bdual_ln_l\.", "norm_kv."),
    (r"\bdual_ln_s\.", "norm_projected."),
)
_CAUSAL = (
    (r"^in_emb\.", "embed."),
    (r"^out_emb\.bias$", "bias"),
    (r"^layers\.", "blocks."),
    (r"\bff\.", "mlp."),
    (r"\bproj_out\.", "proj."),
    (r"\bdconv_1\.", "dynamic_projection."),
    (r"\bdual_ln_win\.", "norm_kv."),
    (r"\bdual_ln_dproj\.", "norm_projected."),
    (r"\br_net\.", "window_position."),
    (r"\br_net_chunk\.", "segment_position."),
    (r"\br_w_bias$", "key_bias"),
    (r"\br_r_bias$", "position_bias"),
)
_QKV = (("W_q", "W_k", "W_v"), ("proj_query", "proj_key", "proj_val"))
_HEADS = re.compile(r"\b(key_bias|position_bias)$")


def convert_sequence(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keys of either released code -> those of `SequenceEncoder`, `LanguageModel` or their layers.

    Args:
        state_dict: Of a whole model, or of one attention layer. The classifiers, which the tasks
            add to the encoder, are not converted.

    Raises:
        ValueError: one of q, k, v is there without the others.
    """
    joined = _join_qkv(state_dict)
    causal = any(re.search(r"\b(proj_out|r_net)\.", key) for key in joined)
    converted = {}
    for key, value in joined.items():
        for pattern, name in _CAUSAL if causal else _BOTH_DIRECTIONS:
            key = re.sub(pattern, name, key)
        # [1,h,1,1,d] or [1,h,1,d] -> [h,d]
        converted[key] = value.reshape(-1, value.shape[-1]) if _HEADS.search(key) else value
    return converted


def _join_qkv(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One weight for q, k and v, in the place of the query's."""
    joined = dict(state_dict)
    for query, key, value in _QKV:
        for name in [k for k in joined if re.search(rf"\b{query}\.", k)]:
            parts = [re.sub(rf"\b{query}\.", f"{part}.", name) for part in (query, key, value)]
            missing = [part for part in parts if part not in joined]
            if missing:
                raise ValueError(f"q, k and v must come together, got no {', '.join(missing)}.")
            new = re.sub(rf"\b{query}\.", "qkv.", name)
            joined[new] = torch.cat([joined.pop(part) for part in parts])
    return joined
