"""Checkpoints with the names and in the files of the released programs."""

import pytest
import torch
import torch.nn.functional as F
from definitions import long_short
from test_golden import CLOSE, part, read

from vit_ls.sequence import (
    CausalLongShort,
    LanguageModel,
    LongShort,
    SequenceClassifier,
    SequenceEncoder,
    convert_sequence,
)


def reread(folder, content):
    torch.save(content, folder / "checkpoint.pt")
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def make_encoder(config):
    return SequenceEncoder(
        vocab_size=config["vocab"],
        dim=config["dim"],
        depth=config["layers"],
        num_heads=config["num_heads"],
        hidden=config["ffn"],
        max_length=config["max_len"],
        attention=LongShort(config["window"], config["rank"]),
        pad_id=config["pad_id"],
    )


def make_language_model(config, **options):
    attention = CausalLongShort(
        *(config["window"], config["segment"], config["rank"]),
        cached_projection="hidden",
        **options,
    )
    return LanguageModel(
        vocab_size=config["vocab"],
        dim=config["dim"],
        depth=config["layers"],
        num_heads=config["num_heads"],
        hidden=config["ffn"],
        attention=attention,
        memory_length=config["cache"],
        residual="normalised",
    ).eval()


def language_weights():
    """Weights as fairseq saves them, with what a file has of positions and of the output."""
    tensors, config, _ = read("causal", "lm")
    weights = part(tensors, "weights")
    weights["out_emb.weight"] = weights["in_emb.weight"].clone()
    C = config["dim"]
    weights["pos_emb.inv_freq"] = 1 / (10000 ** (torch.arange(0.0, C, 2.0) / C))
    return tensors, config, weights


@pytest.mark.parametrize("prefix", ["", "model.", "decoder.model."])
def test_a_language_model_in_fairseqs_file_loads_exactly_and_says_the_same(tmp_path, prefix):
    tensors, config, weights = language_weights()
    content = {
        "model": {prefix + name: value for name, value in weights.items()},
        "optimizer_history": [{"num_updates": 430_000}],
        "extra_state": {"epoch": 2},
    }
    model = make_language_model(config)
    model.load_state_dict(convert_sequence(reread(tmp_path, content)))
    first, second = tensors["tokens"].split(24, dim=1)
    logits, memory = model(first, model.zero_memory(len(first)))
    torch.testing.assert_close(logits.log_softmax(-1), tensors["log_probs_1"], **CLOSE)
    logits, _ = model(second, memory)
    torch.testing.assert_close(logits.log_softmax(-1), tensors["log_probs_2"], **CLOSE)


def test_frequencies_that_float16_rounded_are_kept_or_refused_and_never_dropped():
    tensors, config, weights = language_weights()
    rounded = weights["pos_emb.inv_freq"].half().float()
    converted = convert_sequence(weights | {"pos_emb.inv_freq": rounded})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*blocks.0.attn.frequencies"):
        make_language_model(config).load_state_dict(converted)
    model = make_language_model(config, stored_frequencies=True)
    exact = model(tensors["tokens"])[0]
    model.load_state_dict(converted)
    assert all(torch.equal(block.attn.frequencies, rounded) for block in model.blocks)
    with_rounded = model(tensors["tokens"])[0]
    for block in model.blocks:
        block.attn.frequencies.copy_(weights["pos_emb.inv_freq"])
    with_exact = model(tensors["tokens"])[0]
    plain = make_language_model(config)
    plain.load_state_dict(convert_sequence(weights))
    torch.testing.assert_close(with_exact, plain(tensors["tokens"])[0])
    assert not torch.allclose(with_rounded, with_exact, atol=1e-4)
    assert not torch.allclose(exact, with_exact, atol=1e-4)


def test_an_output_that_is_not_the_embedding_is_refused():
    _, _, weights = language_weights()
    weights["out_emb.weight"][0, 0] += 1
    with pytest.raises(ValueError, match=r"must be in_emb.weight, .* with other numbers there"):
        convert_sequence(weights)
    weights.pop("in_emb.weight")
    with pytest.raises(ValueError, match=r"must be in_emb.weight, .* with nothing there"):
        convert_sequence(weights)


@pytest.mark.parametrize("pair", [False, True])
def test_a_classifier_in_the_arenas_file_loads_exactly_and_says_the_same(tmp_path, pair):
    tensors, config, _ = read("bidirectional", "encoder")
    C, hidden, classes = config["dim"], 24, 3
    g = torch.Generator().manual_seed(0)
    head = {
        "0.weight": torch.randn(hidden, C * (4 if pair else 1), generator=g),
        "0.bias": torch.randn(hidden, generator=g),
        "2.weight": torch.randn(classes, hidden, generator=g),
        "2.bias": torch.randn(classes, generator=g),
    }
    saved = {f"model.{name}": value for name, value in part(tensors, "weights").items()}
    saved |= {f"seq_classifer.mlpblock.{name}": value for name, value in head.items()}
    encoder = make_encoder(config)
    model = SequenceClassifier(encoder, hidden=hidden, num_classes=classes, pair=pair).eval()
    model.load_state_dict(convert_sequence(reread(tmp_path, {"model_state_dict": saved})))
    ids, x = tensors["tokens"], tensors["output"][:, 0]
    if pair:
        y = x.flip(0)
        ids, x = torch.stack((ids, ids.flip(0)), 1), torch.cat((x, y, x * y, x - y), 1)
    x = F.linear(x, head["0.weight"], head["0.bias"]).relu()
    expected = F.linear(x, head["2.weight"], head["2.bias"])
    torch.testing.assert_close(model(ids), expected, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("cls", [True, False])
def test_an_encoder_of_rank_0_loads_without_what_nothing_reaches(cls):
    tensors, config, _ = read("bidirectional", "encoder")
    weights = part(tensors, "weights")
    for i in range(config["layers"]):
        weights[f"transformer_{i}.mha.dconv_fc.weight"] = torch.empty(0, config["dim"])
        weights[f"transformer_{i}.mha.dconv_fc.bias"] = torch.empty(0)
    if not cls:
        weights.pop("cls_embed")
    encoder = SequenceEncoder(
        vocab_size=config["vocab"],
        dim=config["dim"],
        depth=config["layers"],
        num_heads=config["num_heads"],
        hidden=config["ffn"],
        max_length=config["max_len"],
        attention=LongShort(config["window"], 0),
        pooling="cls" if cls else "mean",
    )
    encoder.load_state_dict(convert_sequence(weights))
    if cls:
        last = encoder.blocks[-1].attn.double()
        assert torch.equal(
            last.norm_projected.weight.float(), weights["transformer_1.mha.dual_ln_s.weight"]
        )
        x, token = (torch.randn(n, config["dim"], dtype=torch.float64) for n in (9, 1))
        expected, _ = long_short(last, x, token[0])
        torch.testing.assert_close(last(x[None], token[None])[0][0], expected)


def test_the_names_of_an_attention_layer_alone_are_converted_too():
    tensors, _, _ = read("bidirectional", "window8_rank6_cls")
    assert set(convert_sequence(part(tensors, "weights"))) == {
        *("qkv.weight", "qkv.bias", "proj.weight", "proj.bias", "norm_kv.weight", "norm_kv.bias"),
        *("norm_projected.weight", "norm_projected.bias"),
        *("dynamic_projection.weight", "dynamic_projection.bias"),
    }


def test_queries_without_keys_are_no_checkpoint():
    with pytest.raises(ValueError, match=r"q, k and v must come together, got no W_k.weight"):
        convert_sequence({"W_q.weight": torch.zeros(2, 2), "W_v.weight": torch.zeros(2, 2)})
