"""Attention to the keys in front alone: window attention with a window of 0."""

from torch import Tensor

from vit_ls.ops.softmax_attention import attend, merge_heads, split_heads


def attend_front(
    q: Tensor,
    front: Tensor | None,
    bias: Tensor | None,
    num_heads: int,
    impl: str = "auto",
    drop: float = 0.0,
) -> Tensor:
    """Queries [B,H,W,C], keys and values [2,B,E,C], and [h,E] or None -> [B,H,W,C].

    Args:
        q: Queries.
        front: Keys and values; `long_short_attention` refuses a window of 0 without them.
        bias: Added to the scores, the same for each query.
        num_heads: h.
        impl: Of `vit_ls.ops.attend`.
        drop: Likewise.
    """
    assert front is not None
    H, W = q.shape[1], q.shape[2]
    k, v = front.unbind()
    x = attend(
        split_heads(q.flatten(1, 2), num_heads),
        split_heads(k, num_heads),
        split_heads(v, num_heads),
        None if bias is None else bias[None, :, None, :],
        impl,
        drop=drop,
    )
    return merge_heads(x).unflatten(1, (H, W))
