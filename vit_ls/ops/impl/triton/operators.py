"""The Triton row as PyTorch sees it: one operator and one for its gradients.

They are custom ones, so that `torch.compile` and `torch.export` keep one graph.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vit_ls.grid import partition
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.impl.triton import launch, tiles
from vit_ls.ops.impl.triton.launch import Gradients, Outputs
from vit_ls.ops.impl.triton.support import check
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
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
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
        parts = tiles.table_parts(inputs)
    if front is not None:
        front_parts = tiles.front_parts(inputs)
    query_tiles = tiles.table_tiles(inputs)
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
        else sums(query_tiles * parts, key_pos.shape[0] * key_pos.shape[1], C),
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
    kernel = getattr(launch.kernels_of(call.module), call.kernel)
    kernel[(call.programs,)](**call.arguments, **call.options())
