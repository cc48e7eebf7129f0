"""Window attention, and its implementations: one file and one row each, all of one signature."""

from collections.abc import Callable

from torch import Tensor

from vit_ls.ops.impl import dense, gathered, products, tiled, triton
from vit_ls.ops.impl.arguments import Positions, Windows
from vit_ls.ops.rules import choose_windows

__all__ = ["IMPLEMENTATIONS", "WHY_NOT", "Positions", "Windows", "window_attention"]

IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "dense": dense.window_attention,
    "gathered": gathered.window_attention,
    "products": products.window_attention,
    "tiled": tiled.window_attention,
    "triton": triton.window_attention,
}

WHY_NOT: dict[str, Callable[..., str | None]] = {"triton": triton.why_not}
"""For rows that do not run everywhere: why not on such queries with such a dropout, or None."""


def window_attention(
    q: Tensor,
    kv: Tensor,
    front: Tensor | None,
    positions: Positions,
    windows: Windows,
    impl: str = "auto",
    drop: float = 0.0,
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
        impl: A row of `IMPLEMENTATIONS`, or "auto" for what `vit_ls.ops.rules` says.
        num_heads: h.
        drop: Probability that a weight of the softmax is dropped, in training.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: an unknown impl, or one that cannot run here.
    """
    attention = IMPLEMENTATIONS[_choose(impl, q, windows, drop)]
    return attention(q, kv, front, positions, windows, num_heads=num_heads, drop=drop)


def _choose(impl: str, q: Tensor, windows: Windows, drop: float) -> str:
    (a, b), (sa, sb) = windows.window, windows.halo
    name = choose_windows(impl, q, a * b * (a + 2 * sa) * (b + 2 * sb), drop)
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"impl must be 'auto' or one of {sorted(IMPLEMENTATIONS)}, got {name!r}.")
    reason = WHY_NOT[name](q, drop) if name in WHY_NOT else None
    if reason is not None:
        raise ValueError(f"impl={name!r} cannot run here: {reason}.")
    return name
