import copy

import pytest
import timm
import torch
from families import SMALL
from torch import nn

import vit_ls


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


@pytest.mark.parametrize("name", [*SMALL, "cvt_13"])
@torch.no_grad()
def test_a_fused_model_gives_the_same_and_leaves_the_model_alone(name):
    model = trained_statistics(name)
    before = copy.deepcopy(model.state_dict())
    fused, x = vit_ls.fuse(model), torch.randn(2, 3, 45, 70)
    expected = model(x)
    torch.testing.assert_close(fused(x), expected, rtol=1e-5, atol=1e-5)
    assert not [m for m in fused.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_a_model_in_training_is_not_fused():
    with pytest.raises(ValueError, match="must be in eval mode to be fused"):
        vit_ls.fuse(timm.create_model("test_cvt_ls"))
