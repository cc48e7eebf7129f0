"""`set_input_size`, as timm's transformers have it."""

import copy

import pytest
import timm
import torch
from families import SMALL, smallest

SIZES = [(64, 64), (48, 80)]

NO_SIZES = [0, -32, (32, 0), (32, 32, 32), 32.0, "32", True, (2, 32)]

every_family = pytest.mark.parametrize("name", SMALL)
every_size = pytest.mark.parametrize("size", SIZES, ids=str)


def create(name, **kwargs):
    torch.manual_seed(0)
    return timm.create_model(name, **kwargs).eval()


def state(model):
    return {key: x.clone() for key, x in model.state_dict().items()}


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def position_shapes(model):
    return {key: p.shape for key, p in model.named_parameters()}


@every_family
@every_size
def test_a_model_of_another_size_has_the_shapes_and_numbers_of_that_size(name, size):
    model, x = create(name), torch.randn(1, 3, *size)
    before = model(x)
    model.set_input_size(img_size=size)
    assert position_shapes(model) == position_shapes(create(name, img_size=size))
    assert_equal(model(x), before)  # what each forward resized is resized once for all
    assert model.img_size == model._traits["img_size"] == model._model_args["img_size"] == size


@every_family
def test_weights_go_to_a_model_made_for_the_size_by_name(name):
    model, other = create(name), create(name, img_size=(48, 80))
    model.set_input_size((48, 80))
    other.load_state_dict(model.state_dict())
    x = torch.randn(1, 3, 48, 80)
    assert_equal(other(x), model(x))


@every_family
@every_size
def test_there_and_back_and_over_another_size_changes_no_bit(name, size):
    model = create(name)
    before = state(model)
    own = model.img_size
    direct = copy.deepcopy(model)
    direct.set_input_size(size)
    for step in ((21, 33), size):
        model.set_input_size(step)
    assert_equal(state(model), state(direct))
    model.set_input_size(own)
    assert_equal(state(model), before)


@every_family
def test_what_was_trained_at_a_size_is_what_goes_on_to_the_next(name):
    model = create(name)
    own = model.img_size
    model.set_input_size(64)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    trained = create(name, img_size=64)
    trained.load_state_dict(model.state_dict())
    for changed in (model, trained):
        changed.set_input_size(own)
    assert_equal(state(model), state(trained))


@every_family
def test_the_present_size_changes_nothing_and_is_what_is_recorded(name):
    model = create(name)
    before = dict(model.named_parameters())
    for size in (None, model.img_size, model.img_size[0]):
        model.set_input_size(size)
    assert all(p is before[key] for key, p in model.named_parameters())
    assert model._model_args["img_size"] == model.img_size


@every_family
@pytest.mark.parametrize("size", NO_SIZES, ids=str)
def test_what_is_no_size_raises_before_anything_changes(name, size):
    if size == (2, 32) and smallest(name) <= 2:
        size = (smallest(name) - 1, 32)
    model = create(name)
    before, own = dict(model.named_parameters()), model.img_size
    with pytest.raises(ValueError, match=r"^img_size must be one integer or two, of at least \d"):
        model.set_input_size(size)
    assert all(p is before[key] for key, p in model.named_parameters())
    assert model.img_size == own
    with pytest.raises(ValueError, match=r"^img_size must be one integer or two"):
        timm.create_model(name, img_size=size)
    with pytest.raises(TypeError):
        model.set_input_size(patch_size=8)


@every_family
def test_frozen_parameters_stay_frozen_and_on_their_device_and_of_their_type(name):
    model = create(name, device="meta", dtype=torch.bfloat16).requires_grad_(False)
    model.reset_classifier(0, "")
    model.set_input_size(img_size=(64, 64))
    for key, p in model.named_parameters():
        assert (p.requires_grad, p.device.type, p.dtype) == (False, "meta", torch.bfloat16), key


@every_family
def test_a_pruned_model_is_resized_too(name):
    model = create(name)
    model.prune_intermediate_layers([0])
    x = torch.randn(1, 3, 48, 80)
    before = model.forward_intermediates(x, [0], intermediates_only=True)
    model.set_input_size((48, 80))
    assert_equal(model.forward_intermediates(x, [0], intermediates_only=True), before)
