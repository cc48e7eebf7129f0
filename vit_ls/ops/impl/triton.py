"""Window attention by kernels in Triton, for GPUs: no copies of keys, no masks, no stored scores.

A custom operator, so that `torch.compile` and `torch.export` keep one graph. The kernels are
imported where they first run: Triton comes with PyTorch for CUDA only.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from vit_ls.grid import partition
from vit_ls.ops.impl import triton_launch as launch
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.impl.triton_launch import Gradients, Inputs, Outputs

_TOO_OLD = (3, 4)
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def window_attention(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    drop: float = 0.0,
    *,
    num_heads: int,
) -> Tensor:
    """See `vit_ls.ops.window_attention`, whose row for GPUs this is."""
    assert drop == 0
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, kv, front = q.to(dtype), kv.to(dtype), None if front is None else front.to(dtype)
    out, _ = _attend(
        *(q, kv, front, positions.bias, positions.query, positions.key, positions.front),
        *(windows.valid, windows.window, windows.halo, num_heads),
    )
    return out


def why_not(q: Tensor, drop: float = 0.0) -> str | None:
    """Why the row cannot run on queries like these, or None where it can."""
    if drop > 0:
        return f"its kernels drop no attention weights, got drop={drop}"
    dtype = q.dtype
    if torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)
    return _why_not(q.device.type, dtype)


@torch.compiler.assume_constant_result
def _why_not(device: str, dtype: torch.dtype) -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed; it comes with PyTorch for CUDA on Linux"
    if dtype not in _DTYPES:
        return f"dtype must be bfloat16, float16 or float32, got {dtype}"
    if device != "cuda" and not _module("triton_kernels").INTERPRETED.value:
        return f"device must be a GPU (or TRITON_INTERPRET=1 set before, for tests), got {device}"
    return too_old()


def too_old() -> str | None:
    """Why the installed Triton cannot compile the kernels, or None where it can."""
    found = version("triton")
    if tuple(map(int, found.split(".")[:2])) > _TOO_OLD:
        return None
    return f"Triton must be newer than 3.4, which does not compile the kernels, got {found}"


@torch.library.custom_op("vit_ls::window_attention", mutates_args=())
def _attend(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    bias: Tensor | None,
    query_pos: Tensor | None,
    key_pos: Tensor | None,
    front_bias: Tensor | None,
    valid: Tensor | None,
    window: Sequence[int],
    halo: Sequence[int],
    num_heads: int,
) -> tuple[Tensor, Tensor]:
    """Out [B,H,W,C], and the base-2 logarithm of each query's softmax sum [B,h,H,W]."""
    inputs = _inputs(
        (q, kv, front, bias, query_pos, key_pos, front_bias, valid), window, halo, num_heads
    )
    _check(inputs)
    out, lse = _empty_outputs(q, num_heads)
    _run(launch.forward_call(launch.prepare(inputs), out, lse))
    return out, lse


@_attend.register_fake
def _(q: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    return _empty_outputs(q, arguments[-1])


@torch.library.custom_op("vit_ls::window_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    bias: Tensor | None,
    query_pos: Tensor | None,
    key_pos: Tensor | None,
    front_bias: Tensor | None,
    valid: Tensor | None,
    window: Sequence[int],
    halo: Sequence[int],
    num_heads: int,
) -> list[Tensor]:
    """Gradients of q, kv, and of those of the next five that are there, in their order."""
    inputs = launch.prepare(
        _inputs(
            (q, kv, front, bias, query_pos, key_pos, front_bias, valid), window, halo, num_heads
        )
    )
    gradients = _empty_gradients(inputs)
    for call in launch.backward_calls(inputs, Outputs(out, lse, grad.contiguous()), gradients):
        _run(call)
    sums: tuple[tuple[Tensor | None, Tensor | None], ...] = (
        (front, _sum(gradients.front, 1)),
        (bias, _sum(gradients.bias, 0)),
        (query_pos, _sum_of_places(gradients.q, query_pos)),
        (key_pos, _sum(gradients.key_pos, 0)),
        (front_bias, _sum(gradients.front_bias, (0, 1))),
    )
    given = [s.view(x.shape).to(x.dtype) for x, s in sums if x is not None and s is not None]
    return [gradients.q, gradients.kv, *given]


@_attend_backward.register_fake
def _(*arguments: Any) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in arguments[3:10] if x is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.window, ctx.halo, ctx.num_heads = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    nothing = (None,) * 4  # valid, window, halo, num_heads
    tensors = ctx.saved_tensors[2:]
    if grad is None:
        return (None,) * 7 + nothing
    arguments = (grad, *ctx.saved_tensors, ctx.window, ctx.halo, ctx.num_heads)
    given = iter(_attend_backward(*arguments))
    return *(None if x is None else next(given) for x in tensors[:7]), *nothing


_attend.register_autograd(_differentiate, setup_context=_save)


def _inputs(
    tensors: tuple[Any, ...], window: Sequence[int], halo: Sequence[int], num_heads: int
) -> Inputs:
    return Inputs._make((*tensors, (window[0], window[1]), (halo[0], halo[1]), num_heads))


def _check(inputs: Inputs) -> None:
    """Raise ValueError where a kernel would read what is not there."""
    q, front = inputs.q, inputs.front
    reason = why_not(q)
    if reason is not None:
        raise ValueError(f"impl='triton' cannot run here: {reason}.")
    B, H, W, C = q.shape
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


def _empty_outputs(q: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    B, H, W, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((B, num_heads, H, W), dtype=torch.float32)


def _empty_gradients(inputs: Inputs) -> Gradients:
    q, kv, front, bias, key_pos = (
        *(inputs.q, inputs.kv, inputs.front, inputs.bias, inputs.key_pos),
    )
    B, H, W, C = q.shape

    def sums(*shape: int) -> Tensor:
        return q.new_empty(shape, dtype=torch.float32)

    parts = front_parts = 0
    if bias is not None or key_pos is not None:
        parts = launch.table_parts(inputs)
    if front is not None:
        front_parts = launch.front_parts(inputs)
    tiles = launch.table_tiles(inputs)
    return Gradients(
        q=q.new_empty(q.shape),
        kv=kv.new_empty(kv.shape) if inputs.window[0] else kv.new_zeros(kv.shape),
        delta=sums(B, inputs.num_heads, H, W),
        front=None if front is None else sums(2, front_parts, *front.shape[1:]),
        front_bias=None
        if front is None or inputs.front_bias is None
        else sums(front_parts, B, *inputs.front_bias.shape),
        bias=None if bias is None else sums(parts, *bias.shape),
        key_pos=None
        if key_pos is None
        else sums(tiles * parts, key_pos.shape[0] * key_pos.shape[1], C),
    )


def _sum(parts: Tensor | None, dim: int | tuple[int, ...]) -> Tensor | None:
    return None if parts is None else parts.sum(dim)


def _sum_of_places(grad: Tensor, pos: Tensor | None) -> Tensor | None:
    """The gradient of queries [B,H,W,C], summed over windows for each place [a,b,C]."""
    if pos is None:
        return None
    windows = partition(grad, (pos.shape[0], pos.shape[1]))
    return windows.sum((0, 1, 2), dtype=torch.float32)


def _run(call: launch.Call) -> None:
    if call.programs == 0:  # of an empty batch
        return
    kernel = getattr(_module(call.module), call.kernel)
    kernel[(call.programs,)](**call.arguments, **call.options())


def _module(name: str) -> ModuleType:
    return import_module(f"vit_ls.ops.impl.{name}")
