"""Into what tiles, programs and parts the work of a call is cut, and with how many warps."""

from typing import NamedTuple

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


def count_windows(inputs: Inputs) -> int:
    """N of the whole batch."""
    B, H, W, _ = inputs.q.shape
    a, b = window(inputs)
    return B * -(-H // a) * -(-W // b)


def table_parts(inputs: Inputs) -> int:
    """Parts that windows are summed in; by the batch alone, so that every GPU gives one sum."""
    return max(min(PARTS, count_windows(inputs)), 1)


def front_parts(inputs: Inputs) -> int:
    """Parts that the tokens of an image are summed in."""
    return -(-inputs.q.shape[1] * inputs.q.shape[2] // FRONT_PART)


def table_tiles(inputs: Inputs) -> int:
    """Tiles of the queries of a window, which the gradient of key positions is summed over too."""
    return -(-tokens(inputs) // table_blocks(inputs)["BLOCK_T"])


def by_queries(inputs: Inputs) -> dict[str, int]:
    """Tiles of queries and, of half their side, keys: whole ones spill registers on sm_80.

    So do the smallest tiles of keys where products are exact.
    """
    (a, b), (sa, sb) = window(inputs), inputs.halo
    E = 1 if inputs.front is None else inputs.front.shape[2]
    return {
        "BLOCK_T": block(a * b, wide(inputs)),
        "BLOCK_E": block(E, 32),
        "BLOCK_K": 32 if _exact(inputs) else block((a + 2 * sa) * (b + 2 * sb), 32),
    }


def table_blocks(inputs: Inputs) -> dict[str, int]:
    """Tiles of queries and keys for the sums over windows."""
    blocks = by_queries(inputs)
    del blocks["BLOCK_E"]
    if placed(inputs):
        blocks["BLOCK_T"] = min(blocks["BLOCK_T"], 32)
    return blocks


def placed(inputs: Inputs) -> bool:
    """Whether places add to keys, for which larger tiles spill registers in the backward."""
    return inputs.key_pos is not None


def query_programs(inputs: Inputs, blocks: dict[str, int]) -> int:
    """Of a kernel that takes a tile of a window's queries."""
    return count_windows(inputs) * inputs.num_heads * -(-tokens(inputs) // blocks["BLOCK_T"])


def window(inputs: Inputs) -> tuple[int, int]:
    """What the grid is cut into."""
    return inputs.window if inputs.window[0] else NO_WINDOW


def tokens(inputs: Inputs) -> int:
    """T of what the grid is cut into."""
    a, b = window(inputs)
    return a * b


def wide(inputs: Inputs) -> int:
    """The largest side of a tile: in float32 a tile takes twice the registers."""
    return 32 if inputs.q.dtype == torch.float32 else 64


def warps(inputs: Inputs, warps: int) -> int:
    """Of a program: twice as many for exact products of float32, whose registers spill else."""
    return 2 * warps if _exact(inputs) else warps


def stages(inputs: Inputs) -> int:
    """Of a loop's loads: exact products of float32 spill registers beside loads made ahead."""
    return 1 if _exact(inputs) else 2


def _exact(inputs: Inputs) -> bool:
    """Whether products are of float32 and exact, which no tensor core makes."""
    return inputs.q.dtype == torch.float32 and precision() == "ieee"


def precision() -> str:
    """Of float32 products."""
    return "ieee" if precision_of_products("cuda") == "ieee" else "tf32"


def block(size: int, largest: int) -> int:
    """Side of the tiles that cover `size`; a product of matrices takes at least 16."""
    return min(max(power(size), 16), largest)


def power(size: int) -> int:
    """The least power of 2 that is not less than `size`."""
    return 1 << (size - 1).bit_length()
