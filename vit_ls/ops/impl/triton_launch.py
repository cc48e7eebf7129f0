"""How the kernels of the Triton row are called: their arguments, tiles and numbers of programs.

A call is data, made without Triton, so that the same calls are run on a GPU and compiled without
one.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vit_ls.ops.rules import precision_of_products

PARTS = 64
"""Parts that the windows of a batch are summed in, for the gradients of bias and key positions."""
FRONT_PART = 1024
"""Tokens that are summed in one part, for the gradients of keys in front."""
REGISTERS = 255
"""The most that a thread can have."""
NO_WINDOW = (8, 8)
"""How the grid is cut where queries see no window: any cut gives the same numbers."""


class Call(NamedTuple):
    """One launch of a kernel."""

    module: str
    """"triton_kernels" or "triton_backward"."""
    kernel: str
    programs: int
    arguments: dict[str, Any]
    """Tensors, numbers and None, by the kernel's names for them."""
    num_warps: int
    num_stages: int

    def options(self) -> dict[str, Any]:
        """How it is compiled; fused multiply-adds are named since Triton's default changes."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        if self.num_stages == 1:  # else `ptxas` spills 8 or 16 bytes to run more programs at a time
            options["maxnreg"] = REGISTERS
        return options | {"enable_fp_fusion": True}


class Inputs(NamedTuple):
    """What forward and backward read, as `vit_ls.ops.impl.window_attention` gets it."""

    q: Tensor
    kv: Tensor
    front: Tensor | None
    bias: Tensor | None
    query_pos: Tensor | None
    key_pos: Tensor | None
    front_bias: Tensor | None
    valid: Tensor | None
    window: tuple[int, int]
    halo: tuple[int, int]
    num_heads: int


class Outputs(NamedTuple):
    """What the forward gives, and the gradient of its first."""

    out: Tensor
    lse: Tensor
    grad: Tensor


class Gradients(NamedTuple):
    """What the backward writes; sums stand in parts in the dimension before their own."""

    q: Tensor
    kv: Tensor
    delta: Tensor
    front: Tensor | None
    """[2,parts,B,E,C]"""
    front_bias: Tensor | None
    """[parts,B,h,E]"""
    bias: Tensor | None
    """[parts,h,T,K]"""
    key_pos: Tensor | None
    """[parts,K,C]"""


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
    tiles = _by_queries(inputs)
    arguments = _common(inputs) | _front(inputs) | tiles | {"out": out, "lse": lse}
    warps = _warps(inputs, 4 if tiles["BLOCK_T"] > 16 else 2)
    programs = _query_programs(inputs, tiles)
    return Call("triton_kernels", "forward", programs, arguments, warps, _stages(inputs))


def backward_calls(inputs: Inputs, outputs: Outputs, gradients: Gradients) -> list[Call]:
    """The backward, in order: the first writes delta, which the others read."""
    given = {"lse": outputs.lse, "grad": outputs.grad, "delta": gradients.delta}
    calls = [_queries(inputs, outputs, gradients)]
    if inputs.window[0]:
        calls.append(_keys(inputs, gradients, given))
    if inputs.front is not None:
        calls.append(_front_keys(inputs, gradients, given))
    if gradients.bias is not None or gradients.key_pos is not None:
        calls.append(_tables(inputs, gradients, given))
    return calls


def count_windows(inputs: Inputs) -> int:
    """N of the whole batch."""
    B, H, W, _ = inputs.q.shape
    a, b = _window(inputs)
    return B * -(-H // a) * -(-W // b)


def table_parts(inputs: Inputs) -> int:
    """Parts that windows are summed in; by the batch alone, so that every GPU gives one sum."""
    return max(min(PARTS, count_windows(inputs)), 1)


def front_parts(inputs: Inputs) -> int:
    """Parts that the tokens of an image are summed in."""
    return -(-inputs.q.shape[1] * inputs.q.shape[2] // FRONT_PART)


def table_tiles(inputs: Inputs) -> int:
    """Tiles of the queries of a window, which the gradient of key positions is summed over too."""
    return -(-_tokens(inputs) // _table_blocks(inputs)["BLOCK_T"])


def _queries(inputs: Inputs, outputs: Outputs, gradients: Gradients) -> Call:
    tiles = _by_queries(inputs)
    arguments = _common(inputs) | _front(inputs) | tiles | outputs._asdict()
    arguments |= {"grad_q": gradients.q, "delta": gradients.delta}
    warps = _warps(inputs, 4 if tiles["BLOCK_T"] > 16 else 2)
    programs = _query_programs(inputs, tiles)
    return Call("triton_backward", "queries", programs, arguments, warps, _stages(inputs))


def _keys(inputs: Inputs, gradients: Gradients, given: dict[str, Tensor]) -> Call:
    (a, b), (sa, sb) = _window(inputs), inputs.halo
    halves = [2 if w >= 6 and 0 < 2 * s <= w else 1 for w, s in ((a, sa), (b, sb))]
    part = (a - sa * (halves[0] - 1)) * (b - sb * (halves[1] - 1))
    tiles = {
        "BLOCK_T": _block(a * b, _wide(inputs)),
        "BLOCK_J": _block(part, 16 if inputs.bias is not None or _placed(inputs) else 32),
        "HALVES_A": halves[0],
        "HALVES_W": halves[1],
    }
    arguments = _common(inputs) | given | tiles
    arguments |= {"grad_k": gradients.kv[0], "grad_v": gradients.kv[1]}
    parts = halves[0] * halves[1] * -(-part // tiles["BLOCK_J"])
    programs = count_windows(inputs) * inputs.num_heads * parts
    return Call("triton_backward", "keys", programs, arguments, _warps(inputs, 4), _stages(inputs))


def _front_keys(inputs: Inputs, gradients: Gradients, given: dict[str, Tensor]) -> Call:
    assert inputs.front is not None and gradients.front is not None
    B, E = inputs.front.shape[1:3]
    tiles = {"BLOCK_T": _wide(inputs), "BLOCK_E": _block(E, 32)}
    arguments = _common(inputs) | _front(inputs) | given | tiles
    arguments |= {"B": B, "PART": FRONT_PART, "grad_bias": gradients.front_bias}
    arguments |= {"grad_k": gradients.front[0], "grad_v": gradients.front[1]}
    for absent in ("k", "v", "bias", "key_pos", "valid", "kv_b", "kv_y", "kv_x", "K", "SA", "SW"):
        del arguments[absent]
    programs = B * inputs.num_heads * front_parts(inputs) * -(-E // tiles["BLOCK_E"])
    warps = _warps(inputs, 4) if tiles["BLOCK_E"] > 16 else 4
    return Call("triton_backward", "front_keys", programs, arguments, warps, _stages(inputs))


def _tables(inputs: Inputs, gradients: Gradients, given: dict[str, Tensor]) -> Call:
    blocks = _table_blocks(inputs)
    parts = table_parts(inputs)
    arguments = _common(inputs) | given | blocks
    arguments |= {"B": inputs.q.shape[0], "parts": parts}
    arguments |= {"grad_bias": gradients.bias, "grad_key_pos": gradients.key_pos}
    key_tiles = -(-arguments["K"] // blocks["BLOCK_K"])
    programs = parts * inputs.num_heads * table_tiles(inputs) * key_tiles
    warps = _warps(inputs, 4)
    return Call("triton_backward", "tables", programs, arguments, warps, _stages(inputs))


def _common(inputs: Inputs) -> dict[str, Any]:
    """What all kernels take."""
    q, kv = inputs.q, inputs.kv
    H, W, C = q.shape[1:]
    (a, b), (sa, sb) = _window(inputs), inputs.halo
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
        "K": (a + 2 * sa) * (b + 2 * sb) if inputs.window[0] else 0,
        "D": D,
        "BLOCK_D": max(_power(D), 16),
        "PRECISION": _precision(),
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


def _by_queries(inputs: Inputs) -> dict[str, int]:
    """Tiles of queries and, of half their side, keys: whole ones spill registers on sm_80.

    So do the smallest tiles of keys where products are exact.
    """
    (a, b), (sa, sb) = _window(inputs), inputs.halo
    E = 1 if inputs.front is None else inputs.front.shape[2]
    return {
        "BLOCK_T": _block(a * b, _wide(inputs)),
        "BLOCK_E": _block(E, 32),
        "BLOCK_K": 32 if _exact(inputs) else _block((a + 2 * sa) * (b + 2 * sb), 32),
    }


def _table_blocks(inputs: Inputs) -> dict[str, int]:
    blocks = _by_queries(inputs)
    del blocks["BLOCK_E"]
    if _placed(inputs):
        blocks["BLOCK_T"] = min(blocks["BLOCK_T"], 32)
    return blocks


def _placed(inputs: Inputs) -> bool:
    """Whether places add to keys, for which larger tiles spill registers in the backward."""
    return inputs.key_pos is not None


def _query_programs(inputs: Inputs, tiles: dict[str, int]) -> int:
    return count_windows(inputs) * inputs.num_heads * -(-_tokens(inputs) // tiles["BLOCK_T"])


def _window(inputs: Inputs) -> tuple[int, int]:
    return inputs.window if inputs.window[0] else NO_WINDOW


def _tokens(inputs: Inputs) -> int:
    """T of what the grid is cut into."""
    a, b = _window(inputs)
    return a * b


def _wide(inputs: Inputs) -> int:
    """The largest side of a tile: in float32 a tile takes twice the registers."""
    return 32 if inputs.q.dtype == torch.float32 else 64


def _warps(inputs: Inputs, warps: int) -> int:
    """Of a program: twice as many for exact products of float32, whose registers spill else."""
    return 2 * warps if _exact(inputs) else warps


def _stages(inputs: Inputs) -> int:
    """Of a loop's loads: exact products of float32 spill registers beside loads made ahead."""
    return 1 if _exact(inputs) else 2


def _exact(inputs: Inputs) -> bool:
    """Whether products are of float32 and exact, which no tensor core makes."""
    return inputs.q.dtype == torch.float32 and _precision() == "ieee"


def _precision() -> str:
    """Of float32 products."""
    return "ieee" if precision_of_products("cuda") == "ieee" else "tf32"


def _block(size: int, largest: int) -> int:
    """Side of the tiles that cover `size`; a product of matrices takes at least 16."""
    return min(max(_power(size), 16), largest)


def _power(size: int) -> int:
    """The least power of 2 that is not less than `size`."""
    return 1 << (size - 1).bit_length()
