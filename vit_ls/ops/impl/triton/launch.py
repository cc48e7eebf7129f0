"""How the kernels of the Triton row are called: their arguments, tiles and numbers of programs.

A call is data, made without Triton, so that the same calls are run on a GPU and compiled without
one.
"""

from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vit_ls.ops.impl.triton import tiles
from vit_ls.ops.impl.triton.tiles import Inputs


class Call(NamedTuple):
    """One launch of a kernel."""

    module: str
    """"kernels", "queries" or "keys"."""
    kernel: str
    programs: int
    arguments: dict[str, Any]
    """Tensors, numbers and None, by the kernel's names for them."""
    num_warps: int
    num_stages: int

    def options(self) -> dict[str, Any]:
        """How it is compiled; fused multiply-adds are named since Triton's default changes."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        # else `ptxas` spills 8 or 16 bytes to run more programs at a time; ROCm has no such option
        if self.num_stages == 1 and not torch.version.hip:
            options["maxnreg"] = tiles.REGISTERS
        return options | {"enable_fp_fusion": True}


def kernels_of(module: str) -> ModuleType:
    """A module of kernels, imported where it is first needed."""
    return import_module(f"vit_ls.ops.impl.triton.{module}")


class Outputs(NamedTuple):
    """What the forward gives, and the gradient of its first."""

    out: Tensor
    lse: Tensor
    grad: Tensor


class Gradients(NamedTuple):
    """What the backward writes; sums stand in parts in the dimension before their own.

    Those over windows start at zero, since the kernel adds to them.
    """

    q: Tensor
    kv: Tensor
    delta: Tensor
    front: Tensor | None
    """[2,parts,B,E,C]"""
    front_bias: Tensor | None
    """[parts,B,h,E]"""
    bias: Tensor | None
    """[parts,h,BA*BW,K], of a block of windows"""
    key_pos: Tensor | None
    """[tiles*parts,K,C]; None where it is a sum of the gradients of keys"""


def prepare(inputs: Inputs) -> Inputs:
    """The inputs as the kernels read them: channels side by side, tables contiguous.

    Grids whose channels lie side by side, which is what linear layers give, are not copied.
    """
    tables = (inputs.bias, inputs.query_pos, inputs.key_pos, inputs.front_bias, inputs.valid)
    bias, query_pos, key_pos, front_bias, valid = (
        None if x is None else x.contiguous() for x in tables
    )
    q, kv, front = (
        x if x is None or x.stride(-1) == 1 else x.contiguous()
        for x in (inputs.q, inputs.kv, inputs.front)
    )
    assert q is not None and kv is not None
    return inputs._replace(
        q=q,
        kv=kv,
        front=front,
        bias=bias,
        query_pos=query_pos,
        key_pos=key_pos,
        front_bias=front_bias,
        valid=valid,
    )


def forward_call(inputs: Inputs, out: Tensor, lse: Tensor) -> Call:
    """The forward, which writes `out` [B,H,W,C] and `lse` [B,h,H,W]."""
    blocks = tiles.by_queries(inputs)
    arguments = _common(inputs) | _front(inputs) | blocks | {"out": out, "lse": lse}
    warps = tiles.warps(inputs, 4 if blocks["BLOCK_T"] > 16 else 2)
    programs = tiles.count_blocks(inputs) * inputs.num_heads * tiles.query_tiles(inputs, blocks)
    return Call("kernels", "forward", programs, arguments, warps, tiles.stages(inputs))


def backward_calls(inputs: Inputs, outputs: Outputs, gradients: Gradients) -> list[Call]:
    """The backward, in order: the first writes delta, which the others read."""
    given = {"lse": outputs.lse, "grad": outputs.grad, "delta": gradients.delta}
    calls = [_queries(inputs, outputs, gradients)]
    if inputs.window[0]:
        calls.append(_keys(inputs, gradients, given))
    if inputs.front is not None:
        calls.append(_front_keys(inputs, gradients, given))
    return calls


def _queries(inputs: Inputs, outputs: Outputs, gradients: Gradients) -> Call:
    blocks = tiles.with_sums(inputs)
    parts = tiles.parts(inputs)
    arguments = _common(inputs) | _front(inputs) | blocks | outputs._asdict()
    arguments |= {"B": inputs.q.shape[0], "parts": parts, "delta": gradients.delta}
    arguments |= {"grad_q": gradients.q, "grad_bias": gradients.bias}
    arguments |= {"grad_key_pos": gradients.key_pos}
    warps = tiles.warps(inputs, 4 if blocks["BLOCK_T"] > 16 else 2)
    programs = parts * inputs.num_heads * tiles.query_tiles(inputs, blocks)
    return Call("queries", "queries", programs, arguments, warps, tiles.stages(inputs))


def _keys(inputs: Inputs, gradients: Gradients, given: dict[str, Tensor]) -> Call:
    (a, b), (sa, sb) = tiles.block_size(inputs), inputs.halo
    halves = [2 if w >= 6 and 0 < 2 * s <= w else 1 for w, s in ((a, sa), (b, sb))]
    part = (a - sa * (halves[0] - 1)) * (b - sb * (halves[1] - 1))
    blocks = {
        "BLOCK_T": tiles.block(a * b, tiles.wide(inputs)),
        "BLOCK_J": tiles.block(part, 16 if inputs.bias is not None or tiles.placed(inputs) else 32),
        "HALVES_A": halves[0],
        "HALVES_W": halves[1],
    }
    arguments = _common(inputs) | given | blocks
    arguments |= {"grad_k": gradients.kv[0], "grad_v": gradients.kv[1]}
    del arguments["KEYS"]
    parts = halves[0] * halves[1] * -(-part // blocks["BLOCK_J"])
    programs = tiles.count_blocks(inputs) * inputs.num_heads * parts
    return Call("keys", "keys", programs, arguments, tiles.warps(inputs, 4), tiles.stages(inputs))


def _front_keys(inputs: Inputs, gradients: Gradients, given: dict[str, Tensor]) -> Call:
    assert inputs.front is not None and gradients.front is not None
    B, E = inputs.front.shape[1:3]
    blocks = {"BLOCK_T": tiles.wide(inputs), "BLOCK_E": tiles.block(E, 32)}
    arguments = _common(inputs) | _front(inputs) | given | blocks
    arguments |= {"B": B, "PART": tiles.FRONT_PART, "grad_bias": gradients.front_bias}
    arguments |= {"grad_k": gradients.front[0], "grad_v": gradients.front[1]}
    absent = "k v bias key_pos valid kv_b kv_y kv_x K KEYS SA SW GA GW"
    arguments = {name: x for name, x in arguments.items() if name not in absent.split()}
    programs = B * inputs.num_heads * tiles.front_parts(inputs) * -(-E // blocks["BLOCK_E"])
    warps = tiles.warps(inputs, 4) if blocks["BLOCK_E"] > 16 else 4
    return Call("keys", "front_keys", programs, arguments, warps, tiles.stages(inputs))


def _common(inputs: Inputs) -> dict[str, Any]:
    """What all kernels take."""
    q, kv = inputs.q, inputs.kv
    H, W, C = q.shape[1:]
    (a, b), (sa, sb) = tiles.window(inputs), inputs.halo
    A, W_ = tiles.block_size(inputs)
    D = C // inputs.num_heads
    return {
        "q": q,
        "k": kv[0],
        "v": kv[1],
        "bias": inputs.bias,
        "valid": inputs.valid,
        "query_pos": inputs.query_pos,
        "key_pos": inputs.key_pos,
        "H": H,
        "W": W,
        "heads": inputs.num_heads,
        "scale": D**-0.5,
        **dict(zip(("q_b", "q_y", "q_x"), q.stride(), strict=False)),
        **dict(zip(("kv_b", "kv_y", "kv_x"), kv.stride()[1:], strict=False)),
        "A": a,
        "W_": b,
        "SA": sa,
        "SW": sb,
        "GA": A // a,
        "GW": W_ // b,
        "K": (a + 2 * sa) * (b + 2 * sb) if inputs.window[0] else 0,
        "KEYS": (A + 2 * sa) * (W_ + 2 * sb) if inputs.window[0] else 0,
        "D": D,
        "BLOCK_D": max(tiles.power(D), 16),
        "PRECISION": tiles.precision(),
    }


def _front(inputs: Inputs) -> dict[str, Any]:
    """What kernels take that see the keys in front."""
    front = inputs.front
    if front is None:
        none = dict.fromkeys(("front_k", "front_v", "front_bias"))
        return none | dict.fromkeys(("front_b", "front_e", "E"), 0)
    return {
        "front_k": front[0],
        "front_v": front[1],
        "front_bias": inputs.front_bias,
        "front_b": front.stride(1),
        "front_e": front.stride(2),
        "E": front.shape[2],
    }
