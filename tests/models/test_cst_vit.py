import logging
import re
from math import ceil

import pytest
import timm
import torch
from fvcore.nn import FlopCountAnalysis
from timm.layers import set_fused_attn
from timm.models import get_notrace_functions, get_notrace_modules
from tolerances import TOLERANCE
from torchvision.models.feature_extraction import create_feature_extractor

from vit_ls.attention import CompositeSliceAttention
from vit_ls.attention.composite_slice import SliceGeometry
from vit_ls.count import count_params
from vit_ls.models.convert import checkpoint_filter_fn
from vit_ls.models.cst_vit import VARIANTS

PLAIN = [name for name in VARIANTS if name.startswith("cst_vit")]
SMALL = "cst_vit_small_patch16_224"
ABLATIONS = [
    {"composition": "parallel", "alpha": 2, "slice_size": (1, 5)},
    {"composition": "slices_first", "aggregation": "max"},
    {"local_mixer": "mlp", "aggregation": "linear", "mixer_hidden": 32},
    {"pos_embed": "absolute", "shared_qkv": False},
]


def on_meta(name, **kwargs):
    return timm.create_model(name, device="meta", **kwargs)


def of_type(model, kind):
    return [module for module in model.modules() if isinstance(module, kind)]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_model_is_registered_with_its_own_size(name):
    assert timm.is_model(name)
    cfg = timm.get_pretrained_cfg(name)
    size = re.search(r"_(\d{3})$", name)
    expected = int(size[1]) if size else 32 if name.startswith("test") else 224
    assert cfg.input_size == (3, expected, expected)
    assert cfg.crop_pct == 0.9


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_models_have_deit_s_parameters_but_for_the_positions(name):
    patch, size = (int(n) for n in re.search(r"_patch(\d+)_(\d+)$", name).groups())
    deit = name.replace("cst_vit", "vit").rsplit("_", 1)[0] + "_224"
    vit = timm.create_model(deit, device="meta", num_classes=1000)
    D, grid = vit.embed_dim, size // patch
    spec = VARIANTS[name]
    L = spec.stages[0].attention.slice_size ** 2
    positions = (L + grid**2 // L) * D
    without = count_params(vit) - vit.pos_embed.numel() - vit.cls_token.numel()
    assert count_params(on_meta(name)) == without + positions


@pytest.mark.parametrize("name", VARIANTS)
def test_the_position_embeddings_exist_once_per_grid(name):
    model = on_meta(name)
    geometries = of_type(model, SliceGeometry)
    assert len(geometries) == (2 if "vil" in name else 1)
    assert all(g.local_pos is not None and g.slice_pos is not None for g in geometries)
    positions = {n for n, _ in model.named_parameters() if n.endswith("_pos")}
    assert len(positions) == 2 * len(geometries)
    assert positions <= model.no_weight_decay()


@pytest.mark.parametrize("name", ["test_cst_vit", "test_cst_vil"])
def test_the_test_models_have_less_than_a_million_parameters(name):
    assert count_params(on_meta(name)) < 1e6


@pytest.mark.parametrize("name", PLAIN)
def test_every_block_is_a_feature_map_and_four_are_the_default(name):
    model = on_meta(name)
    assert len(model.feature_info) == 12
    features = on_meta(name, features_only=True)
    assert [info["module"] for info in features.feature_info.get_dicts()] == [
        f"stages.0.blocks.{i}" for i in (2, 5, 8, 11)
    ]


def test_the_default_maps_give_way_to_out_indices():
    features = timm.create_model("test_cst_vit", features_only=True, out_indices=(0, 4))
    maps = features(torch.randn(1, 3, 37, 30))
    assert [m.shape for m in maps] == [(1, 96, 10, 8)] * 2


def test_the_pyramid_has_the_reductions_of_dense_prediction():
    features = timm.create_model("test_cst_vil", features_only=True)
    assert features.feature_info.reduction() == [4, 8, 16, 32]
    maps = features(torch.randn(1, 3, 75, 130))
    assert [m.shape[2:] for m in maps] == [(ceil(75 / r), ceil(130 / r)) for r in (4, 8, 16, 32)]


@pytest.mark.parametrize("name", ["test_cst_vit", "test_cst_vil"])
@pytest.mark.parametrize("options", ABLATIONS, ids=str)
def test_ablations_are_arguments_of_the_model(name, options):
    model = timm.create_model(name, **options)
    stages = 2 if "vil" in name else 6
    layers = of_type(model, CompositeSliceAttention)
    assert len(layers) == stages
    for layer in layers:
        assert layer.composition == options.get("composition", "local_first")
        assert layer.aggregation == options.get("aggregation", "mean")
        assert (layer.aggregate is not None) == (layer.aggregation == "linear")
        assert (layer.mixer is not None) == (options.get("local_mixer") == "mlp")
        assert (layer.slice_qkv is not None) == (not options.get("shared_qkv", True))
        assert layer.slice_size == options.get("slice_size", layer.slice_size)
        assert layer.halo == ((0, 2) if "alpha" in options else (0, 0))
    absolute = options.get("pos_embed") == "absolute"
    names = [n for n, _ in model.named_parameters() if n.endswith(("_pos", "pos_embed"))]
    assert ("stages.0.embed.pos_embed" in names) == absolute
    assert all(n.endswith("_pos") != absolute for n in names)
    assert set(names) <= model.no_weight_decay()


@pytest.mark.parametrize("name", ["test_cst_vit", "test_cst_vil"])
@pytest.mark.parametrize("options", [{}, *ABLATIONS], ids=str)
def test_any_size_runs_and_every_parameter_learns(name, options):
    model = timm.create_model(name, num_classes=7, **options)
    for size in ((32, 32), (37, 50), (5, 90)):
        model.zero_grad()
        y = model(torch.randn(2, 3, *size))
        assert y.shape == (2, 7)
        y.square().sum().backward()
        for key, p in model.named_parameters():
            assert p.grad is not None, key
            assert torch.isfinite(p.grad).all(), key


@pytest.mark.parametrize("options", ABLATIONS, ids=str)
@torch.no_grad()
def test_fx_extracts_features_of_ablations(options):
    model = timm.create_model("test_cst_vit", **options).eval()
    traced = create_feature_extractor(
        model,
        return_nodes=["head.fc"],
        tracer_kwargs={
            "leaf_modules": get_notrace_modules(),
            "autowrap_functions": get_notrace_functions(),
            "param_shapes_constant": True,
        },
    )
    x = torch.randn(2, 3, 37, 50)
    torch.testing.assert_close(traced(x)["head.fc"], model(x), **TOLERANCE[torch.float32])


@pytest.mark.parametrize(
    ("size", "slice_size", "alpha"), [(32, 4, 1), (64, (4, 8), 1), (64, (1, 16), 1), (48, 6, 3)]
)
def test_attention_costs_n_l_plus_n_squared_over_l_squared(size, slice_size, alpha):
    """2 D (N L + N^2 / L^2) multiply-adds in each block, linear layers apart.

    An extended slice has K keys for L queries, which takes N K in the place of N L; explicit
    products pay for the keys outside the grid too.
    """
    a, b = (slice_size, slice_size) if isinstance(slice_size, int) else slice_size
    model = timm.create_model("test_cst_vit", img_size=size, slice_size=slice_size, alpha=alpha)
    set_fused_attn(False)
    try:
        analysis = FlopCountAnalysis(model.eval(), torch.zeros(1, 3, size, size))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        products = analysis.by_operator()["matmul"]
    finally:
        set_fused_attn(True)
    N, L, K, D = (size // 4) ** 2, a * b, a * b * alpha**2, 96
    assert N % L == 0
    assert products == 6 * 2 * D * (N * K + N**2 // L**2)


@pytest.fixture
def deit():
    torch.manual_seed(1)
    return timm.create_model("deit_small_patch16_224")


TAKEN = (
    ("patch_embed.", "stages.0.embed."),
    ("blocks.", "stages.0.blocks."),
    ("norm.", "norm."),
    ("head.", "head.fc."),
)


def test_the_weights_of_a_plain_vit_load_but_for_its_positions_and_class_token(
    deit, tmp_path, caplog
):
    path = tmp_path / "deit.pth"
    torch.save({"model": deit.state_dict()}, path)
    before = timm.create_model(SMALL)
    positions = {k: v for k, v in before.state_dict().items() if ".geometry." in k}
    with caplog.at_level(logging.WARNING, "vit_ls"):
        model = timm.create_model(
            SMALL, pretrained=True, pretrained_cfg_overlay={"file": str(path)}
        )
    assert caplog.messages == [
        f"The checkpoint is a plain ViT. For {SMALL}: 150 tensors taken over; "
        "2 anew (geometry.local_pos, geometry.slice_pos); 2 left out (cls_token, pos_embed)."
    ]
    own = model.state_dict()
    left = set(own) - set(positions)
    for key, value in deit.state_dict().items():
        if key in ("cls_token", "pos_embed"):
            continue
        prefix, new = next(pair for pair in TAKEN if key.startswith(pair[0]))
        assert torch.equal(own[new + key.removeprefix(prefix)], value)
        left.remove(new + key.removeprefix(prefix))
    assert not left
    assert all(own[key].std() > 0 for key in positions)


def test_what_an_ablation_adds_to_a_plain_vit_stays_as_initialised():
    deit = timm.create_model("deit_tiny_patch16_224")
    model = timm.create_model("cst_vit_tiny_patch16_224", aggregation="linear", shared_qkv=False)
    own = model.state_dict()
    converted = checkpoint_filter_fn(deit.state_dict(), model)
    assert set(converted) == set(own)
    added = [key for key in own if "slice_qkv" in key or "aggregate" in key]
    assert len(added) == 12 * 3
    assert all(torch.equal(converted[key], own[key]) for key in added)


@pytest.mark.parametrize(
    ("checkpoint", "name", "what"),
    [
        ("deit_tiny_patch16_224", SMALL, r"of another shape \(stages"),
        ("deit_small_patch16_224", "cst_vil_small", r"\d+ missing \(stages"),
        ("vit_relpos_small_patch16_224", SMALL, r"\d+ unexpected \(stages"),
    ],
)
def test_a_plain_vit_that_does_not_fit_is_one_error(checkpoint, name, what):
    state_dict = timm.create_model(checkpoint, device="meta").state_dict()
    with pytest.raises(ValueError, match=rf"^The checkpoint must fit {name}, got .*{what}"):
        checkpoint_filter_fn(state_dict, on_meta(name))


def test_weights_move_to_another_size_with_their_positions_resized():
    source = timm.create_model("cst_vit_tiny_patch16_224")
    target = timm.create_model("cst_vit_tiny_patch16_384")
    state_dict = checkpoint_filter_fn(source.state_dict(), target)
    target.load_state_dict(state_dict)
    local = state_dict["stages.0.geometry.local_pos"]
    assert (local.shape, state_dict["stages.0.geometry.slice_pos"].shape) == (
        (6, 6, 192),
        (4, 4, 192),
    )
    before = source.stages[0].geometry.local_pos
    assert torch.corrcoef(torch.stack((local.mean((0, 1)), before.mean((0, 1)))))[0, 1] > 0.8


def test_an_absolute_embedding_is_resized_with_the_grid():
    source = timm.create_model("test_cst_vit", pos_embed="absolute")
    target = timm.create_model("test_cst_vit", pos_embed="absolute", img_size=64)
    target.load_state_dict(checkpoint_filter_fn(source.state_dict(), target))
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(source.eval()(x), target.eval()(x))


def test_the_absolute_embedding_enters_once_at_the_bottom():
    model = timm.create_model("test_cst_vit", pos_embed="absolute").eval()
    x = torch.randn(1, 3, 32, 32)
    embed = model.stages[0].embed
    with torch.no_grad():
        tokens = embed(x.permute(0, 2, 3, 1))
        positions = embed.pos_embed.clone()
        embed.pos_embed.zero_()
        torch.testing.assert_close(tokens, embed(x.permute(0, 2, 3, 1)) + positions)


def test_options_can_differ_by_stage():
    model = timm.create_model("test_cst_vil", slice_size=((2, 2), (1, 4)), alpha=(1, 2))
    layers = of_type(model, CompositeSliceAttention)
    assert [layer.slice_size for layer in layers] == [(2, 2), (1, 4)]
    assert [layer.halo for layer in layers] == [(0, 0), (0, 2)]
    same = timm.create_model("test_cst_vil", slice_size=[1, 4], composition="parallel")
    assert {layer.slice_size for layer in of_type(same, CompositeSliceAttention)} == {(1, 4)}
    with pytest.raises(ValueError, match=r"^alpha must be one value or one for each of 2 stages"):
        timm.create_model("test_cst_vil", alpha=(1, 2, 3))


def test_an_unknown_argument_is_a_type_error():
    with pytest.raises(TypeError, match="slices"):
        timm.create_model("test_cst_vit", slices=4)
