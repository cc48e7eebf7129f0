import pytest
import timm
import torch
import vil_ls_reference as reference
from torch.profiler import ProfilerActivity, profile

from vit_ls.attention import LongShort
from vit_ls.count import count_flops, count_params
from vit_ls.models.names import convert_released
from vit_ls.models.vil_ls import VARIANTS
from vit_ls.ops import use_implementation

# parameters and fvcore FLOPs of the released code
REFERENCE = {
    "vil_ls_medium": (39_799_423, 8.7216e9),
    "vil_ls_base": (55_834_363, 13.3949e9),
    "vil_ls_medium_384": (39_947_653, 28.7428e9),
}


@pytest.fixture(scope="module", params=["even", "odd"])
def golden(request):
    return reference.load(request.param)


def test_logits_and_features_equal_the_reference(golden):
    tensors, model = golden
    with torch.no_grad():
        logits = model(tensors["input"])
        maps = model.forward_intermediates(tensors["input"], intermediates_only=True)
    torch.testing.assert_close(logits, tensors["logits"], rtol=0, atol=1e-5)
    assert len(maps) == 4
    for i, feature_map in enumerate(maps, 1):
        torch.testing.assert_close(feature_map, tensors[f"features.stage{i}"], rtol=0, atol=1e-5)


def test_gradients_equal_the_reference(golden):
    tensors, model = golden
    image = tensors["input"].clone().requires_grad_()
    (model(image) * tensors["cotangent"]).sum().backward()
    named = {k.removeprefix("grads."): v for k, v in tensors.items() if k.startswith("grads.")}
    assert len(named) == 3
    actual = {"input": image.grad}
    expected = {"input": tensors["input_grad"]} | convert_released(named)
    actual |= {k: model.get_parameter(k).grad for k in expected if k != "input"}
    for name, value in expected.items():
        error = (actual[name] - value).norm() / value.norm()
        assert error < 1e-4, f"{name}: {error:.1e}"


@pytest.mark.parametrize("name", REFERENCE)
def test_parameters_equal_the_reference(name):
    assert count_params(timm.create_model(name, device="meta")) == REFERENCE[name][0]


def global_update_of_last_blocks(spec):
    """Multiply-adds of the global tokens in the last block of each stage that drops them.

    Nothing depends on them, so a trace leaves them out; the reference's count has them.
    """
    total, side = 0, spec.img_size
    for stage in spec.stages:
        side //= stage.embed.stride
        C, G, N = stage.dim, stage.num_global, side**2
        total += 8 * C * C * G + 5 * C * G
        if isinstance(stage.attention, LongShort):
            total += C * C * G + 2 * (N + G) * C * G
    return total


def global_scores(spec):
    """Multiply-adds of the global queries' scores, which the reference's count misses."""
    total, side = 0, spec.img_size
    for stage in spec.stages:
        side //= stage.embed.stride
        if isinstance(stage.attention, LongShort):
            total += stage.depth * stage.num_global * (side**2 + stage.num_global) * stage.dim
    return total


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.endswith("384") else [])
        for name in REFERENCE
    ],
)
def test_flops_equal_the_reference(name):
    """To five digits, once the two products are settled that one count has and the other not."""
    spec = VARIANTS[name]
    flops = count_flops(timm.create_model(name).eval(), (spec.img_size, spec.img_size))
    settled = flops + global_update_of_last_blocks(spec) - global_scores(spec)
    assert f"{settled / 1e9:.4f}" == f"{REFERENCE[name][1] / 1e9:.4f}"
    assert abs(flops / REFERENCE[name][1] - 1) < 2e-4


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_registered_with_its_table_s_dims(name):
    model = timm.create_model(name, device="meta")
    assert [info["num_chs"] for info in model.feature_info] == [
        s.dim for s in VARIANTS[name].stages
    ]
    assert [info["reduction"] for info in model.feature_info] == [4, 8, 16, 32]


def test_the_test_model_is_small():
    assert count_params(timm.create_model("test_vil_ls", device="meta")) < 1_000_000


def test_rank_zero_has_windows_and_global_tokens_alone():
    model = timm.create_model("test_vil_ls", rank=0, dual_ln=False)
    names = [name for name, _ in model.named_parameters()]
    assert not [n for n in names if "dynamic_projection" in n or "norm_kv" in n]
    assert model(torch.randn(1, 3, 32, 32)).isfinite().all()


def test_window_and_rank_are_set_for_all_stages_or_for_each():
    model = timm.create_model("test_vil_ls", window=(5, 3), rank=6)
    attentions = [model.stages[i].blocks[0].attn for i in (0, 1)]
    assert [a.window for a in attentions] == [(5, 5), (3, 3)]
    assert [a.dynamic_projection.out_features // a.num_heads for a in attentions] == [6, 6]


def test_a_number_of_windows_that_is_not_that_of_the_stages_is_an_error():
    with pytest.raises(ValueError, match=r"one for each of 2 stages, got window=\(7, 7, 7\)"):
        timm.create_model("test_vil_ls", window=(7, 7, 7))


def test_long_short_attention_in_all_stages_costs_no_more_per_pixel_in_a_larger_image():
    def flops(side, **options):
        model = timm.create_model("test_vil_ls", img_size=side, **options).eval()
        return count_flops(model, (side, side)) / side**2

    linear = [flops(side, attention="long_short") for side in (128, 256)]
    assert linear[1] == pytest.approx(linear[0], rel=0.02)
    assert flops(256) > 1.05 * flops(128)
    with pytest.raises(ValueError, match="attention must be 'long_short' where it is given"):
        timm.create_model("test_vil_ls", attention="full")


def test_long_short_attention_in_all_stages_trains_at_any_size():
    model = timm.create_model("test_vil_ls", attention="long_short")
    model(torch.randn(2, 3, 75, 49)).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_unknown_arguments_are_errors():
    with pytest.raises(TypeError, match="windows"):
        timm.create_model("test_vil_ls", windows=7)


@pytest.mark.parametrize(("windows", "fused"), [("tiled", 12 + 3), ("auto", 9 + 3)])
def test_inference_takes_the_fused_kernel_but_for_windows_on_a_cpu(windows, fused):
    model = timm.create_model("vil_ls_tiny").eval()
    with (
        torch.inference_mode(),
        use_implementation(windows=windows),
        profile(activities=[ProfilerActivity.CPU]) as profiler,
    ):
        model(torch.randn(1, 3, 224, 224))
    calls = {event.key: event.count for event in profiler.key_averages()}
    # one a block, and one for the global tokens of each long-short block (3 of 12)
    assert calls["aten::_scaled_dot_product_flash_attention_for_cpu"] == fused


def test_all_weights_are_drawn_as_the_reference_draws_them():
    model = timm.create_model("vil_ls_tiny")
    for name, p in model.named_parameters():
        if name.endswith("bias") and "global" not in name and "proj.bias" not in name:
            assert (p == 0).all(), name
        if name.endswith(("fc1.weight", "qkv.weight", "position_bias.table", "global_tokens")):
            assert abs(p.std().item() - 0.02) < 0.006, name
