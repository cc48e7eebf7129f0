"""Which implementation is the faster one: rules by device, dtype and shape, and their overruling.

Each number is a measurement that `python -m benchmarks.rules` repeats. What was measured on
no such machine has no rule and takes the fused kernel of PyTorch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from timm.layers import use_fused_attn
from torch import Tensor

from vit_ls.ops.kept import in_plain_inference
from vit_ls.ops.precision import precision_of_products
from vit_ls.ops.recording import is_recording

ANY = 2**62

# Largest T * K for which explicit products and a softmax beat the fused kernel.
#   device, precision, whether a backward pass follows
PRODUCTS = {
    ("cpu", "float32", False): 256,
    ("cpu", "float32", True): 256,
    ("cpu", "float32 by bfloat16", False): 2**18,
    ("cpu", "float32 by bfloat16", True): 2**20,
    ("cpu", "bfloat16", False): ANY,
    ("cpu", "bfloat16", True): 2**20,
}
"""For attention of one set of queries over one set of keys."""

WINDOW_PRODUCTS = PRODUCTS | {
    ("cpu", "float32", False): ANY,
    ("cpu", "float32 by bfloat16", False): ANY,
    ("cpu", "float32 by bfloat16", True): ANY,
    ("cpu", "bfloat16", True): ANY,
}
"""For windows, where products also spare the copies of the keys in front for each window."""

GATHERED = {("cpu", "float32", True)}
"""Where such windows take their tokens by index, with copies of the keys in front."""

PIECE = 2**21
"""Bytes of scores that inference on a CPU makes at a time for each of its threads: few enough to
stay in the cache, and enough to be worth dividing among them. Measured with one thread and two."""

PIECE_THREADS = 16
"""Threads beyond these add nothing to a piece, whose memory would be large on large machines."""

FUSED_HEADS = 65_535
"""Heads, times windows, that one call of the fused kernel gets. Those of CUDA count them in a
dimension of the launch that has no more (https://github.com/pytorch/pytorch/issues/142228)."""

_DEVICES = {device for device, _, _ in PRODUCTS}

_overruled = {"windows": "auto", "attention": "auto"}


@contextmanager
def use_implementation(*, windows: str = "auto", attention: str = "auto") -> Iterator[None]:
    """Overrule the rules within a `with` block, wherever `impl` is "auto".

    Args:
        windows: A row of `vit_ls.ops.impl.IMPLEMENTATIONS`, or "auto" for the rules.
        attention: "fused" or "products" for `vit_ls.ops.attend`, or "auto" for the rules.
    """
    before = dict(_overruled)
    _overruled.update(windows=windows, attention=attention)
    try:
        yield
    finally:
        _overruled.update(before)


def choose_windows(impl: str, q: Tensor, keys: int, drop: float = 0.0) -> str:
    """The implementation for windows: `impl`, unless it is "auto".

    Args:
        impl: A name or "auto".
        q: The queries, for their device and dtype.
        keys: Scores of one window, T * K.
        drop: Dropout of the weights.
    """
    if is_recording():
        return "products"
    if impl == "auto":
        impl = _overruled["windows"]
    if impl != "auto":
        return impl
    if torch.onnx.is_in_onnx_export():
        return "gathered"
    if not use_fused_attn() or _is_dropped_on_a_cpu(q, drop):
        return "products"
    key = _key(q)
    if keys > WINDOW_PRODUCTS.get(key, 0):
        return "tiled"
    return "gathered" if key in GATHERED else "products"


def choose_attention(
    impl: str, q: Tensor, k: Tensor, mask: Tensor | None = None, drop: float = 0.0
) -> str:
    """For queries [B,h,T,d] and keys [B,h,K,d]: `impl`, or "fused" or "products" for "auto".

    Args:
        impl: "auto", "fused" or "products".
        q: For its device, its dtype and T.
        k: For K.
        mask: Added to the scores. One that learns is no matter of speed alone: PyTorch's fused
            kernel for CPUs has no gradient for it, and products take its place in any case.
        drop: Dropout of the weights.

    Raises:
        ValueError: an unknown impl.
    """
    if impl == "auto":
        impl = _overruled["attention"]
    if impl not in ("auto", "fused", "products"):
        raise ValueError(f"impl must be 'auto', 'fused' or 'products', got {impl!r}.")
    if is_recording():
        return "products"
    if impl != "auto":
        return impl
    # for ONNX, since the exporter's passes disagree on the layout of the fused kernel's output
    if not use_fused_attn() or torch.onnx.is_in_onnx_export():
        return "products"
    if _is_dropped_on_a_cpu(q, drop):
        return "products"
    if torch.compiler.is_compiling():  # a graph must not depend on the number of tokens
        return "fused"
    if mask is not None and mask.requires_grad and torch.is_grad_enabled() and q.is_cpu:
        return "products"
    return "products" if q.shape[2] * k.shape[2] <= PRODUCTS.get(_key(q), 0) else "fused"


def _is_dropped_on_a_cpu(q: Tensor, drop: float) -> bool:
    """Then whether a gradient follows must not choose: both passes of a checkpoint draw alike."""
    return drop > 0 and q.is_cpu


def piece() -> int:
    """Bytes of scores that inference on a CPU makes at a time."""
    return PIECE * min(torch.get_num_threads(), PIECE_THREADS)


def in_pieces(q: Tensor) -> bool:
    """Whether scores are made in pieces: in inference on a CPU that nothing looks into."""
    return in_plain_inference(q) and not is_recording()


def _key(q: Tensor) -> tuple[str, str, bool]:
    device = q.device.type
    dtype = q.dtype
    # Only asked where there are rules: the meta device has no autocast to ask for.
    if device in _DEVICES and dtype == torch.float32 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    precision = str(dtype).removeprefix("torch.")
    if precision == "float32" and not torch.compiler.is_compiling():  # which cannot ask
        precision += " by bfloat16" if precision_of_products(device) == "bf16" else ""
    return device, precision, torch.is_grad_enabled()
