"""timm's contract as far as numbers go: one small model of each family, on real tensors."""

import copy

import pytest
import timm
import torch
from families import SMALL
from timm.models import save_for_hf
from timm.models._features import FeatureGetterNet
from tolerances import TOLERANCE

from vit_ls.blocks import Block

pytestmark = pytest.mark.parametrize("name", SMALL)

IMAGE = 45


def create(name, **kwargs):
    return timm.create_model(name, **kwargs).eval()


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float32])


def gradients(model):
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_every_parameter_gets_a_gradient(name, drop):
    model = create(name, num_classes=42, drop_rate=drop, drop_path_rate=drop).train()
    model(torch.randn(4, 3, 64, 64)).mean().backward()
    assert gradients(model).keys() == {n for n, _ in model.named_parameters()}


def test_forward_is_the_head_of_the_features(name):
    model, x = create(name), torch.randn(2, 3, IMAGE, IMAGE)
    assert torch.equal(model.forward_head(model.forward_features(x)), model(x))


@pytest.mark.parametrize("norm", [False, True])
def test_intermediates_are_the_maps_of_the_stages(name, norm):
    model, x = create(name), torch.randn(2, 3, IMAGE, IMAGE)
    final, maps = model.forward_intermediates(x, norm=norm)
    assert torch.equal(final, model.forward_features(x))
    assert [m.shape[1] for m in maps] == [info["num_chs"] for info in model.feature_info]
    expected = []
    for info in model.feature_info:
        place = model.get_submodule(info["module"])
        place.register_forward_hook(lambda _m, _i, output: expected.append(output[0]))
    model(x)
    if norm:
        expected[-1] = model.norm(expected[-1])
    for actual, grid in zip(maps, expected, strict=True):
        assert torch.equal(actual, grid.permute(0, 3, 1, 2))


@pytest.mark.parametrize("indices", [1, 2, [0], [0, 2], [-1], [-2, 0]], ids=str)
def test_indices_choose_the_intermediates(name, indices):
    model, x = create(name), torch.randn(1, 3, IMAGE, IMAGE)
    every = model.forward_intermediates(x, intermediates_only=True)
    n = len(every)
    wanted = range(n)[-indices:] if isinstance(indices, int) else sorted(i % n for i in indices)
    chosen = model.forward_intermediates(x, indices=indices, intermediates_only=True)
    for actual, i in zip(chosen, wanted, strict=True):
        assert torch.equal(actual, every[i])


def test_stopping_early_changes_no_map_and_applies_no_norm(name):
    model, x = create(name), torch.randn(1, 3, IMAGE, IMAGE)
    every = model.forward_intermediates(x, intermediates_only=True)
    final, chosen = model.forward_intermediates(x, indices=[0], stop_early=True, norm=True)
    assert torch.equal(chosen[0], every[0])
    assert torch.equal(final, every[0])


def test_another_output_format_is_an_error(name):
    with pytest.raises(AssertionError, match="'NHWC'"):
        create(name).forward_intermediates(torch.randn(1, 3, 32, 32), output_fmt="NHWC")


def test_pruning_changes_no_map_and_leaves_no_parameter_unused(name):
    model, x = create(name), torch.randn(2, 3, IMAGE, IMAGE)
    maps = model.forward_intermediates(x, intermediates_only=True)
    for i, expected in enumerate(maps):
        pruned = copy.deepcopy(model)
        assert pruned.prune_intermediate_layers([i], prune_norm=True) == [i]
        blocks = [n for n, m in pruned.named_modules() if isinstance(m, Block)]
        assert blocks[-1].startswith(model.feature_info[i]["module"])
        assert pruned.num_features == pruned.head_hidden_size == expected.shape[1]
        (actual,) = pruned.forward_intermediates(x, indices=[i], intermediates_only=True)
        assert torch.equal(actual, expected)
        if i < len(maps) - 1:
            assert torch.equal(pruned.forward_features(x), expected)
        pruned.train().forward_features(x).sum().backward()
        assert gradients(pruned).keys() == {n for n, _ in pruned.named_parameters()}
        pruned.reset_classifier(7, "avg")
        assert pruned(x).shape == (2, 7)


def test_pruning_at_the_last_stage_can_keep_the_head(name):
    model, x = create(name), torch.randn(1, 3, IMAGE, IMAGE)
    expected = model(x)
    model.prune_intermediate_layers([-1], prune_head=False)
    assert torch.equal(model(x), expected)


def test_features_only_gives_the_intermediates(name):
    torch.manual_seed(1)
    model = create(name)
    torch.manual_seed(1)
    features = create(name, features_only=True, out_indices=(0, 2))
    assert isinstance(features, FeatureGetterNet)
    x = torch.randn(1, 3, IMAGE, IMAGE)
    expected = model.forward_intermediates(x, indices=[0, 2], intermediates_only=True)
    for actual, e in zip(features(x), expected, strict=True):
        assert torch.equal(actual, e)


@pytest.mark.parametrize("features_only", [False, True])
def test_checkpointing_changes_neither_outputs_nor_gradients(name, features_only):
    x = torch.randn(2, 3, IMAGE, IMAGE)
    results = []
    for checkpointing in (False, True):
        torch.manual_seed(1)
        model = create(name, features_only=features_only).train()
        (model.model if features_only else model).set_grad_checkpointing(checkpointing)
        outputs = model(x) if features_only else [model(x)]
        sum(y.square().mean() for y in outputs).backward()
        results.append((outputs, gradients(model)))
    torch.testing.assert_close(results[1], results[0])


def test_another_dtype_after_a_forward_leaves_nothing_behind(name):
    model, x = create(name), torch.randn(1, 3, 32, 32)
    model(x)
    assert model.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16
    assert model.to(torch.float64)(x.double()).dtype == torch.float64


def test_weights_are_initialised_anew_after_the_meta_device(name):
    model = create(name, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.fill_(float("nan") if tensor.is_floating_point() else -1)
    model.init_weights()
    fresh = create(name)
    for (key, tensor), expected in zip(model.named_parameters(), fresh.parameters(), strict=True):
        assert tensor.isfinite().all(), key
        if tensor.numel() >= 64:
            size, expected_size = tensor.abs().mean().item(), expected.abs().mean().item()
            assert size == pytest.approx(expected_size, rel=0.5), key
    for tensor, expected in zip(model.buffers(), fresh.buffers(), strict=True):
        assert torch.equal(tensor, expected)
    assert model(torch.randn(1, 3, 32, 32)).isfinite().all()


def test_initialisation_can_be_skipped_and_has_one_mode(name):
    skipped = create(name, weight_init="skip")
    assert skipped.head.fc.bias.abs().sum() > 0
    assert create(name).head.fc.bias.abs().sum() == 0
    with pytest.raises(ValueError, match="must be '', got 'jax'"):
        skipped.init_weights("jax")


def test_an_image_does_not_depend_on_its_batch(name):
    model, x = create(name), torch.randn(3, 3, IMAGE, 64)
    assert_close(torch.cat([model(image[None]) for image in x]), model(x))


def test_a_checkpoint_of_the_model_itself_loads_as_it_is(name, tmp_path):
    model, path = create(name), tmp_path / "model.pth"
    torch.save(model.state_dict(), path)
    loaded = create(name, pretrained=True, pretrained_cfg_overlay={"file": str(path)})
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(loaded(x), model(x))


def test_a_checkpoint_loads_into_other_channels_and_classes(name, tmp_path):
    model, path = create(name), tmp_path / "model.pth"
    torch.save(model.state_dict(), path)
    overlay = {"file": str(path)}
    grey = create(name, pretrained=True, pretrained_cfg_overlay=overlay, in_chans=1, num_classes=5)
    assert grey(torch.randn(1, 1, 32, 32)).shape == (1, 5)
    key = "stages.0.embed.proj.weight"
    assert_close(grey.state_dict()[key], model.state_dict()[key].sum(1, keepdim=True))


def test_a_folder_that_timm_saved_makes_the_same_model_again(name, tmp_path):
    model, x = create(name, num_classes=7), torch.randn(1, 3, 32, 32)
    save_for_hf(model, tmp_path)
    loaded = create(f"local-dir:{tmp_path}", pretrained=True)
    assert loaded.global_pool == model.global_pool
    assert torch.equal(loaded(x), model(x))


def test_resetting_the_pooling_and_back_changes_no_feature(name):
    model, x = create(name, num_classes=0), torch.randn(1, 3, IMAGE, IMAGE)
    pool, expected = model.global_pool, model(x)
    model.reset_classifier(0, "max")
    assert not torch.equal(model(x), expected)
    model.reset_classifier(0, pool)
    assert torch.equal(model(x), expected)
