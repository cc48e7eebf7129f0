import copy

import pytest
import timm
import torch
from families import SMALL
from timm.layers import StdConv2d
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import vit_ls
from vit_ls.count import count_flops


def trained_statistics(name):
    """A model whose batch norms are far from the identity."""
    model = timm.create_model(name)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.3, 3.0)
            nn.init.uniform_(module.weight, -2.0, 2.0)
            nn.init.normal_(module.bias)
    return model.eval()


@pytest.mark.parametrize("name", [*SMALL, "cvt_13", "vit_tiny_patch16_224"])
@torch.no_grad()
def test_a_fused_model_gives_the_same_and_leaves_the_model_alone(name):
    model = trained_statistics(name)
    before = copy.deepcopy(model.state_dict())
    size = (224, 224) if name.endswith("_224") else (45, 70)
    fused, x = vit_ls.fuse(model), torch.randn(2, 3, *size)
    expected = model(x)
    torch.testing.assert_close(fused(x), expected, rtol=1e-5, atol=1e-5)
    assert not [m for m in fused.modules() if isinstance(m, nn.BatchNorm2d | StdConv2d)]
    assert not [m for m in fused.modules() if type(m) is nn.Linear]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_a_model_in_training_is_not_fused():
    with pytest.raises(ValueError, match="must be in eval mode to be fused"):
        vit_ls.fuse(timm.create_model("test_cvt_ls"))


# fused attention on a CPU has no batching rule: slower, not wrong
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_fused_model_still_has_gradients_graphs_and_flops(name):
    model = trained_statistics(name)
    fused, x = vit_ls.fuse(model), torch.randn(2, 3, 45, 70)
    close = {"rtol": 1e-4, "atol": 1e-5}
    found, expected = (m(x.requires_grad_()).sum() for m in (fused, model))
    gradients = [torch.autograd.grad(y, x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients, **close)
    with torch.no_grad():
        y, images = model(x), x.detach()
        torch._dynamo.reset()
        compiled = torch.compile(fused, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(images), y, **close)
        mapped = torch.func.vmap(lambda image: fused(image[None])[0])(images)
        torch.testing.assert_close(mapped, y, **close)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(fused(images), model(images), rtol=0.1, atol=0.1)
        assert fused.bfloat16()(images.bfloat16()).dtype == torch.bfloat16
    # a batch norm counts two a number
    assert 0.97 < count_flops(vit_ls.fuse(model), (64, 64)) / count_flops(model, (64, 64)) <= 1


@torch.no_grad()
def test_linear_layers_of_a_fused_model_are_those_of_one_dnn():
    """Else the copy would be no faster, and no test would see it."""
    called = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(str(func))
            return func(*args, **(kwargs or {}))

    fused = vit_ls.fuse(timm.create_model("test_vil_ls").eval())
    with Record():
        fused(torch.randn(1, 3, 32, 32))
    assert not [name for name in called if "addmm" in name]
    assert len([name for name in called if "mkldnn._linear_pointwise" in name]) > 20
