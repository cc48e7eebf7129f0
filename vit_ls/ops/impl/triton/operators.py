"""The Triton row as PyTorch sees it: one operator and one for its gradients.

They are custom ones, so that `torch.compile` and `torch.export` keep one graph.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from vit_ls.grid import partition
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.impl.triton import launch, tiles
from vit_ls.ops.impl.triton.launch import Gradients, Outputs
from vit_ls.ops.impl.triton.support import autocast_dtype, check, check_tangents
from vit_ls.ops.impl.triton.tiles import Inputs


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
    check_tangents(q, kv, front, *positions)
    dtype = autocast_dtype(q)
    if dtype is not None:
        q, kv, front = q.to(dtype), kv.to(dtype), None if front is None else front.to(dtype)
    out, _ = _attend(
        *(q, kv, front, positions.bias, positions.query, positions.key, positions.front),
        *(windows.valid, windows.window, windows.halo, num_heads),
    )
    return out


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
    check(inputs)
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
    of_keys = _sum(gradients.key_pos, 0)
    sums = (
        (front, _sum(gradients.front, 1)),
        (bias, _sum_of_blocks(gradients.bias, inputs)),
        (query_pos, _sum_of_places(gradients.q, query_pos)),
        (key_pos, _sum_of_places(gradients.kv[0], key_pos) if of_keys is None else of_keys),
        (front_bias, _sum(gradients.front_bias, (0, 1))),
    )
    # a bias of no keys in front has no sum
    given = [
        x.new_zeros(x.shape) if s is None else s.view(x.shape).to(x.dtype)
        for x, s in sums
        if x is not None
    ]
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
    if grad is None:
        return (None,) * 7 + nothing
    out, lse, *tensors = ctx.saved_tensors  # once: a checkpoint gives them no second time
    arguments = (grad, out, lse, *tensors, ctx.window, ctx.halo, ctx.num_heads)
    given = iter(_attend_backward(*arguments))
    return *(None if x is None else next(given) for x in tensors[:7]), *nothing


_attend.register_autograd(_differentiate, setup_context=_save)


def _inputs(
    tensors: tuple[Any, ...], window: Sequence[int], halo: Sequence[int], num_heads: int
) -> Inputs:
    return Inputs._make((*tensors, (window[0], window[1]), (halo[0], halo[1]), num_heads))


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

    a, b = tiles.block_size(inputs)
    parts = tiles.parts(inputs)
    front_parts = 0 if front is None else tiles.front_parts(inputs)
    query_tiles = tiles.query_tiles(inputs, tiles.with_sums(inputs))
    return Gradients(
        q=q.new_empty(q.shape),
        kv=kv.new_empty(kv.shape) if inputs.window[0] else kv.new_zeros(kv.shape),
        delta=sums(B, inputs.num_heads, H, W),
        front=None if front is None else sums(2, front_parts, *front.shape[1:]),
        front_bias=None
        if front is None or inputs.front_bias is None
        else sums(front_parts, B, *inputs.front_bias.shape),
        bias=None if bias is None else sums(parts, len(bias), a * b, bias.shape[2]).zero_(),
        key_pos=sums(query_tiles * parts, key_pos.shape[0] * key_pos.shape[1], C).zero_()
        if key_pos is not None and tiles.sums_keys(inputs)
        else None,
    )


def _sum(parts: Tensor | None, dim: int | tuple[int, ...]) -> Tensor | None:
    return None if parts is None else parts.sum(dim)


def _sum_of_blocks(parts: Tensor | None, inputs: Inputs) -> Tensor | None:
    """Of the bias [parts,h,BA*BW,K]: each window of a block has a sum of its own -> [h,a,b,K]."""
    if parts is None:
        return None
    (a, b), (A, B) = tiles.window(inputs), tiles.block_size(inputs)
    windows = parts.unflatten(2, (A // a, a, B // b, b))
    return windows.sum((0, 2, 4))


def _sum_of_places(grad: Tensor, pos: Tensor | None) -> Tensor | None:
    """The gradient of queries or keys [B,H,W,C], summed over windows for each place [a,b,C]."""
    if pos is None:
        return None
    windows = partition(grad, (pos.shape[0], pos.shape[1]))
    return windows.sum((0, 1, 2), dtype=torch.float32)


def _run(call: launch.Call) -> None:
    if call.programs == 0:  # of an empty batch
        return
    kernel = getattr(launch.kernels_of(call.module), call.kernel)
    device = call.arguments["q"].device
    # Triton launches on the current device, which need not be that of the tensors
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[(call.programs,)](**call.arguments, **call.options())
