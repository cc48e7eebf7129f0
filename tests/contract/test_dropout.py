"""`attn_drop_rate` and `proj_drop_rate`, as timm's transformers have them."""

import pytest
import timm
import torch
from families import SMALL

RATES = ["attn_drop_rate", "proj_drop_rate"]

each_model_and_rate = pytest.mark.parametrize(
    ("name", "rate"), [(name, rate) for name in SMALL for rate in RATES]
)


def create(name, **kwargs):
    torch.manual_seed(0)
    return timm.create_model(name, **kwargs)


@each_model_and_rate
def test_dropout_acts_in_training_and_never_in_eval(name, rate):
    model, plain = create(name, **{rate: 0.3}), create(name)
    x = torch.randn(2, 3, 45, 45)
    assert model.state_dict().keys() == plain.state_dict().keys()
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            plain.load_state_dict(model.state_dict())  # training moves batch norm's statistics
            assert torch.equal(model.eval()(x), plain.eval()(x))
            model.train()
            torch.manual_seed(1)
            first, second = model.forward_features(x), model.forward_features(x)
            assert not torch.allclose(first, second)
            torch.manual_seed(1)
            assert torch.equal(model.forward_features(x), first)


@each_model_and_rate
def test_every_block_drops_and_every_parameter_still_has_a_gradient(name, rate):
    model = create(name, num_classes=42, **{rate: 0.3}).train()
    x = torch.randn(2, 3, 45, 45)
    for stage in model.stages:
        x, g, geometry = stage._enter(x if stage is not model.stages[0] else x.permute(0, 2, 3, 1))
        for block in stage.blocks:
            torch.manual_seed(1)
            first, _ = block.attn(x, g, geometry)
            again, _ = block.attn(x, g, geometry)
            assert not torch.equal(first, again)
            assert torch.equal(block.mlp(x), block.mlp(x)) == (rate == "attn_drop_rate")
            x, g = block(x, g, geometry)
    model(torch.randn(2, 3, 45, 45)).square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())


@each_model_and_rate
def test_a_rate_that_is_no_probability_is_an_error(name, rate):
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
        create(name, **{rate: 1.5})


@pytest.mark.parametrize("name", SMALL)
def test_global_tokens_drop_what_they_attend_to(name):
    model = create(name, attn_drop_rate=0.5).train()
    for stage in model.stages:
        if stage.global_tokens is None:
            continue
        x = torch.randn(2, 6, 7, stage.global_tokens.shape[2])
        g = torch.randn(2, stage.global_tokens.shape[1], x.shape[3])
        attention = stage.blocks[0].attn
        tokens = [attention(x, g, stage.geometry(x))[1] for _ in range(2)]
        assert not torch.allclose(*tokens)


@pytest.mark.landing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SMALL)
def test_dropout_is_one_graph_too(name):
    model = create(name, attn_drop_rate=0.3, proj_drop_rate=0.3).train()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 3, 45, 45)
    assert not torch.allclose(compiled(x), compiled(x))
    compiled(x).square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())
