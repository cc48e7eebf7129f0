"""Into what tiles, programs and parts the work of a call is cut, and with how many warps."""

from typing import NamedTuple

import torch
from torch import Tensor

from vit_ls.ops.rules import precision_of_products

PROGRAMS = 1024
"""That sum over windows, for the gradients of bias and key positions, at least if there are so many
windows. Each has sums of its own in memory."""
FRONT_PART = 1024
"""Tokens that are summed in one part, for the gradients of keys in front."""
REGISTERS = 255
"""The most that a thread can have."""
SMALLEST = 16
"""Rows of the smallest tile: a product of matrices takes at least so many."""
NO_WINDOW = (8, 8)
"""How the grid is cut where queries see no window: any cut gives the same numbers."""


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


def window(inputs: Inputs) -> tuple[int, int]:
    """What the grid is cut into."""
    return inputs.window if inputs.window[0] else NO_WINDOW


def block_size(inputs: Inputs) -> tuple[int, int]:
    """Tokens (down, across) of the windows that one program takes.

    Several small ones fill a tile together and share the keys between them. Not where places add to
    keys, since a key has another place in each window.
    """
    a, b = window(inputs)
    while 2 * a * b <= SMALLEST and inputs.key_pos is None:
        a, b = (a, 2 * b) if b <= a else (2 * a, b)
    return a, b


def count_blocks(inputs: Inputs) -> int:
    """Blocks of the whole batch."""
    B, H, W, _ = inputs.q.shape
    a, b = block_size(inputs)
    return B * -(-H // a) * -(-W // b)


def sums_keys(inputs: Inputs) -> bool:
    """Whether the gradient of keys' positions is no sum of the gradients of keys.

    Without a halo it is: a key then has one place.
    """
    return inputs.key_pos is not None and inputs.halo != (0, 0)


def parts(inputs: Inputs) -> int:
    """Parts that blocks are summed in, each by a program; by shapes alone, as sums depend on it."""
    blocks = count_blocks(inputs)
    if inputs.bias is None and not sums_keys(inputs):
        return blocks
    return min(blocks, -(-PROGRAMS // inputs.num_heads))


def front_parts(inputs: Inputs) -> int:
    """Parts that the tokens of an image are summed in."""
    return -(-inputs.q.shape[1] * inputs.q.shape[2] // FRONT_PART)


def query_tiles(inputs: Inputs, blocks: dict[str, int]) -> int:
    """Tiles of the queries of a block."""
    a, b = block_size(inputs)
    return -(-a * b // blocks["BLOCK_T"])


def by_queries(inputs: Inputs) -> dict[str, int]:
    """Tiles of queries and, of half their side, keys: whole ones spill registers on sm_80.

    So do the smallest tiles of keys where products are exact.
    """
    (a, b), (sa, sb) = block_size(inputs), inputs.halo
    E = 1 if inputs.front is None else inputs.front.shape[2]
    grouped = (a, b) != window(inputs)
    return {
        "BLOCK_T": block(a * b, wide(inputs)),
        "BLOCK_E": block(E, 32),
        "BLOCK_K": 32 if exact(inputs) else block((a + 2 * sa) * (b + 2 * sb), 16 * (2 - grouped)),
    }


def with_sums(inputs: Inputs) -> dict[str, int]:
    """The tiles where gradients of tables are summed, too: smaller, or registers spill."""
    blocks = by_queries(inputs)
    if sums_keys(inputs):
        blocks["BLOCK_T"] = min(blocks["BLOCK_T"], 32)
    if inputs.bias is not None and not exact(inputs):
        blocks["BLOCK_K"] = SMALLEST
    return blocks


def placed(inputs: Inputs) -> bool:
    """Whether places add to keys, for which larger tiles spill registers in the backward."""
    return inputs.key_pos is not None


def wide(inputs: Inputs) -> int:
    """The largest side of a tile: in float32 a tile takes twice the registers."""
    return 32 if inputs.q.dtype == torch.float32 else 64


def warps(inputs: Inputs, warps: int) -> int:
    """Of a program: twice as many for exact products of float32, whose registers spill else."""
    return 2 * warps if exact(inputs) else warps


def stages(inputs: Inputs) -> int:
    """Of a loop's loads: exact products of float32 spill registers beside loads made ahead."""
    return 1 if exact(inputs) else 2


def exact(inputs: Inputs) -> bool:
    """Whether products are of float32 and exact, which no tensor core makes."""
    return inputs.q.dtype == torch.float32 and precision() == "ieee"


def precision() -> str:
    """Of float32 products; Triton has no TF32 for most of AMD's GPUs."""
    return "ieee" if torch.version.hip or precision_of_products("cuda") == "ieee" else "tf32"


def block(size: int, largest: int) -> int:
    """Side of the tiles that cover `size`."""
    return min(max(power(size), SMALLEST), largest)


def power(size: int) -> int:
    """The least power of 2 that is not less than `size`."""
    return 1 << (size - 1).bit_length()
