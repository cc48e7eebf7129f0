"""State dicts of the released sequence code of arXiv:2107.02192 -> ours.

Two codes were released, and name the same things differently: that of the Long Range Arena (both
directions) and the autoregressive one.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vit_ls.sequence.sinusoids import frequencies

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
_IN_FILES = ("model_state_dict", "model")
"""Where the released programs keep a model in the files that they write: LRA's, fairseq's."""
_PREFIX = re.compile(r"^(decoder\.)?model\.")
_HEAD = "seq_classifer.mlpblock."  # spelled so


def convert_sequence(checkpoint: Mapping[str, Any]) -> dict[str, Tensor]:
    """What either released code saves -> the keys of `SequenceClassifier`, `LanguageModel`, ....

    With a classifier the keys are those of `SequenceClassifier`, without one those of
    `SequenceEncoder`; of the autoregressive code those of `LanguageModel`. What only repeats
    something is checked and left out: the output's weights, which are the embedding's; the
    frequencies of sines and cosines. Those that float16 has rounded (`--fp16` of fairseq saves
    them so) are kept, for `CausalLongShort(stored_frequencies=True)`.

    Args:
        checkpoint: A file's content, or the state dict of a whole model or of one attention layer.

    Raises:
        ValueError: one of q, k, v is there without the others, or the output does not have the
            embedding's weights.
    """
    for name in _IN_FILES:
        if isinstance(checkpoint.get(name), Mapping):
            checkpoint = checkpoint[name]
            break
    state = {_PREFIX.sub("", key): value for key, value in checkpoint.items()}
    head = {key.removeprefix(_HEAD): state.pop(key) for key in list(state) if key.startswith(_HEAD)}
    causal = any(re.search(r"\b(proj_out|r_net)\.", key) for key in state)
    state = _join_qkv(_without_repeated(state) if causal else _without_unused(state))
    converted = {}
    for key, value in state.items():
        for pattern, name in _CAUSAL if causal else _BOTH_DIRECTIONS:
            key = re.sub(pattern, name, key)
        # [1,h,1,1,d] or [1,h,1,d] -> [h,d]
        converted[key] = value.reshape(-1, value.shape[-1]) if _HEADS.search(key) else value
    if not head:
        return converted
    encoder = {f"encoder.{key}": value for key, value in converted.items()}
    return encoder | {f"head.{key}": value for key, value in head.items()}


def _without_repeated(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the autoregressive code: without output weights, and without frequencies if they are ours.

    Raises:
        ValueError: the output does not have the embedding's weights.
    """
    output = state.pop("out_emb.weight", None)
    shared = state.get("in_emb.weight")
    if output is not None and (shared is None or not torch.equal(output, shared)):
        there = "nothing" if shared is None else "other numbers"
        raise ValueError(
            "out_emb.weight must be in_emb.weight, which the output shares, "
            f"got {tuple(output.shape)} with {there} there."
        )
    found = state.pop("pos_emb.inv_freq", None)
    if found is not None:
        exact = frequencies(2 * len(found), dtype=torch.float64).to(found.device)
        if not torch.allclose(found.double(), exact, rtol=1e-6, atol=0.0):
            layers = {m[0] for m in map(re.compile(r"^layers\.\d+\.").match, state) if m}
            state |= {f"{layer}attn.frequencies": found for layer in sorted(layers)}
    return state


def _without_unused(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the Long Range Arena's code with rank 0: without what no token or class token reaches.

    A projection onto nothing, and LN_G but where the class token enters: in the last layer.
    """
    none = [
        key for key, value in state.items() if key.endswith("dconv_fc.weight") and not len(value)
    ]
    layers = [key.removesuffix("dconv_fc.weight") for key in none]
    numbers = {
        layer: int(m[1]) for layer in layers if (m := re.match(r"transformer_(\d+)\.", layer))
    }
    last = max(numbers.values(), default=None) if "cls_embed" in state else None
    for layer in layers:
        reached = layer not in numbers or numbers[layer] == last
        for name in ("dconv_fc", *(() if reached else ("dual_ln_s",))):
            for kind in ("weight", "bias"):
                state.pop(f"{layer}{name}.{kind}", None)
    return state


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
