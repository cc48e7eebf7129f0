"""timm's contract as far as shapes, names and devices go, on the meta device."""

import pytest
import timm
import torch
from families import MODELS, SMALL, map_side
from timm.models import FeatureInfo, get_pretrained_cfg
from timm.models._manipulate import group_parameters

every_model = pytest.mark.parametrize("name", MODELS)
small_ones_first = pytest.mark.parametrize(
    "name", [n if n in SMALL else pytest.param(n, marks=pytest.mark.landing) for n in MODELS]
)
one_of_each_family = pytest.mark.parametrize("name", SMALL)

IMAGE = 96


def create(name, **kwargs):
    return timm.create_model(name, device="meta", **kwargs).eval()


def images(model, size=None):
    channels, *default = model.default_cfg["input_size"]
    return torch.empty(2, channels, *(size or default), device="meta")


def tensors(model):
    """Parameters and buffers, the non-persistent ones too."""
    return [*model.parameters(), *model.buffers()]


@every_model
def test_the_pretrained_config_is_complete_and_names_layers_that_exist(name):
    cfg = get_pretrained_cfg(name)
    state = create(name).state_dict()
    assert cfg.architecture == name
    assert cfg.num_classes == 1000
    assert cfg.input_size[0] == 3
    assert len(cfg.mean) == len(cfg.std) == 3
    assert cfg.interpolation == "bicubic"
    assert 0 < cfg.crop_pct <= 1
    assert f"{cfg.first_conv}.weight" in state
    assert f"{cfg.classifier}.weight" in state


@small_ones_first
def test_nothing_is_allocated_on_the_meta_device_whichever_way_it_is_asked_for(name):
    with torch.device("meta"):
        inside = timm.create_model(name)
    assert {t.device.type for t in tensors(inside) + tensors(create(name))} == {"meta"}


@one_of_each_family
def test_the_dtype_argument_reaches_every_parameter(name):
    parameters = create(name, dtype=torch.float64).parameters()
    assert {p.dtype for p in parameters} == {torch.float64}


@one_of_each_family
def test_an_unknown_argument_is_an_error(name):
    with pytest.raises(TypeError, match="drop_pth_rate"):
        create(name, drop_pth_rate=0.1)


@one_of_each_family
def test_an_unknown_pooling_is_an_error_at_creation_and_on_reset(name):
    with pytest.raises(AssertionError):
        create(name, global_pool="nonsense")
    with pytest.raises(AssertionError):
        create(name).reset_classifier(7, "nonsense")


@small_ones_first
def test_features_have_the_shape_that_the_config_says(name):
    model = create(name)
    features = model.forward_features(images(model))
    assert model.output_fmt == "NCHW"
    assert features.shape == (2, model.num_features, *model.default_cfg["pool_size"])
    assert model.forward_head(features, pre_logits=True).shape == (2, model.head_hidden_size)
    assert model.forward_head(features).shape == (2, 1000)


@one_of_each_family
@pytest.mark.parametrize("pool", ["avg", "max", "avgmax", "catavgmax"])
def test_every_pooling_of_timm_gives_a_vector(name, pool):
    model = create(name, global_pool=pool, num_classes=7)
    assert model(images(model)).shape == (2, 7)
    model.reset_classifier(0)
    assert model(images(model)).shape == (2, model.head_hidden_size)
    assert model.head_hidden_size == model.num_features * (2 if pool == "catavgmax" else 1)


@one_of_each_family
def test_a_model_without_classifier_gives_what_its_head_would_have_read(name):
    model = create(name, num_classes=0)
    assert model(images(model)).shape == (2, model.head_hidden_size)
    assert isinstance(model.get_classifier(), torch.nn.Identity)


@one_of_each_family
def test_a_model_without_pooling_gives_a_map(name):
    shape = (2, create(name).num_features, *get_pretrained_cfg(name).pool_size)
    created = create(name, num_classes=0, global_pool="")
    reset = create(name)
    reset.reset_classifier(0, "")
    for model in (created, reset):
        assert model(images(model)).shape == shape


@one_of_each_family
def test_a_new_classifier_keeps_the_pooling_and_takes_dtype_device_and_mode(name):
    model = create(name, dtype=torch.float64).train()
    pool = model.global_pool
    model.reset_classifier(7)
    assert model.global_pool == pool
    assert model.num_classes == 7
    classifier = model.get_classifier()
    assert (classifier.weight.dtype, classifier.weight.device.type) == (torch.float64, "meta")
    assert classifier.out_features == 7
    assert all(module.training for module in model.modules())


@one_of_each_family
def test_taking_the_classifier_off_leaves_frozen_parameters_frozen(name):
    model = create(name).requires_grad_(False)
    model.reset_classifier(0)
    model.reset_classifier(0, "")
    assert not any(p.requires_grad for p in model.parameters())


@one_of_each_family
@pytest.mark.parametrize("in_chans", [1, 5])
def test_images_of_any_number_of_channels(name, in_chans):
    model = create(name, in_chans=in_chans)
    assert model.in_chans == in_chans
    assert model(torch.empty(1, in_chans, IMAGE, IMAGE, device="meta")).shape == (1, 1000)


@one_of_each_family
def test_feature_info_names_submodules_with_their_channels_and_reduction(name):
    model = create(name)
    assert len(model.feature_info) >= 3
    assert model.feature_info[-1]["num_chs"] == model.num_features
    for info in model.feature_info:
        model.get_submodule(info["module"])
    reductions = [info["reduction"] for info in model.feature_info]
    assert reductions == sorted(reductions)


@one_of_each_family
@pytest.mark.parametrize("size", [(96, 96), (83, 130), (17, 33)], ids=str)
def test_feature_maps_have_the_size_that_the_stride_says_rounded_up(name, size):
    model = create(name, features_only=True)
    maps = model(images(model, size))
    info = model.feature_info
    assert [m.shape[1] for m in maps] == info.channels()
    assert [m.shape[2:] for m in maps] == [
        tuple(map_side(name, side, r) for side in size) for r in info.reduction()
    ]


@one_of_each_family
@pytest.mark.parametrize("indices", [(0,), (1, 2), (-1,), (0, -2)], ids=str)
def test_out_indices_choose_the_maps(name, indices):
    every = create(name, features_only=True).feature_info
    model = create(name, features_only=True, out_indices=indices)
    chosen = sorted(i % len(every.channels()) for i in indices)
    maps = model(images(model, (IMAGE, IMAGE)))
    assert [m.shape[1] for m in maps] == [every.channels()[i] for i in chosen]
    assert model.feature_info.reduction() == [every.reduction()[i] for i in chosen]


@one_of_each_family
def test_feature_info_gives_the_dicts_that_clients_read(name):
    info = FeatureInfo(create(name).feature_info, out_indices=(0, 1))
    assert [set(d) >= {"num_chs", "reduction", "module", "index"} for d in info.get_dicts()]
    assert info.channels() == [d["num_chs"] for d in info.get_dicts()]


@pytest.mark.parametrize(
    ("name", "coarse"), [*((name, False) for name in MODELS), *((name, True) for name in SMALL)]
)
def test_groups_run_from_the_stem_over_the_blocks_to_the_head(name, coarse):
    model = create(name)
    groups = group_parameters(model, model.group_matcher(coarse=coarse), reverse=True)
    assert set(groups) == {n for n, _ in model.named_parameters()}
    depth = len(model.stages) if coarse else sum(len(stage.blocks) for stage in model.stages)
    assert len(set(groups.values())) >= depth
    assert groups["stages.0.embed.proj.weight"] == min(groups.values()) == 0
    assert groups["head.fc.weight"] == max(groups.values())
    blocks = {i for n, i in groups.items() if ".blocks." in n}
    assert max(blocks) <= groups["norm.weight"] < groups["head.fc.weight"]
    by_block = [
        groups[f"stages.{i}.blocks.{j}.norm1.weight"]
        for i, stage in enumerate(model.stages)
        for j in range(len(stage.blocks))
    ]
    assert by_block == sorted(by_block)


@every_model
def test_weight_decay_spares_tokens_and_position_parameters_and_no_weight(name):
    model = create(name)
    spared = model.no_weight_decay()
    assert spared <= {n for n, _ in model.named_parameters()}
    unlike_weights = {
        n
        for n, _ in model.named_parameters()
        if n.rpartition(".")[2] not in ("weight", "bias", "weights")
    }
    assert spared == unlike_weights


@one_of_each_family
def test_a_non_square_size_fixed_at_creation_runs(name):
    model = create(name, img_size=(64, 160))
    assert model(images(model, (64, 160))).shape == (2, 1000)
