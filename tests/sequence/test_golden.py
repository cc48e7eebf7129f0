"""The released sequence code of arXiv:2107.02192, by tensors that it produced."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from vit_ls.sequence import (
    CausalLongShort,
    CausalLongShortAttention,
    Full,
    LanguageModel,
    LongShort,
    LongShortAttention1d,
    SequenceEncoder,
    convert_sequence,
)

DATA = Path(__file__).parents[1] / "data"
CLOSE = {"rtol": 0.0, "atol": 2e-5}
# the files' own gradients lie 2e-5 from those in float64 where they are 40, a float32 step or five
CLOSE_GRADIENTS = {"rtol": 1e-6, "atol": 2e-5}
BOTH = (
    *("window8_rank6", "window8_rank6_cls", "window7_rank6", "window1_rank2"),
    *("window2_rank1_cls", "window8_rank0", "window0_rank6"),
)
CAUSAL = ("cached", "cold_start", "rank1_long_cache", "shorter_than_window", "one_head")


def read(direction, case):
    """(tensors of the case, its configuration, mask)"""
    path = DATA / f"ls_sequence_{direction}.safetensors"
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["config"])[case]
    tensors = load_file(path)
    case = {k.removeprefix(f"{case}."): v for k, v in tensors.items() if k.startswith(f"{case}.")}
    return case, config, tensors.get("mask")


def part(tensors, name):
    return {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}


def check_parameter_gradients(layer, tensors):
    """Each gradient that the file has equals the layer's, under the converter's names."""
    # the key's gradient stands alone in the file: those of query and value are not compared
    released = {k: torch.zeros_like(v) for k, v in part(tensors, "weights").items()}
    grads = part(tensors, "grads")
    expected = convert_sequence(released | grads)
    seen = convert_sequence({k: torch.full_like(v, k in grads) for k, v in released.items()})
    compared = 0
    for name, parameter in layer.named_parameters():
        there = seen[name].bool()
        torch.testing.assert_close(parameter.grad[there], expected[name][there], **CLOSE_GRADIENTS)
        compared += int(there.any())
    assert compared == len(grads) > 0


@pytest.mark.parametrize("case", BOTH)
def test_both_directions_equal_the_released_code(case):
    tensors, config, mask = read("bidirectional", case)
    layer = LongShortAttention1d(
        config["dim"],
        config["num_heads"],
        LongShort(window=config["window"], rank=config["rank"]),
        cls_token=config["cls"],
    )
    layer.load_state_dict(convert_sequence(part(tensors, "weights")))
    x = tensors["input"].requires_grad_()
    cls = tensors["cls"].requires_grad_() if config["cls"] else None
    y, y_cls = layer(x, cls, mask)
    output = y if y_cls is None else torch.cat((y_cls, y), dim=1)
    torch.testing.assert_close(output, tensors["output"], **CLOSE)
    output.backward(tensors["cotangent"])
    torch.testing.assert_close(x.grad, tensors["input_grad"], **CLOSE)
    if cls is not None:
        torch.testing.assert_close(cls.grad, tensors["cls_grad"], **CLOSE)
    check_parameter_gradients(layer, tensors)


def causal_layer(tensors, config):
    layer = CausalLongShortAttention(
        config["dim"],
        config["num_heads"],
        CausalLongShort(
            window=config["window"],
            segment=config["segment"],
            rank=config["rank"],
            bias=config["bias"],
            cached_projection="hidden",
        ),
    )
    layer.load_state_dict(convert_sequence(part(tensors, "weights")))
    return layer


@pytest.mark.parametrize("case", CAUSAL)
def test_the_causal_form_equals_the_released_code(case):
    tensors, config, _ = read("causal", case)
    layer = causal_layer(tensors, config)
    x, past = tensors["input"].requires_grad_(), tensors["cache"].requires_grad_()
    y, _ = layer(x, layer.read(past))
    torch.testing.assert_close(y, tensors["output"], **CLOSE)
    y.backward(tensors["cotangent"])
    torch.testing.assert_close(x.grad, tensors["input_grad"], **CLOSE)
    if "cache_grad" in tensors:
        torch.testing.assert_close(past.grad, tensors["cache_grad"], **CLOSE)
    check_parameter_gradients(layer, tensors)


def test_a_masked_cold_start_equals_the_released_code_where_its_window_is_full():
    tensors, config, _ = read("causal", "no_cache")
    layer = causal_layer(tensors, config)
    x = tensors["input"].requires_grad_()
    y, _ = layer(x)
    torch.testing.assert_close(y, tensors["derived_output"], **CLOSE)
    torch.testing.assert_close(y[:, config["window"] - 1 :], tensors["output"], **CLOSE)
    y.backward(tensors["cotangent"])
    torch.testing.assert_close(x.grad, tensors["input_grad"], **CLOSE)
    check_parameter_gradients(layer, tensors)


def test_the_encoder_equals_the_released_one():
    tensors, config, _ = read("bidirectional", "encoder")
    encoder = SequenceEncoder(
        vocab_size=config["vocab"],
        dim=config["dim"],
        depth=config["layers"],
        num_heads=config["num_heads"],
        hidden=config["ffn"],
        max_length=config["max_len"],
        attention=LongShort(config["window"], config["rank"]),
        pad_id=config["pad_id"],
    ).eval()
    encoder.load_state_dict(convert_sequence(part(tensors, "weights")))
    torch.testing.assert_close(encoder(tensors["tokens"]), tensors["output"][:, 0], **CLOSE)


def test_the_language_model_equals_the_released_one_over_two_calls():
    tensors, config, _ = read("causal", "lm")
    model = LanguageModel(
        vocab_size=config["vocab"],
        dim=config["dim"],
        depth=config["layers"],
        num_heads=config["num_heads"],
        hidden=config["ffn"],
        attention=CausalLongShort(
            config["window"], config["segment"], config["rank"], cached_projection="hidden"
        ),
        memory_length=config["cache"],
        residual="normalised",
    ).eval()
    model.load_state_dict(convert_sequence(part(tensors, "weights")))
    first, second = tensors["tokens"].split(24, dim=1)
    logits, memory = model(first, model.zero_memory(len(first)))
    torch.testing.assert_close(logits.log_softmax(-1), tensors["log_probs_1"], **CLOSE)
    logits, memory = model(second, memory)
    torch.testing.assert_close(logits.log_softmax(-1), tensors["log_probs_2"], **CLOSE)
    for i, past in enumerate(memory):
        torch.testing.assert_close(past, tensors[f"cache_after_2.{i}"], **CLOSE)


@pytest.mark.parametrize(
    ("attention", "expected"),
    [(LongShort(8, 32), 75_968), (Full(), 67_072)],
    ids=["long-short", "full"],
)
def test_the_encoder_has_the_parameters_that_the_released_one_has(attention, expected):
    encoder = SequenceEncoder(
        vocab_size=2,
        dim=64,
        depth=2,
        num_heads=2,
        hidden=128,
        max_length=8,
        attention=attention,
        pooling="mean" if attention == Full() else "cls",
    )
    others = encoder.embed.weight.numel() + encoder.pos_embed.numel()
    assert sum(p.numel() for p in encoder.parameters()) - others == expected


def test_a_layer_of_the_small_language_model_has_the_released_parameters():
    model = LanguageModel(
        vocab_size=2,
        dim=512,
        depth=1,
        num_heads=8,
        hidden=2048,
        attention=CausalLongShort(512, 16, 1),
        residual="normalised",
    )
    assert sum(p.numel() for p in model.blocks[0].parameters()) == 3_682_312
