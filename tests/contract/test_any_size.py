"""Any height and width: not square, not divisible, odd, smaller than the first window."""

from types import SimpleNamespace

import pytest
import timm
import torch
import torch.nn.functional as F
from families import CUT, SMALL, map_side, pixels_read, smallest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import TOLERANCE

import vit_ls.grid
from vit_ls.blocks import embed
from vit_ls.models.convert import checkpoint_filter_fn

every_family = pytest.mark.parametrize("name", SMALL)

side = st.integers(1, 90)
MODELS = {name: timm.create_model(name).eval() for name in SMALL}
WITHOUT_POSITIONS = ["test_cvt", "test_cvt_ls"]


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float32])


@every_family
@settings(max_examples=25)
@given(height=side, width=side)
def test_maps_are_finite_and_of_the_size_that_the_stride_says_rounded_up(name, height, width):
    height, width = (max(side, smallest(name)) for side in (height, width))
    model = MODELS[name]
    with torch.no_grad():
        _, maps = model.forward_intermediates(torch.randn(1, 3, height, width))
    for actual, info in zip(maps, model.feature_info, strict=True):
        r = info["reduction"]
        sides = map_side(name, height, r), map_side(name, width, r)
        assert actual.shape == (1, info["num_chs"], *sides)
        assert actual.isfinite().all()


@every_family
@settings(max_examples=15)
@given(height=side, width=side)
def test_a_batch_of_one_equals_its_row_in_a_batch(name, height, width):
    height, width = (max(side, smallest(name)) for side in (height, width))
    model, x = MODELS[name], torch.randn(2, 3, height, width)
    with torch.no_grad():
        assert_close(model.forward_features(x[1:]), model.forward_features(x)[1:])


@every_family
@settings(max_examples=15)
@given(height=side, width=side)
def test_gradients_are_finite_and_no_pixel_is_dropped(name, height, width):
    height, width = (max(side, smallest(name)) for side in (height, width))
    model, x = MODELS[name], torch.randn(1, 3, height, width, requires_grad=True)
    features = model.forward_features(x)
    loss = (features * torch.randn(features.shape)).sum()
    image_gradient, *gradients = torch.autograd.grad(
        loss, [x, *model.parameters()], allow_unused=True
    )
    assert all(g.isfinite().all() for g in gradients if g is not None)
    assert image_gradient.isfinite().all()
    read = image_gradient[:, :, : pixels_read(name, height), : pixels_read(name, width)]
    assert (read != 0).any(1).all()


@pytest.mark.parametrize("name", [name for name in SMALL if name not in CUT])
@pytest.mark.parametrize("size", [(36, 100), (75, 49), (5, 41)], ids=str)
def test_what_padding_holds_has_no_influence(name, size, monkeypatch):
    model, x = MODELS[name], torch.randn(2, 3, *size)
    expected = model.forward_intermediates(x)
    filled = []

    def pad_with_garbage(x, pad):
        if x.dtype == torch.bool:  # the mask's own, which says where the others are
            return F.pad(x, pad)
        filled.append(max(pad) > 0)
        return F.pad(x, pad, value=1e4)

    # the embedding's zeros are a part of its definition, those around windows are none
    zeros = embed.pad_to_multiple
    monkeypatch.setattr(vit_ls.grid, "F", SimpleNamespace(pad=pad_with_garbage))
    monkeypatch.setattr(embed, "pad_to_multiple", lambda x, stride: _with_zeros(zeros, x, stride))
    actual = model.forward_intermediates(x)
    assert any(filled)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def _with_zeros(pad_to_multiple, x, stride):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(vit_ls.grid, "F", F)
        return pad_to_multiple(x, stride)


@every_family
def test_the_training_size_is_bit_identical_to_a_model_that_never_resizes(name, monkeypatch):
    model = MODELS[name]
    x = torch.randn(1, *model.default_cfg["input_size"])
    expected = model.forward_intermediates(x)

    def same_size(x, size, **_how):
        assert tuple(size) == x.shape[-2:]
        return x

    monkeypatch.setattr(F, "interpolate", same_size)
    torch.testing.assert_close(model.forward_intermediates(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [n for n in SMALL if n not in WITHOUT_POSITIONS])
@pytest.mark.parametrize("size", [(48, 80), (64, 64), (21, 33)], ids=str)
def test_positions_follow_the_size_as_in_a_model_made_for_it(name, size):
    fixed = timm.create_model(name, img_size=size).eval()
    shapes = {key: p.shape for key, p in MODELS[name].named_parameters()}
    assert shapes != {key: p.shape for key, p in fixed.named_parameters()}
    fixed.load_state_dict(checkpoint_filter_fn(MODELS[name].state_dict(), fixed))
    x = torch.randn(1, 3, *size)
    assert_close(fixed(x), MODELS[name](x))


@pytest.mark.parametrize("name", WITHOUT_POSITIONS)
def test_without_position_encoding_no_parameter_depends_on_the_size(name):
    shapes = {key: p.shape for key, p in MODELS[name].named_parameters()}
    other = timm.create_model(name, img_size=(48, 80))
    assert shapes == {key: p.shape for key, p in other.named_parameters()}


@every_family
def test_a_size_fixed_at_creation_still_takes_any_other(name):
    model = timm.create_model(name, img_size=(48, 80)).eval()
    first = model(torch.zeros(1, 3, 48, 80))
    assert model(torch.randn(1, 3, 31, 97)).isfinite().all()
    assert torch.equal(model(torch.zeros(1, 3, 48, 80)), first)


@every_family
@pytest.mark.parametrize("size", [(0, 32), (32, 0), (2, 2), (2, 40), (40, 1)])
@pytest.mark.parametrize("call", ["forward", "forward_features", "forward_intermediates"])
def test_a_size_below_the_least_is_one_line_with_both(name, size, call):
    least = smallest(name)
    if min(size) >= least:
        getattr(MODELS[name], call)(torch.randn(1, 3, *size))
        return
    message = f"Images must be at least {least} x {least} pixels, got {size[0]} x {size[1]}."
    with pytest.raises(ValueError, match=f"^{message}$"):
        getattr(MODELS[name], call)(torch.randn(1, 3, *size))
