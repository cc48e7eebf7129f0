"""CvT at full size against transformers, an independent implementation, with random weights."""

import pytest
import timm
import torch
from cvt_reference import FILE, build, config
from safetensors.torch import load_file
from torch import nn

transformers = pytest.importorskip("transformers", reason="needs the extra clients")

DEPTHS = {"cvt_13": (1, 2, 10), "cvt_21": (1, 4, 16)}


def random_cvt(depth):
    """Weights that let a wrong scale, norm or statistic show."""
    model = transformers.CvtForImageClassification(
        transformers.CvtConfig(depth=list(depth), num_labels=1000)
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.05, 0.5)
        if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            nn.init.normal_(module.bias, std=0.1)
    return model.eval()


@pytest.mark.landing
@pytest.mark.parametrize("name", DEPTHS)
def test_logits_equal_those_of_transformers_with_the_same_weights(name):
    theirs = random_cvt(DEPTHS[name])
    ours = timm.create_model(name, activation="gelu").eval()
    ours.load_state_dict(ours.fit_state_dict(theirs.state_dict()))
    for size in ((224, 224), (160, 272)):
        x = torch.randn(1, 3, *size)
        with torch.no_grad():
            expected, actual = theirs(x).logits, ours(x)
        assert expected.std() > 0.1
        assert (actual - expected).norm() / expected.norm() < 1e-4, size
    # the published accuracies are of another activation
    with torch.no_grad():
        released = timm.create_model(name).eval()
        released.load_state_dict(ours.state_dict())
        assert (released(x) - expected).norm() / expected.norm() > 1e-3


@pytest.mark.parametrize("size", ["square", "wide", "odd"])
def test_in_float64_the_golden_file_s_maps_are_those_of_transformers(size):
    """What is left between the file and the model is the file's own rounding to float32."""
    golden = load_file(FILE)
    weights = {k.removeprefix("weights."): v for k, v in golden.items() if k.startswith("weights.")}
    theirs = transformers.CvtForImageClassification(transformers.CvtConfig(**config())).eval()
    theirs.load_state_dict(weights)
    ours = build(activation="gelu").double()
    ours.load_state_dict(ours.fit_state_dict({k: v.double() for k, v in weights.items()}))
    x = golden[f"{size}.input"]
    with torch.no_grad():
        single = theirs(x, output_hidden_states=True).hidden_states
        double = theirs.double()(x.double(), output_hidden_states=True).hidden_states
        actual = ours.forward_intermediates(x.double(), intermediates_only=True)
    for i in range(3):
        torch.testing.assert_close(actual[i], double[i], rtol=0, atol=1e-12)
        # today's transformers in float32 is the file's, and as far from its own float64
        expected = golden[f"{size}.hidden_states.{i}"]
        torch.testing.assert_close(single[i], expected, rtol=0, atol=5e-5)
        assert 1e-6 < (expected - double[i]).abs().max() < 5e-5
