"""Window attention, and its implementations: one file and one row each, all of one signature."""

from collections.abc import Callable

import torch
from torch import Tensor

from vit_ls.ops.impl import dense, tiled

IMPLEMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "dense": dense.window_attention,
    "tiled": tiled.window_attention,
}


def window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    front_k: Tensor | None = None,
    front_v: Tensor | None = None,
    bias: Tensor | None = None,
    query_pos: Tensor | None = None,
    key_pos: Tensor | None = None,
    mask: Tensor | None = None,
    impl: str = "auto",
    *,
    num_heads: int,
    window: tuple[int, int],
    halo: tuple[int, int],
) -> Tensor:
    """Attention of each token to the keys around its window and to those in front of all windows.

    One softmax runs over both. Keys outside the grid receive no attention.

    Args:
        q: Queries [B,H,W,C].
        k: Keys [B,H,W,C].
        v: Values [B,H,W,C].
        front_k: Keys that every query sees (projected and global tokens) [B,E,C], or None.
        front_v: Their values [B,E,C], or None.
        bias: Added to the scores of a window's keys [h,T,K], or None.
        query_pos: Added to the queries of each window [a,b,C], or None.
        key_pos: Added to the keys of each window [a+2sa,b+2sb,C], or None.
        mask: `vit_ls.grid.halo_mask` of the grid if it has been made already.
        impl: A row of `IMPLEMENTATIONS`, or "auto" for the tiled one.
        num_heads: h.
        window: (a, b) in tokens; (0, 0) for no keys but those in front.
        halo: (sa, sb) in tokens.

    Returns:
        [B,H,W,C]

    Raises:
        ValueError: an unknown impl.
    """
    if not torch.jit.is_scripting():
        return _choose(impl)(
            *(q, k, v, front_k, front_v, bias, query_pos, key_pos, mask),
            num_heads=num_heads,
            window=window,
            halo=halo,
        )
    return tiled.window_attention(
        q,
        k,
        v,
        front_k,
        front_v,
        bias,
        query_pos,
        key_pos,
        mask,
        num_heads=num_heads,
        window=window,
        halo=halo,
    )


def _choose(impl: str) -> Callable[..., Tensor]:
    if impl == "auto":
        return tiled.window_attention
    if impl not in IMPLEMENTATIONS:
        raise ValueError(f"impl must be 'auto' or one of {sorted(IMPLEMENTATIONS)}, got {impl!r}.")
    return IMPLEMENTATIONS[impl]
