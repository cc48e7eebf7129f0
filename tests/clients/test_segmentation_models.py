"""segmentation_models_pytorch takes the models as `tu-` encoders."""

import pytest
import torch
from families import SMALL

smp = pytest.importorskip("segmentation_models_pytorch", reason="needs the extra clients")

PYRAMIDS = [name for name in SMALL if name != "test_cst_vit"]
DEPTH = {"test_cvt": 4, "test_cvt_ls": 4}
"""Stages and two: smp counts strides 1 and 2, which hold nothing here."""

# smp makes a convolution of no channels for stride 2, which PyTorch mentions
pytestmark = pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")


def trained_a_step(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    target = torch.randint(5, (x.shape[0], *x.shape[2:]))
    losses = []
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("in_channels", [1, 3])
@pytest.mark.parametrize("name", PYRAMIDS)
def test_a_unet_trains_and_predicts_at_another_size(name, in_channels):
    depth = DEPTH.get(name, 5)
    model = smp.Unet(
        f"tu-{name}",
        encoder_weights=None,
        encoder_depth=depth,
        decoder_channels=(32, 16, 16, 8, 8)[:depth],
        in_channels=in_channels,
        classes=5,
    )
    first, second = trained_a_step(model, torch.randn(2, in_channels, 64, 96))
    assert second < first
    assert model.eval()(torch.randn(1, in_channels, 96, 32)).shape == (1, 5, 96, 32)


@pytest.mark.parametrize("name", [name for name in PYRAMIDS if name not in DEPTH])
def test_an_fpn_trains_and_predicts_at_another_size(name):
    model = smp.FPN(f"tu-{name}", encoder_weights=None, classes=5, decoder_dropout=0.0)
    first, second = trained_a_step(model, torch.randn(2, 3, 64, 96))
    assert second < first
    assert model.eval()(torch.randn(1, 3, 96, 32)).shape == (1, 5, 96, 32)


def test_one_stride_for_all_blocks_is_refused_as_the_readme_says():
    with pytest.raises(ValueError, match="downsampling pattern"):
        smp.Unet("tu-test_cst_vit", encoder_weights=None)


def test_output_stride_is_refused_as_the_readme_says():
    with pytest.raises(TypeError, match="output_stride"):
        smp.DeepLabV3Plus("tu-test_vil_ls", encoder_weights=None)
