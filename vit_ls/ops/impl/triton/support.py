"""Where the Triton row can run, and what of its inputs no kernel may read."""

from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.autograd import forward_ad

from vit_ls.ops.impl.triton.launch import kernels_of
from vit_ls.ops.impl.triton.tiles import Inputs
from vit_ls.ops.softmax_attention import check_heads

_TOO_OLD = (3, 4)
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def why_not(q: Tensor, drop: float = 0.0) -> str | None:
    """Why the row cannot run on queries like these, or None where it can."""
    if drop > 0:
        return f"its kernels drop no attention weights, got drop={drop}"
    return _why_not(q.device.type, autocast_dtype(q) or q.dtype)


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """What autocast narrows `x` to, where it is on; the meta device has none to ask for."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return None


@torch.compiler.assume_constant_result
def _why_not(device: str, dtype: torch.dtype) -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed; it comes with PyTorch for CUDA on Linux"
    if dtype not in _DTYPES:
        return f"dtype must be bfloat16, float16 or float32, got {dtype}"
    if device != "cuda" and not kernels_of("kernels").INTERPRETED.value:
        return f"device must be a GPU (or TRITON_INTERPRET=1 set before, for tests), got {device}"
    return too_old()


def too_old() -> str | None:
    """Why the installed Triton cannot compile the kernels, or None where it can."""
    found = import_module("triton").__version__  # whatever distribution it came with
    if tuple(map(int, found.split(".")[:2])) > _TOO_OLD:
        return None
    return f"Triton must be newer than 3.4, which does not compile the kernels, got {found}"


def check_tangents(*inputs: Tensor | None) -> None:
    """Raise ValueError for forward-mode derivatives, which PyTorch would take for zero."""
    if torch.compiler.is_compiling():
        return
    for x in inputs:
        if x is not None and forward_ad.unpack_dual(x).tangent is not None:
            raise ValueError(
                "impl='triton' has no forward-mode derivatives, got an input with a tangent."
            )


def check(inputs: Inputs) -> None:
    """Raise ValueError where a kernel would read what is not there."""
    q, front = inputs.q, inputs.front
    reason = why_not(q)
    if reason is not None:
        raise ValueError(f"impl='triton' cannot run here: {reason}.")
    B, H, W, C = q.shape
    check_heads(C, inputs.num_heads)
    h, ((a, b), (sa, sb)) = inputs.num_heads, (inputs.window, inputs.halo)
    T, K = a * b, (a + 2 * sa) * (b + 2 * sb)
    E = 0 if front is None else front.shape[2]
    for name, x, shape in (
        ("kv", inputs.kv, (2, B, H, W, C)),
        ("front", front, (2, B, E, C)),
        ("positions.bias", inputs.bias, (h, T, K)),
        ("positions.query", inputs.query_pos, (a, b, C)),
        ("positions.key", inputs.key_pos, (a + 2 * sa, b + 2 * sb, C)),
        ("positions.front", inputs.front_bias, (h, E)),
        ("windows.valid", inputs.valid, (B, H, W)),
    ):
        if x is not None and (x.shape != shape or x.device != q.device):
            raise ValueError(
                f"{name} must be {list(shape)} on {q.device}, got {list(x.shape)} on {x.device}."
            )
    for name, x in (("kv", inputs.kv), ("front", front)):
        if x is not None and x.dtype != q.dtype:
            raise ValueError(f"{name} must have the dtype of q, {q.dtype}, got {x.dtype}.")
