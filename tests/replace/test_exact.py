"""A window over the whole grid and rank 0 is the original, in all that timm gives of it."""

import copy

import pytest
import timm
import torch
from replace.originals import ORIGINALS, images, make
from timm.models._features import FeatureGetterNet

from vit_ls import CompositeSlice, LongShort, replace_attention, replaceable
from vit_ls.replace import new_parameters

EXACT = {torch.float64: 1e-12, torch.float32: 1e-5}


def whole(model):
    """Windows over the whole grid of a model's own size."""
    return LongShort(max(model.patch_embed.grid_size), 0)


def both(key, dtype=torch.float64, **more):
    original = make(key, dtype, **more)
    return original, replace_attention(copy.deepcopy(original), whole(original))


def assert_close(actual, expected, dtype=torch.float64):
    limit = EXACT[dtype] * max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(actual, expected, rtol=0, atol=limit)


def gradients(model, x):
    model.zero_grad()
    model(x).square().sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("key", ORIGINALS)
def test_a_window_over_the_whole_grid_is_the_original(key, dtype):
    original, replaced = both(key, dtype)
    x = images(original)
    assert_close(replaced(x), original(x), dtype)
    expected = gradients(original, x)
    found = gradients(replaced, x)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_close(gradient, expected[name], dtype)


@pytest.mark.parametrize("key", ORIGINALS)
def test_state_dicts_are_interchangeable_with_timms(key):
    original = make(key)
    replaced = replace_attention(make(key), LongShort(2, 0))
    assert list(replaced.state_dict()) == list(original.state_dict())
    assert new_parameters(replaced) == []
    other = copy.deepcopy(original).apply(_drawn_anew)
    replaced.load_state_dict(other.state_dict())
    back = make(key)
    back.load_state_dict(replaced.state_dict())
    x = images(original)
    assert torch.equal(back(x), other(x))
    assert not torch.equal(replaced(x), original(x))


def _drawn_anew(module):
    for parameter in module.parameters(recurse=False):
        torch.nn.init.normal_(parameter, std=0.1)


@pytest.mark.parametrize("key", ["vit", "registers", "eva02", "dinov3", "mixed"])
@pytest.mark.parametrize("times", [(1, 1), (1, 3), (2, 1)], ids=str)
def test_images_of_any_size_are_the_originals(key, times):
    original = make(key, dynamic_img_size=True)
    replaced = replace_attention(copy.deepcopy(original), LongShort(20, 0))
    patch = original.patch_embed.patch_size[0]
    for size in ((3 * patch * times[0], 5 * patch * times[1]), (4 * patch, 4 * patch)):
        x = images(original, size=size)
        assert_close(replaced(x), original(x))


@pytest.mark.parametrize("key", ["vit", "dinov3"])
def test_features_and_intermediates_are_the_originals(key):
    original, replaced = both(key)
    x = images(original)
    final, maps = original.forward_intermediates(x, norm=True)
    found, found_maps = replaced.forward_intermediates(x, norm=True)
    assert_close(found, final)
    for actual, expected in zip(found_maps, maps, strict=True):
        assert_close(actual, expected)


def test_a_model_of_features_alone_is_taken_too():
    name, options = ORIGINALS["vit"]
    model = timm.create_model(name, features_only=True, out_indices=(0, 1), **options)
    model = model.double().eval()
    assert isinstance(model, FeatureGetterNet)
    x = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    expected = model(x)
    assert replaceable(model) == [0, 1]
    assert replace_attention(model, LongShort(6, 0)) is model
    for actual, wanted in zip(model(x), expected, strict=True):
        assert_close(actual, wanted)


@pytest.mark.parametrize("key", ["vit", "registers", "eva02", "mixed"])
def test_grad_checkpointing_changes_no_gradient(key):
    replaced = replace_attention(make(key, dynamic_img_size=True), LongShort(2, 0)).train()
    patch = replaced.patch_embed.patch_size[0]
    sizes = (3 * patch, 5 * patch), (2 * patch, 4 * patch)
    x = [images(replaced, size=size) for size in sizes]
    found = []
    for checkpointing in (False, True):
        replaced.set_grad_checkpointing(checkpointing)
        replaced.zero_grad()
        # both passes are under way when the first block is computed again
        sum(replaced(one).square().sum() for one in x).backward()
        found.append({name: p.grad.clone() for name, p in replaced.named_parameters()})
    for name, gradient in found[0].items():
        assert_close(found[1][name], gradient)


@pytest.mark.parametrize("key", ["vit", "registers", "dinov3", "beit"])
def test_prefix_tokens_see_every_patch_and_patches_see_them(key):
    """In one block with windows of one token: a far patch counts for the class token alone."""
    model = replace_attention(make(key), LongShort(1, 0), keep=(1,))
    layer = next(m for m in model.blocks[0].modules() if hasattr(m, "num_prefix"))
    G, (H, W) = layer.num_prefix, model.patch_embed.grid_size
    rope = None
    if getattr(model, "rope", None) is not None:
        rope = model.rope.get_embed((H, W)).double()
    x = torch.randn(1, G + H * W, 32, dtype=torch.float64, requires_grad=True)

    def seen_by(token):
        (of,) = torch.autograd.grad(layer(x, rope=rope)[0, token].sum(), x)
        return of[0].abs().sum(1) > 0

    assert seen_by(0).all()
    seen = seen_by(-1)
    assert seen[:G].all()
    near = seen[G:].view(H, W)
    assert near[-1, -1]
    assert not near[0].any()


@pytest.mark.parametrize(
    "options",
    [LongShort(2, 0), LongShort(3, 2), CompositeSlice(2, shared_qkv=False)],
    ids=["windows", "projection", "slices"],
)
@pytest.mark.parametrize("key", ["vit", "dinov3"])
def test_kept_blocks_stay_as_they_are(key, options):
    original = make(key)
    kept = original.blocks[1].attn
    replaced = replace_attention(original, options, keep=(1,))
    assert replaced is original
    assert replaced.blocks[1].attn is kept
    assert replaceable(replaced) == [1]
    x = images(replaced)
    assert replaced(x).isfinite().all()
