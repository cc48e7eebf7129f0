"""A model rewritten for inference: norms folded away, float32 products by the faster library."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import Mlp, StdConv2d
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from vit_ls.attention.projections import ConvProjection, LinearQKV
from vit_ls.ops import in_plain_inference, precision_of_products


def fuse(model: nn.Module) -> nn.Module:
    """A copy of a model for inference on one machine; its outputs are the model's to 1e-5.

    - Batch norm of convolutional projections goes into the convolution before it, and weights that
      are standardised in each forward are standardised once.
    - On a CPU, linear layers in float32 are computed by oneDNN, those of an MLP with their GELU.
      PyTorch takes MKL, which is half as fast or less on processors of AMD. Any model of timm's
      gains by that. With gradients, in other precisions, in graphs and in exports they are what
      they were.

    The copy has other parameters than the model: save the weights of the model, not of the copy.

    Args:
        model: In eval mode.

    Raises:
        ValueError: the model is in training mode, in which batch norm is no fixed scale.
    """
    if model.training:
        raise ValueError("model must be in eval mode to be fused, got one in training mode.")
    fused = copy.deepcopy(model)
    for module in list(fused.modules()):
        if isinstance(module, ConvProjection) and isinstance(module.norm, nn.BatchNorm2d):
            module.depthwise = fuse_conv_bn_eval(module.depthwise, module.norm)
            module.norm = nn.Identity()
        if isinstance(module, Mlp) and _is_linear_and_gelu(module):
            module.fc1.__class__ = _GeluLinear
            module.act = nn.Identity()
        for name, child in module.named_children():
            if type(child) is StdConv2d:
                setattr(module, name, _standardised(child))
            # the parameters stay as they are, and so does what refers to the module
            if type(child) is nn.Linear:
                child.__class__ = _Linear
            elif type(child) is LinearQKV:
                child.__class__ = _LinearQKV
    return fused


class _Linear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return _linear(input, self.weight, self.bias)


class _GeluLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return _linear(input, self.weight, self.bias, gelu=True)


class _LinearQKV(LinearQKV):
    def product(self, x: Tensor) -> Tensor:
        return _linear(x, self.weight, self.bias)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, gelu: bool = False) -> Tensor:
    if _by_one_dnn(x, weight):
        one_dnn: Any = torch.ops.mkldnn._linear_pointwise
        return one_dnn(x, weight, bias, "gelu" if gelu else "none", [], "none" if gelu else "")
    y = F.linear(x, weight, bias)
    return F.gelu(y) if gelu else y


def _by_one_dnn(x: Tensor, weight: Tensor) -> bool:
    """Only what the kernel takes, and what nothing records, counts or differentiates."""
    return (
        in_plain_inference(x)
        and x.numel() > 0
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        # below that it is oneDNN that PyTorch takes
        and precision_of_products("cpu") != "bf16"
        and torch.backends.mkldnn.is_available()
    )


def _is_linear_and_gelu(mlp: Mlp) -> bool:
    plain = isinstance(mlp.norm, nn.Identity) and type(mlp.fc1) is nn.Linear
    return plain and isinstance(mlp.act, nn.GELU) and mlp.act.approximate == "none"


def _standardised(conv: StdConv2d) -> nn.Conv2d:
    plain: nn.Conv2d = copy.deepcopy(conv)
    plain.__class__ = nn.Conv2d
    with torch.no_grad():
        flat = conv.weight.reshape(1, conv.out_channels, -1)
        weight = F.batch_norm(flat, None, None, training=True, momentum=0.0, eps=conv.eps)
        plain.weight.copy_(weight.reshape_as(conv.weight))
    return plain
