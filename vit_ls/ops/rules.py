"""Which implementation runs: the faster one by device, dtype and shape, unless told otherwise.

Each number is a measurement that `python -m benchmarks.rules` repeats. What was measured on
no such machine has no rule and takes the fused kernel of PyTorch. While somebody asks for the
attention weights (`recording`), every op goes through explicit products in one piece, which have
them at hand.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from timm.layers import use_fused_attn
from torch import Tensor

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

ROWS_PIECE = 2**25
"""Bytes of the widest tensor for some rows of a large grid. Memory of more than that glibc always
gives back to Linux (`DEFAULT_MMAP_THRESHOLD_MAX`), which clears each page of the next one: 3.7 s of
the 12.6 s that cvt_ls_13 took for 2048 x 2048 pixels on one thread. No other size was timed."""

PIECE_THREADS = 16
"""Threads beyond these add nothing to a piece, whose memory would be large on large machines."""

FUSED_HEADS = 65_535
"""Heads, times windows, that one call of the fused kernel gets. Those of CUDA count them in a
dimension of the launch that has no more (https://github.com/pytorch/pytorch/issues/142228)."""

MASK_GRADIENT = 2**26
"""Bytes of a learned mask's gradient that one call of the fused kernel makes. Those of CUDA make
one for each image, though all images share the mask, and then add them up."""

MASK_GRADIENT_DEVICES = {"cuda"}

_DEVICES = {device for device, _, _ in PRODUCTS}

Precision = Literal["ieee", "tf32", "bf16"]
"""Exact, or with factors rounded to TF32 or to bfloat16."""

_PRECISIONS: dict[str, Precision] = {
    "none": "ieee",  # nobody asked for less
    "ieee": "ieee",
    "tf32": "tf32",
    "bf16": "bf16",
    "highest": "ieee",
    "high": "tf32",
    "medium": "bf16",
}

Weights = Literal["projection", "windows", "tokens"]
"""Of what attention: P of a dynamic projection [B,h,R,N]; windows with the keys in front of them
[B,h,N,T,E+K]; one set of queries over one set of keys [B,h,T,K]."""

Sink = Callable[[Weights, Tensor], None]


class Plan(NamedTuple):
    """What runs on a grid, decided once for all layers that share it."""

    windows: str
    """A row of `vit_ls.ops.impl.IMPLEMENTATIONS`."""
    dtype: torch.dtype
    """Of queries, keys, values and scores in inference on a CPU."""
    piece: int
    """Bytes of scores that it makes at a time there; 0 elsewhere, for all of them."""
    large: bool
    """Whether it takes a grid by some rows at a time."""
    key: tuple[str, str, bool]
    """Of the rules: device, precision, whether a backward pass follows."""


def plan(x: Tensor, windows: str) -> Plan:
    """That for queries like x [B,H,W,C], or for what a linear layer makes of x."""
    bytes_of_piece = piece() if in_pieces(x) else 0
    large = bytes_of_piece > 0 and is_large(x, 3 * x.shape[2] * x.shape[3])
    return Plan(windows, dtype_of_products(x), bytes_of_piece, large, _key(x))


class _Sinks(threading.local):
    """Of each thread its own: what another thread computes is no business of a recording."""

    def __init__(self) -> None:
        self.now: list[Sink] = []


_sinks = _Sinks()

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
    impl = _told("windows", impl)
    if impl != "auto":
        return impl
    if torch.onnx.is_in_onnx_export():
        return "gathered"
    # whether a gradient follows must not choose: both passes of a checkpoint draw alike
    if not use_fused_attn() or (drop > 0 and q.is_cpu):
        return "products"
    key = _key(q)
    if keys > WINDOW_PRODUCTS.get(key, 0):
        return "tiled"
    return "gathered" if key in GATHERED else "products"


def choose_attention(
    impl: str,
    q: Tensor,
    k: Tensor,
    mask: Tensor | None = None,
    drop: float = 0.0,
    plan: Plan | None = None,
) -> str:
    """For queries [B,h,T,d] and keys [B,h,K,d]: `impl`, or "fused" or "products" for "auto".

    Args:
        impl: "auto", "fused" or "products".
        q: For its device, its dtype and T.
        k: For K.
        mask: Added to the scores. One that learns is no matter of speed alone: PyTorch's fused
            kernel for CPUs has no gradient for it, and products take its place in any case.
        drop: Dropout of the weights.
        plan: Of the grid that these are of, if there is one.

    Raises:
        ValueError: an unknown impl.
    """
    impl = _told("attention", impl)
    if impl not in ("auto", "fused", "products"):
        raise ValueError(f"impl must be 'auto', 'fused' or 'products', got {impl!r}.")
    if impl != "auto":
        return impl
    # for ONNX, since the exporter's passes disagree on the layout of the fused kernel's output
    if not use_fused_attn() or torch.onnx.is_in_onnx_export() or (drop > 0 and q.is_cpu):
        return "products"
    if torch.compiler.is_compiling():  # a graph must not depend on the number of tokens
        return "fused"
    if mask is not None and mask.requires_grad and torch.is_grad_enabled() and q.is_cpu:
        return "products"
    key = _key(q) if plan is None else plan.key
    return "products" if q.shape[2] * k.shape[2] <= PRODUCTS.get(key, 0) else "fused"


def _told(what: str, impl: str) -> str:
    """What runs whatever the rules say: whoever records comes first. Else "auto"."""
    if not torch.compiler.is_compiling() and _sinks.now:
        return "products"
    return _overruled[what] if impl == "auto" else impl


def images_at_a_time(q: Tensor, k: Tensor, mask: Tensor | None) -> int:
    """Images that one call of the fused kernel gets, of queries [B,h,T,d] and keys [B,h,K,d]."""
    B, h, T, _ = q.shape
    if mask is None or mask.shape[0] > 1 or q.device.type not in MASK_GRADIENT_DEVICES:
        return B
    if torch.compiler.is_exporting() or not (mask.requires_grad and torch.is_grad_enabled()):
        return B
    return max(MASK_GRADIENT // (h * T * k.shape[2] * q.element_size()), 1)


def piece() -> int:
    """Bytes of scores that inference on a CPU makes at a time."""
    return PIECE * min(torch.get_num_threads(), PIECE_THREADS)


def in_pieces(q: Tensor) -> bool:
    """Whether scores are made in pieces: in inference on a CPU that nothing looks into."""
    return in_plain_inference(q) and not _sinks.now


def is_large(x: Tensor, row: int) -> bool:
    """Whether a grid x [B,H,...] with `row` numbers in each row is taken in pieces."""
    # first what a graph or a trace must not be asked
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or type(x) is not Tensor:
        return False
    if x.shape[0] * x.shape[1] * row * x.element_size() <= ROWS_PIECE or torch.is_grad_enabled():
        return False
    return is_eager() and not is_recording()


def in_plain_inference(x: Tensor) -> bool:
    """Whether x is on a CPU, and nothing traces, transforms or differentiates."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.is_cpu
    return plain and is_eager() and not torch.is_grad_enabled()


def is_eager() -> bool:
    """Whether nothing traces or transforms what is computed."""
    return (
        not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch._C._functorch.maybe_current_level()
    )


def is_unobserved() -> bool:
    """Whether nothing traces, transforms, differentiates or records what is computed."""
    return is_eager() and not torch.is_grad_enabled() and not _sinks.now


@contextmanager
def recording(sink: Sink) -> Iterator[None]:
    """Give all attention weights of this thread within a `with` block to `sink`, too."""
    _sinks.now.append(sink)
    try:
        yield
    finally:
        _sinks.now.remove(sink)


def is_recording() -> bool:
    """Whether somebody asks for weights; never in a graph, which outlives the asking."""
    return not torch.compiler.is_compiling() and bool(_sinks.now)


def hand_over(kind: Weights, weights: Tensor) -> None:
    """Give weights to whoever asks for them."""
    if not torch.compiler.is_compiling():
        for sink in _sinks.now:
            sink(kind, weights)


def _key(q: Tensor) -> tuple[str, str, bool]:
    device = q.device.type
    precision = str(dtype_of_products(q)).removeprefix("torch.")
    if precision == "float32" and not torch.compiler.is_compiling():  # which cannot ask
        precision += " by bfloat16" if precision_of_products(device) == "bf16" else ""
    return device, precision, torch.is_grad_enabled()


def precision_of_products(device: str) -> Precision:
    """In what a device multiplies matrices of float32, as PyTorch is told at present.

    `torch.get_float32_matmul_precision` cannot be asked: it raises where anybody has used the
    switches of PyTorch 2.9 (`torch.backends.fp32_precision` and those of the backends). Before 2.9
    there is nothing else.

    Args:
        device: Its type; for all but "cpu" the switch of CUDA counts.
    """
    if hasattr(torch.backends, "fp32_precision"):
        backend = torch.backends.mkldnn if device == "cpu" else torch.backends.cuda
        return _PRECISIONS[backend.matmul.fp32_precision]
    old = torch.get_float32_matmul_precision()
    return "tf32" if old == "medium" and device != "cpu" else _PRECISIONS[old]


def dtype_of_products(x: Tensor) -> torch.dtype:
    """What matrix products of tensors like `x` are computed in: autocast narrows float32."""
    device = x.device.type  # "meta" has no autocast to ask for
    if x.dtype == torch.float32 and device != "meta" and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype
