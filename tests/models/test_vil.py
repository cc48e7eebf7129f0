"""ViL as Microsoft released it, against tensors of the released code."""

import json
import logging
from pathlib import Path

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from timm.models import build_model_with_cfg

from vit_ls.attention import Full, LongShort
from vit_ls.blocks import Embed, StageSpec
from vit_ls.count import count_flops, count_params
from vit_ls.models.backbone import StagedTransformer
from vit_ls.models.convert import checkpoint_filter_fn
from vit_ls.models.spec import BackboneSpec

FILE = Path(__file__).parents[1] / "data" / "vil_reference_tiny.safetensors"
FORMS = {"relative": "", "absolute": "absolute."}

PARAMS = {
    # parameters of the released code: relative, absolute
    "vil_tiny": (6_719_698, 6_707_080),
    "vil_small": (24_657_328, 24_635_752),
    "vil_medium": (39_782_296, 39_721_192),
    "vil_base": (55_801_384, 55_696_360),
    "vil_medium_wide": (39_801_208, 39_776_488),
    "vil_base_wide": (79_041_948, 78_998_760),
    "vil_medium_384": (39_928_696, 39_736_552),
    "vil_base_384": (56_023_792, 55_711_720),
    "vil_medium_wide_384": (None, 39_800_808),
    "vil_base_wide_384": (None, 79_026_920),
}
# multiply-adds of the released code less its second pass of the shared kv over all tokens
FLOPS = {"vil_tiny": 1.4387, "vil_small": 5.1562, "vil_medium": 9.1532}


@pytest.fixture(scope="module")
def everything():
    return load_file(FILE)


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture
def golden(everything, form):
    """Tensors of one of the two models in the file."""
    prefix = FORMS[form]
    own = {k.removeprefix(prefix): v for k, v in everything.items() if k.startswith(prefix)}
    return own | {k: everything[k] for k in ("input", "cotangent")}


def weights_of(golden):
    return {k.removeprefix("weights."): v for k, v in golden.items() if k.startswith("weights.")}


def build(form, **kwargs):
    with safe_open(FILE, "pt") as file:
        config = json.loads(file.metadata()["config"])
    relative = form == "relative"

    def stage(s):
        attention = Full(relative)
        if s["attention"] == "window":
            halo = {"whole_halo": True, "token_bias": relative, "tokens_read": "keys"}
            attention = LongShort(s["window"], 0, False, relative, **halo)
        p = s["patch_size"]
        embed = Embed(p, p, position=None if relative else "axes")
        return StageSpec(embed, s["heads"], s["dim"], s["depth"], attention, s["global_tokens"])

    return build_model_with_cfg(
        StagedTransformer,
        "test_vil",
        kwargs.pop("pretrained", False),
        pretrained_filter_fn=checkpoint_filter_fn,
        spec=BackboneSpec(tuple(stage(s) for s in config["stages"]), 64, released="vil"),
        num_classes=config["num_classes"],
        **kwargs,
    ).eval()


@pytest.fixture
def model(golden, form):
    model = build(form)
    model.load_state_dict(model.fit_state_dict(weights_of(golden)))
    return model


def test_logits_and_features_equal_the_reference(golden, model):
    with torch.no_grad():
        logits = model(golden["input"])
        maps = model.forward_intermediates(golden["input"], intermediates_only=True)
    torch.testing.assert_close(logits, golden["logits"], rtol=0, atol=1e-5)
    for i, feature_map in enumerate(maps, 1):
        torch.testing.assert_close(feature_map, golden[f"features.stage{i}"], rtol=0, atol=1e-5)


def test_global_tokens_equal_the_reference(golden, model):
    x = golden["input"].permute(0, 2, 3, 1)
    for i, stage in enumerate(model.stages[:3], 1):
        x, g = stage(x)
        torch.testing.assert_close(g, golden[f"globals.stage{i}"], rtol=0, atol=1e-5)


def test_gradients_equal_the_reference(golden, model):
    image = golden["input"].clone().requires_grad_()
    (model(image) * golden["cotangent"]).sum().backward()
    torch.testing.assert_close(image.grad, golden["input_grad"], rtol=0, atol=1e-5)
    grads = {k.removeprefix("grads."): v for k, v in golden.items() if k.startswith("grads.")}
    assert len(grads) in (6, 8)
    for name, expected in grads.items():
        actual = own_gradient(model, name)
        assert (actual - expected).norm() / expected.norm() < 1e-4, name


def own_gradient(model, name):
    """The gradient of a released parameter, in our layout."""
    layer, entry, rest = name.removeprefix("layer").split(".", 2)
    stage = model.stages[int(layer) - 1]
    if entry == "0":
        ours = {
            "x_pos_embed": stage.embed.pos_rows,
            "y_pos_embed": stage.embed.pos_columns,
            "cls_pos_embed": stage.global_tokens,
        }[rest]
        return ours.grad if rest == "cls_pos_embed" else ours.grad[None]
    attn, C = (
        stage.blocks[(int(entry) - 1) // 2].attn,
        model.feature_info[int(layer) - 1]["num_chs"],
    )
    if rest == "attn.query.weight":
        return attn.qkv.weight.grad[:C]
    if rest == "attn.kv.weight":
        return attn.qkv.weight.grad[C:]
    ours = rest.removeprefix("attn.").replace(
        "local_relative_position_bias_table", "position_bias.table"
    )
    ours = ours.replace("g2l_relative_position_bias", "position_bias.global_local")
    ours = ours.replace("g2g_relative_position_bias", "position_bias.global_global")
    return attn.get_parameter(ours).grad


def test_a_released_file_loads_through_timm_and_without_a_warning(golden, form, tmp_path, caplog):
    path = tmp_path / "model_best.pth"
    net = {f"module.{key}": value for key, value in weights_of(golden).items()}
    torch.save({"net": net, "arch": "msvit", "epoch": 299, "best_acc": 82.4}, path)
    overlay = {"file": str(path), "num_classes": 10}
    with caplog.at_level(logging.WARNING):
        loaded = build(form, pretrained=True, pretrained_cfg_overlay=overlay)
    assert not caplog.records
    torch.testing.assert_close(loaded(golden["input"]), golden["logits"], rtol=0, atol=1e-5)


def test_copies_for_global_tokens_may_be_missing_but_not_differ(golden, form):
    weights, key = weights_of(golden), "layer1.1.attn.kv_global.weight"
    without = {k: v for k, v in weights.items() if "_global." not in k}
    assert len(without) < len(weights)
    model = build(form)
    assert model.fit_state_dict(without).keys() == model.state_dict().keys()
    weights[key] = weights[key] + 1e-3
    with pytest.raises(ValueError, match=rf"got another {key} than layer1.1.attn.kv.weight"):
        checkpoint_filter_fn(weights, model)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_with_the_other_positions_is_refused(everything, form):
    other = next(name for name in FORMS if name != form)
    prefix = FORMS[form] + "weights."
    weights = {k.removeprefix(prefix): v for k, v in everything.items() if k.startswith(prefix)}
    with pytest.raises(
        ValueError, match=r"must fit test_vil, got one with .* missing .*unexpected"
    ):
        checkpoint_filter_fn(weights, build(other))


def test_a_table_of_another_window_is_resized_and_says_so(caplog):
    source = timm.create_model("test_vil", window=4)
    target = timm.create_model("test_vil", window=(4, 6))
    with caplog.at_level(logging.WARNING):
        weights = checkpoint_filter_fn(source.state_dict(), target)
    assert weights["stages.1.blocks.0.attn.position_bias.table"].shape[0] == 23**2
    assert "windows of (4, 4) tokens, which this model has as (4, 6)" in caplog.text


def test_resizing_a_table_between_windows_is_that_of_an_image():
    table = torch.randn(15**2, 2)
    bias = timm.create_model("test_vil", window=6).stages[0].blocks[0].attn.position_bias
    expected = torch.nn.functional.interpolate(
        table.T.reshape(1, 2, 15, 15), size=(23, 23), mode="bilinear"
    )
    actual = bias.resize(table, True)
    torch.testing.assert_close(actual, expected[0].flatten(1).T)


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("position", FORMS)
def test_parameters_equal_those_of_the_released_code(name, position):
    expected = dict(zip(FORMS, PARAMS[name], strict=True))[position]
    if expected is None:
        return
    model = timm.create_model(name, position=position, device="meta")
    folded = sum(s.global_tokens.numel() for s in model.stages[:3])
    assert count_params(model) + (folded if position == "absolute" else 0) == expected


@pytest.mark.parametrize("name", FLOPS)
def test_flops_are_those_of_the_released_code(name):
    """But for the global tokens' last update in a stage, on which nothing depends."""
    flops = count_flops(timm.create_model(name).eval(), (224, 224)) / 1e9
    assert FLOPS[name] * 0.995 < flops < FLOPS[name] * 1.001


def test_the_tag_says_which_positions_a_model_has():
    absolute = timm.create_model("vil_tiny.msft_abs_in1k", device="meta")
    relative = timm.create_model("vil_tiny.msft_in1k", device="meta")
    assert absolute.stages[0].embed.pos_rows is not None
    assert relative.stages[0].embed.pos_rows is None
    assert timm.create_model("vil_base_wide", device="meta").stages[0].embed.pos_rows is not None
    with pytest.raises(ValueError, match="'relative' or 'absolute', got 'none'"):
        timm.create_model("vil_tiny", position="none", device="meta")


@pytest.mark.parametrize("position", FORMS)
def test_positions_follow_the_size_as_in_a_model_made_for_it(position):
    model = timm.create_model("test_vil", position=position).eval()
    fixed = timm.create_model("test_vil", position=position, img_size=(48, 80)).eval()
    fixed.load_state_dict(checkpoint_filter_fn(model.state_dict(), fixed))
    x = torch.randn(1, 3, 48, 80)
    torch.testing.assert_close(fixed(x), model(x), rtol=1e-4, atol=1e-5)


def test_evaluation_is_cropped_as_microsoft_s_was():
    assert timm.get_pretrained_cfg("vil_small").crop_pct == 0.875
    assert timm.get_pretrained_cfg("vil_medium_384").crop_pct == 0.922
