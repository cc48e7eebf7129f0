"""What a model costs: parameters, multiply-adds, and activations kept for the backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from fvcore.nn import FlopCountAnalysis
from timm.layers import set_fused_attn, use_fused_attn
from torch import Tensor, nn

# Resizing a position table and averaging a map are no part of what papers count.
_NOT_COUNTED = (
    "aten::upsample_bilinear2d",
    "aten::upsample_bicubic2d",
    "aten::adaptive_avg_pool2d",
)


def count_params(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(p.numel() for p in model.parameters())


def count_flops(model: nn.Module, size: tuple[int, int]) -> int:
    """FLOPs of one image as fvcore counts them: `count_flops_of` an image of zeros.

    Args:
        model: In the mode to count in. It needs real weights: convolutions do not trace on the
            meta device.
        size: Height and width of the image, in pixels.

    Raises:
        ValueError: the model has an attention or a product that fvcore does not count.
    """
    first = next(p for p in model.parameters() if p.ndim == 4)
    image = torch.zeros(1, first.shape[1], *size, device=first.device, dtype=first.dtype)
    return count_flops_of(model, image)


def count_flops_of(model: nn.Module, *inputs: Tensor) -> int:
    """FLOPs of one forward as fvcore counts them: a multiply-add once, a norm 5 times per element.

    Batch norm counts twice per element in eval mode.

    Attention goes through explicit products meanwhile, since fvcore counts the fused one as
    nothing. What no output depends on is not counted: the global tokens' last update in a stage
    that drops them.

    Args:
        model: In the mode to count in.
        inputs: Of its forward.

    Raises:
        ValueError: the model has an attention or a product that fvcore does not count.
    """
    with explicit_attention(), torch.no_grad():
        analysis = FlopCountAnalysis(model, inputs)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        for op in _NOT_COUNTED:
            analysis.set_op_handle(op, lambda _inputs, _outputs: 0)
        total = int(analysis.total())
        missed = [op for op in analysis.unsupported_ops() if "attention" in op or "mm" in op]
    if missed:
        raise ValueError(f"every product must be one that fvcore counts, got {', '.join(missed)}.")
    return total


def saved_activations(model: nn.Module, *inputs: Tensor | None) -> int:
    """Bytes that one forward keeps for the backward pass, parameters aside, each storage once."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return x.detach()  # x itself could be an output, which would hold the graph that holds it

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = model(*inputs)
    del output
    return sum(saved.values())


@contextmanager
def explicit_attention() -> Iterator[None]:
    """Attention by explicit products: here at once, in timm's models in those made meanwhile."""
    fused = use_fused_attn()
    set_fused_attn(False)
    try:
        yield
    finally:
        set_fused_attn(fused)
