"""torchvision's detectors over our maps and a feature pyramid: a step, and two image sizes."""

from collections import OrderedDict

import pytest
import timm
import torch
from families import SMALL
from torch import nn
from torchvision.models.detection import FasterRCNN, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import FeaturePyramidNetwork
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

PYRAMIDS = [name for name in SMALL if name != "test_cst_vit"]


class Pyramid(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.body = timm.create_model(name, features_only=True)
        channels = self.body.feature_info.channels()
        self.fpn = FeaturePyramidNetwork(channels, 32, LastLevelMaxPool())
        self.out_channels = 32

    def forward(self, x):
        return self.fpn(OrderedDict((str(i), m) for i, m in enumerate(self.body(x))))


def detector(kind, name):
    backbone = Pyramid(name)
    levels = len(backbone.body.feature_info) + 1
    anchors = AnchorGenerator([(16 * 2**i,) for i in range(levels)], [(0.5, 1.0, 2.0)] * levels)
    if kind is FasterRCNN:
        return FasterRCNN(backbone, 4, rpn_anchor_generator=anchors, min_size=96, max_size=128)
    return RetinaNet(backbone, 4, anchor_generator=anchors, min_size=96, max_size=128)


@pytest.mark.landing
@pytest.mark.parametrize("kind", [FasterRCNN, RetinaNet])
@pytest.mark.parametrize("name", PYRAMIDS)
def test_a_training_step_and_inference_at_two_sizes(kind, name):
    model = detector(kind, name).train()
    images = [torch.rand(3, 96, 128), torch.rand(3, 90, 70)]
    boxes = torch.tensor([[5.0, 5.0, 45.0, 50.0], [20.0, 30.0, 60.0, 80.0]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 2])}] * 2
    loss = sum(model(images, targets).values())
    loss.backward()
    assert loss.isfinite()
    used = [p.grad for p in model.backbone.body.parameters()]
    assert all(g is not None and g.isfinite().all() for g in used)
    with torch.no_grad():
        found = model.eval()([torch.rand(3, 96, 128), torch.rand(3, 128, 60)])
    assert [set(f) for f in found] == [{"boxes", "labels", "scores"}] * 2
