"""Window attention, and its implementations: one file and one row each, all of one signature."""

from collections.abc import Callable

import torch
from torch import Tensor

from vit_ls.ops.impl import dense, tiled
from vit_ls.ops.impl.arguments import Positions, Windows

__all__ = ["IMPLEMENTATIONS", "Positions", "Windows", "window_attention"]

IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "dense": dense.window_attention,
    "tiled": tiled.window_attention,
}


def window_attention(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    impl: str = "auto",
    *,
    num_heads: int,
) -> Tensor:
    """Attention of each token to the keys around its window and to those in front of all windows.

    One softmax runs over both. Keys outside the grid receive no attention.

    Args:
        q: Queries [B,H,W,C].
        kv: Keys and values [2,B,H,W,C].
        front: Keys that every query sees (projected and global tokens), and their values,
            [2,B,E,C], or None.
        positions: What places in a window add to scores, queries and keys.
        windows: The windows of the grid.
        impl: A row of `IMPLEMENTATIONS`, or "auto" for the tiled one.
        num_heads: h.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: an unknown impl.
    """
    if torch.jit.is_scripting():
        return tiled.window_attention(q, kv, front, positions, windows, num_heads=num_heads)
    attention = IMPLEMENTATIONS[_choose(impl)]
    return attention(q, kv, front, positions, windows, num_heads=num_heads)


def _choose(impl: str) -> str:
    if impl == "auto":
        return "tiled"
    if impl not in IMPLEMENTATIONS:
        raise ValueError(f"impl must be 'auto' or one of {sorted(IMPLEMENTATIONS)}, got {impl!r}.")
    return impl
