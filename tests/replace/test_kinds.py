"""What replaced attention computes beyond the original: windows, projections, slices, any size."""

import copy

import pytest
import torch
from replace.originals import images, make

import vit_ls
from vit_ls import CompositeSlice, LongShort, replace_attention, replaceable
from vit_ls.ops import attend
from vit_ls.replace import new_parameters

OPTIONS = {
    "windows": LongShort(2, 0),
    "whole_halo": LongShort(2, 0, whole_halo=True),
    "projection": LongShort(3, 2),
    "projection_alone": LongShort(0, 3, dual_ln=False),
    "slices": CompositeSlice(2),
    "parallel": CompositeSlice((1, 3), composition="parallel", alpha=2.0, aggregation="linear"),
    "own_slices": CompositeSlice(2, shared_qkv=False, pos_embed="absolute"),
}
KEYS = ["vit", "distilled", "registers", "no_prefix", "eva02", "dinov3", "mixed", "beit"]


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("key", KEYS)
def test_every_parameter_gets_a_gradient(key, kind):
    model = replace_attention(make(key), OPTIONS[kind]).train()
    model(images(model)).square().sum().backward()
    missing = {name for name, p in model.named_parameters() if p.grad is None}
    assert missing == set()


@pytest.mark.parametrize("kind", OPTIONS)
def test_new_parameters_have_names_and_take_the_originals_weights(kind):
    original, model = make("vit"), replace_attention(make("vit"), OPTIONS[kind])
    added = new_parameters(model)
    assert (added == []) == (kind in ("windows", "whole_halo"))
    assert all(name.startswith("blocks.") and ".attn." in name for name in added)
    missing, unexpected = model.load_state_dict(original.state_dict(), strict=False)
    assert sorted(missing) == sorted(added)
    assert unexpected == []


@pytest.mark.parametrize("size", [(64, 64), (16, 80), (112, 48)], ids=str)
@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("key", ["vit", "dinov3"])
def test_images_of_any_size_are_taken(key, kind, size):
    model = replace_attention(make(key, dynamic_img_size=True), OPTIONS[kind])
    assert model(images(model, size=size)).isfinite().all()


def test_windows_are_those_of_a_masked_attention():
    """Of 5 x 7 patches and windows of at most 3: two of 3, and three of 3, with a halo of one."""
    model = replace_attention(make("vit", img_size=(80, 112)), LongShort(3, 0))
    layer, G, grid = model.blocks[0].attn, 1, (5, 7)
    x = torch.randn(2, G + 35, 32, dtype=torch.float64)
    q, k, v = layer.project(x)
    places = [(i // 7, i % 7) for i in range(35)]
    seen = torch.ones(G + 35, G + 35, dtype=torch.bool)
    for i, (y, z) in enumerate(places):
        top, left = y // 3 * 3, z // 3 * 3
        for j, (u, w) in enumerate(places):
            seen[G + i, G + j] = -1 <= u - top <= 3 and -1 <= w - left <= 3
    assert layer.windows_of(grid).window == (3, 3)
    heads = (t.unflatten(2, (2, 16)).transpose(1, 2) for t in (q, k, v))
    y = attend(*heads, seen[None, None]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x), layer.proj(y), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("grid", "window", "halo"),
    [((64, 64), (13, 13), (7, 7)), ((14, 14), (14, 14), (0, 0)), ((5, 28), (5, 14), (0, 7))],
    ids=str,
)
def test_windows_are_evened_out_over_the_grid(grid, window, halo):
    model = replace_attention(make("vit"), LongShort(14, 0))
    assert model.blocks[0].attn.windows_of(grid)[:2] == (window, halo)


def test_slices_with_projections_of_their_own_start_without_effect():
    original = make("vit")
    model = replace_attention(
        copy.deepcopy(original), CompositeSlice(6, shared_qkv=False, pos_embed="absolute")
    )
    x = images(original)
    torch.testing.assert_close(model(x), original(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["windows", "projection"])
@pytest.mark.parametrize("key", ["vit", "dinov3"])
def test_attention_is_recorded(key, kind):
    model = replace_attention(make(key), OPTIONS[kind], keep=(0,))
    x = images(model)
    expected = model(x)
    with vit_ls.record(model) as records:
        torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)
    (layer,) = records.values()
    assert layer.name == "blocks.1.attn"
    total = sum(layer.shares().values())
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-12)
    assert layer.pull(total.mean(1), total.new_ones(2, layer.num_global))[0].isfinite().all()


def test_attention_dropout_drops_in_training_alone():
    model = replace_attention(make("vit", attn_drop_rate=0.5), OPTIONS["windows"])
    x = images(model)
    assert torch.equal(model(x), model(x))
    assert not torch.equal(model.train()(x), model(x))


def test_autocast_computes_in_bfloat16_near_the_original():
    original = make("norms", torch.float32)
    model = replace_attention(copy.deepcopy(original), LongShort(8, 0))
    x = images(original)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = model(x), original(x)
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)


def test_a_copy_of_a_model_has_a_grid_of_its_own():
    model = replace_attention(make("vit", dynamic_img_size=True), LongShort(2, 0))
    other = copy.deepcopy(model)
    x, y = images(model, size=(32, 64)), images(model, size=(64, 32))
    expected = model(x)
    other(y)
    tokens = torch.randn(1, 1 + 8, 32, dtype=torch.float64)
    assert model.blocks[0].attn.patches.grid_of(8) == (2, 4)
    assert other.blocks[0].attn.patches.grid_of(8) == (4, 2)
    assert model.blocks[0](tokens).shape == tokens.shape
    assert torch.equal(model(x), expected)


def test_replaceable_lists_the_blocks_with_attention_of_timms():
    model = make("vit")
    assert replaceable(model) == [0, 1]
    assert replaceable(replace_attention(model, LongShort(2, 0), keep=[0])) == [0]
