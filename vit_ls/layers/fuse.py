"""Batch norm folded into the convolution before it, for inference."""

import copy

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from vit_ls.layers.projections import ConvProjection


def fuse(model: nn.Module) -> nn.Module:
    """A copy of a model for inference, without the batch norms of its convolutional projections.

    Its outputs are those of the model in eval mode to 1e-5 in float32. It has other parameters than
    the model: save the weights of the model, not of the copy. Models without batch norm come back
    as they are, copied.

    Args:
        model: In eval mode.

    Raises:
        ValueError: the model is in training mode, in which batch norm is no fixed scale.
    """
    if model.training:
        raise ValueError("model must be in eval mode to be fused, got one in training mode.")
    fused = copy.deepcopy(model)
    for module in fused.modules():
        if isinstance(module, ConvProjection) and isinstance(module.norm, nn.BatchNorm2d):
            module.depthwise = fuse_conv_bn_eval(module.depthwise, module.norm)
            module.norm = nn.Identity()
    return fused
