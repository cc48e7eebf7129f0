"""Gradient checkpointing runs blocks twice, and changes nothing but time and memory."""

from contextlib import nullcontext

import pytest
import timm
import torch
from families import SMALL
from timm.layers import set_reentrant_ckpt

WITH_BATCH_NORM = ["test_cvt", "test_cvt_ls"]

WAYS = [
    "plain",
    "features_only",
    "autocast",
    "reentrant",
    "cumulative",
    pytest.param("compiled", marks=[pytest.mark.landing, pytest.mark.timeout(300)]),
]


@pytest.fixture
def reentrant():
    set_reentrant_ckpt(True)
    yield
    set_reentrant_ckpt(False)


def trained(name, way, *, checkpointing):
    """Loss, gradients and buffers of two steps, the second of them backward twice."""
    torch.manual_seed(1)
    drops = {"attn_drop_rate": 0.2, "proj_drop_rate": 0.2}  # drawn alike in both passes
    model = timm.create_model(name, features_only=way == "features_only", **drops)
    model.train()
    (model.model if way == "features_only" else model).set_grad_checkpointing(checkpointing)
    if way == "cumulative":
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = None
    run = torch.compile(model, backend="aot_eager") if way == "compiled" else model
    autocast = torch.autocast("cpu", torch.bfloat16) if way == "autocast" else nullcontext()
    losses = []
    for backwards in (1, 2):
        x = torch.randn(2, 3, 45, 45)
        with autocast:
            outputs = run(x) if way == "features_only" else [run(x)]
        losses.append(sum(y.float().square().mean() for y in outputs))
        for i in range(backwards if way == "plain" else 1):
            losses[-1].backward(retain_graph=way == "plain" and i + 1 < backwards)
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return losses, gradients, dict(model.named_buffers())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WITH_BATCH_NORM)
def test_batch_norm_counts_each_batch_once(name, way, request):
    losses, gradients, buffers = trained(name, way, checkpointing=False)
    assert {int(x) for n, x in buffers.items() if n.endswith("num_batches_tracked")} == {2}
    if way == "reentrant":
        request.getfixturevalue("reentrant")
    found = trained(name, way, checkpointing=True)
    for actual, expected in zip((found[0], found[1]), (losses, gradients), strict=True):
        torch.testing.assert_close(actual, expected)
    assert found[2].keys() == buffers.keys()
    # the first pass of a reentrant checkpoint has no gradient, and takes the kernels of inference
    rounding = {"rtol": 1e-4, "atol": 1e-6} if way == "reentrant" else {"rtol": 0.0, "atol": 0.0}
    for key, expected in buffers.items():
        torch.testing.assert_close(found[2][key], expected, **rounding)


def test_frozen_batch_norm_stays_as_it_is():
    model = timm.create_model("test_cvt_ls").eval()
    model.set_grad_checkpointing()
    before = {n: x.clone() for n, x in model.named_buffers()}
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    for key, x in model.named_buffers():
        assert torch.equal(x, before[key]), key


@pytest.mark.parametrize("name", [name for name in SMALL if name not in WITH_BATCH_NORM])
def test_other_models_have_no_statistics(name):
    assert not dict(timm.create_model(name).named_buffers())
