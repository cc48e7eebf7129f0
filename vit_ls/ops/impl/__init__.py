"""Implementations of window attention: one file and one row each, all of the same signature.

window_attention(q, k, v, front_k, front_v, bias, query_pos, key_pos, mask, *, num_heads, window,
halo) -> [B,H,W,C]

    q, k, v: [B,H,W,C].
    front_k, front_v: [B,E,C], keys and values that every query sees (projected and global tokens),
    or None.
    bias: [h,T,K], added to the scores of a window's keys, or None.
    query_pos, key_pos: [a,b,C] and [a+2sa,b+2sb,C], added to a window's queries and keys, or None.
    mask: `vit_ls.grid.halo_mask` of the grid where the caller has made it already, or None.
    window, halo: (a, b) and (sa, sb), in tokens. A window of (0, 0) has no keys: only the front is
    seen.

One softmax runs over the front and the window. Keys outside the grid receive no attention.
"""

from collections.abc import Callable

from torch import Tensor

from vit_ls.ops.impl import dense, tiled

IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "dense": dense.window_attention,
    "tiled": tiled.window_attention,
}


def choose(impl: str) -> Callable[..., Tensor]:
    """The implementation of that name; "auto" is the tiled one.

    Raises:
        ValueError: there is none of that name.
    """
    if impl == "auto":
        return tiled.window_attention
    if impl not in IMPLEMENTATIONS:
        raise ValueError(f"impl must be 'auto' or one of {sorted(IMPLEMENTATIONS)}, got {impl!r}.")
    return IMPLEMENTATIONS[impl]
