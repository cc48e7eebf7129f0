"""bfloat16 and float16 against float32: under autocast, and as the type of the model itself."""

import pytest
import timm
import torch
from families import SMALL

pytestmark = pytest.mark.parametrize("name", SMALL)

OF_THE_LARGEST = {torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest difference allowed, as a fraction of the largest feature."""


def features_and_gradient(model, x):
    x = x.clone().requires_grad_()
    features = model.forward_features(x)
    cotangent = torch.linspace(-1, 1, features.numel()).view_as(features)
    (gradient,) = torch.autograd.grad((features.float() * cotangent).sum(), x)
    return features, gradient


def assert_close(actual, expected, dtype):
    assert actual.isfinite().all()
    assert (actual.float() - expected).abs().max() <= OF_THE_LARGEST[dtype] * expected.abs().max()


@pytest.mark.parametrize("dtype", OF_THE_LARGEST, ids=str)
@pytest.mark.parametrize("size", [(32, 32), (75, 49)], ids=str)
def test_autocast_is_finite_and_close_to_float32(name, dtype, size):
    model, x = timm.create_model(name).eval(), torch.randn(2, 3, *size)
    expected, expected_gradient = features_and_gradient(model, x)
    with torch.autocast("cpu", dtype):
        features, gradient = features_and_gradient(model, x)
        assert model(x).dtype == dtype
    assert_close(features, expected, dtype)
    assert_close(gradient, expected_gradient, dtype)


@pytest.mark.parametrize("dtype", OF_THE_LARGEST, ids=str)
@pytest.mark.parametrize("size", [(32, 32), (75, 49)], ids=str)
def test_a_model_of_that_type_is_finite_and_close_to_float32(name, dtype, size):
    model, x = timm.create_model(name).eval(), torch.randn(2, 3, *size)
    expected = model.forward_features(x)
    features = model.to(dtype).forward_features(x.to(dtype))
    assert features.dtype == dtype
    assert_close(features, expected, dtype)


def test_a_model_made_in_bfloat16_trains(name):
    model = timm.create_model(name, dtype=torch.bfloat16, drop_path_rate=0.2).train()
    model(torch.randn(2, 3, 45, 64, dtype=torch.bfloat16)).mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
