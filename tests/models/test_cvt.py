"""CvT as Microsoft released it, against what transformers computed from the same weights."""

import logging

import pytest
import timm
import torch
from cvt_reference import FILE, build
from safetensors.torch import load_file

from vit_ls.attention import Convolutions, Full, LongShort, Place
from vit_ls.count import count_flops, count_params
from vit_ls.models.convert import checkpoint_filter_fn
from vit_ls.models.cvt import VARIANTS

SIZES = ("square", "wide", "odd")

# of the released code; multiply-adds with batch norm counted 2x, as fvcore does in eval mode
PARAMS = {"cvt_13": 19_997_480, "cvt_21": 31_622_696, "cvt_w24_384": 277_196_392}
FLOPS = {("cvt_13", 224): 4_584_945_536, ("cvt_21", 224): 7_206_648_704}
KEYS = {"cvt_13": 459, "cvt_21": 731, "cvt_w24_384": 833}


@pytest.fixture(scope="module")
def golden():
    return load_file(FILE)


@pytest.fixture(scope="module")
def weights(golden):
    """The state dict with Hugging Face's names."""
    return {k.removeprefix("weights."): v for k, v in golden.items() if k.startswith("weights.")}


def loaded(weights, **kwargs):
    model = build(**kwargs)
    model.load_state_dict(model.fit_state_dict(weights))
    return model


def microsoft_names(weights):
    """Hugging Face's names -> those of the original files, by the published table of both."""
    renamed = {}
    for key, value in weights.items():
        new = key.replace("cvt.encoder.stages.", "stage")
        for theirs, original in (
            ("embedding.convolution_embeddings.projection", "patch_embed.proj"),
            ("embedding.convolution_embeddings.normalization", "patch_embed.norm"),
            ("layers.", "blocks."),
            ("layernorm_before", "norm1"),
            ("layernorm_after", "norm2"),
            ("attention.output.dense", "attn.proj"),
            ("intermediate.dense", "mlp.fc1"),
            ("output.dense", "mlp.fc2"),
            ("convolution_projection.convolution.", "conv."),
            ("convolution_projection.normalization.", "bn."),
        ):
            new = new.replace(theirs, original)
        for word in ("query", "key", "value"):
            new = new.replace(
                f"attention.attention.convolution_projection_{word}", f"attn.c_{word}"
            )
            new = new.replace(f"attention.attention.projection_{word}", f"attn.proj_{word[0]}")
            new = new.replace(f"attn.c_{word}", f"attn.conv_proj_{word[0]}")
        new = new.replace("classifier.", "head.")
        renamed[new.replace("layernorm.", "norm.")] = value
    return renamed


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("activation", "suffix"), [("gelu", ""), ("quick_gelu", "_quick_gelu")])
def test_logits_and_maps_equal_the_reference(golden, weights, size, activation, suffix):
    model = loaded(weights, activation=activation)
    with torch.no_grad():
        logits = model(golden[f"{size}.input"])
        maps = model.forward_intermediates(golden[f"{size}.input"], intermediates_only=True)
    torch.testing.assert_close(logits, golden[f"{size}.logits{suffix}"], rtol=0, atol=1e-5)
    for i in (2,) if suffix else (0, 1, 2):
        expected = golden[f"{size}.hidden_states{suffix}.{i}"]
        difference = (maps[i] - expected).abs().max()
        assert difference <= 1e-5 * expected.abs().max(), (i, difference)
        if size != "odd":  # there the file's own float32 is 3.9e-5 away from float64
            torch.testing.assert_close(maps[i], expected, rtol=1e-5, atol=1e-5)


def test_the_classifier_reads_the_normalised_class_token(golden, weights):
    model = loaded(weights, activation="gelu")
    features = model.forward_features(golden["odd.input"])
    actual = model.forward_head(features, pre_logits=True)
    torch.testing.assert_close(actual, golden["odd.cls_normalised"], rtol=0, atol=1e-5)


def test_the_input_gradient_equals_the_reference(golden, weights):
    image = golden["square.input"].clone().requires_grad_()
    model = loaded(weights, activation="gelu")
    (model(image) * golden["square.cotangent"]).sum().backward()
    torch.testing.assert_close(image.grad, golden["square.input_grad"], rtol=0, atol=1e-5)


def test_float64_leaves_rounding_alone_between_the_file_and_the_model(golden, weights):
    """What differs above is rounding: in float64 the class token is where float32 rounds it to."""
    model = loaded({k: v.double() for k, v in weights.items()}, activation="gelu").double()
    model.load_state_dict(model.fit_state_dict({k: v.double() for k, v in weights.items()}))
    logits = model(golden["wide.input"].double())
    torch.testing.assert_close(logits.float(), golden["wide.logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("names", ["hugging_face", "microsoft"])
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
def test_files_with_either_names_load_wrapped_or_not(weights, names, wrapper, tmp_path, golden):
    content = microsoft_names(weights) if names == "microsoft" else dict(weights)
    assert len(content) == len(weights)
    if wrapper:
        content = {wrapper: {f"module.{k}": v for k, v in content.items()}, "epoch": 299}
    path = tmp_path / "CvT.pth"
    torch.save(content, path)
    overlay = {"file": str(path), "num_classes": 10}
    model = build(pretrained=True, pretrained_cfg_overlay=overlay)
    logits = model(golden["square.input"])
    torch.testing.assert_close(logits, golden["square.logits_quick_gelu"], rtol=0, atol=1e-5)


def test_a_released_file_loads_without_a_warning_and_a_second_time_without_a_second_fold(
    weights, caplog
):
    with caplog.at_level(logging.WARNING):
        model = loaded(weights)
        again = build()
        again.load_state_dict(checkpoint_filter_fn(model.state_dict(), again))
    assert not caplog.records
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(again(x), model(x))


def test_a_part_of_a_file_is_refused_and_the_model_stays_as_it_was(weights):
    model = build()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    broken = dict(weights)
    del broken["cvt.encoder.stages.1.layers.0.attention.attention.projection_key.bias"]
    with pytest.raises(ValueError, match=r"1 missing \(stages.1.blocks.0.attn.qkv.k.pointwise"):
        checkpoint_filter_fn(broken, model)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_the_headless_file_lacks_norm_and_classifier(weights):
    headless = {
        k.removeprefix("cvt."): v for k, v in weights.items() if k.startswith("cvt.encoder.")
    }
    model = timm.create_model("test_cvt", device="meta")
    with pytest.raises(ValueError, match=r"missing .*unexpected"):
        checkpoint_filter_fn(headless, model)
    with pytest.raises(ValueError, match=r"2 missing \(norm.weight, norm.bias\); 0 unexpected"):
        checkpoint_filter_fn(headless, build())


@pytest.mark.parametrize("name", PARAMS)
def test_parameters_and_keys_are_those_of_the_released_code(name):
    model = timm.create_model(name, device="meta")
    assert count_params(model) == PARAMS[name]
    assert len(model.state_dict()) == KEYS[name]


@pytest.mark.parametrize(("name", "size"), FLOPS)
def test_flops_are_those_of_the_released_code(name, size):
    assert count_flops(timm.create_model(name).eval(), (size, size)) == FLOPS[name, size]


@pytest.mark.parametrize("size", [3, 4, 7, 61, 62, 63, 64])
def test_sizes_are_cut_as_the_released_code_cuts_them(size):
    maps = timm.create_model("test_cvt").forward_intermediates(
        torch.randn(1, 3, size, 64), intermediates_only=True
    )
    side = (size + 1) // 4
    for feature_map in maps:
        assert feature_map.shape[2] == side
        side = (side + 1) // 2


def test_evaluation_is_cropped_as_microsoft_s_was():
    at_224, at_384 = (timm.get_pretrained_cfg(n) for n in ("cvt_13", "cvt_21_384"))
    assert (at_224.crop_pct, at_224.crop_mode) == (0.875, "center")
    assert (at_384.crop_pct, at_384.crop_mode) == (1.0, "squash")


def test_every_variant_but_the_small_one_names_its_file_on_the_hub():
    listed = {name for name in timm.list_pretrained("cvt_*") if name.startswith("cvt_")}
    assert {name.partition(".")[0] for name in listed} == set(VARIANTS) - {"test_cvt"}
    assert timm.get_pretrained_cfg("cvt_13_384.msft_in1k").hf_hub_id == "microsoft/cvt-13-384"
    assert all(timm.get_pretrained_cfg(name).hf_hub_filename is None for name in listed)


def test_an_unknown_activation_is_an_error():
    with pytest.raises(ValueError, match="'gelu' or 'quick_gelu', got 'relu'"):
        timm.create_model("test_cvt", activation="relu")


def test_strided_keys_go_with_neither_a_window_nor_a_position_table():
    place = Place(8, 2, (4, 4), conv_projection=Convolutions(kv_stride=2))
    with pytest.raises(ValueError, match="window needs a key at each token, got kv_stride=2"):
        LongShort(3, 0).layer(place)
    with pytest.raises(ValueError, match="table needs a key at each token, got kv_stride=2"):
        Full(position_table=True).layer(place)
