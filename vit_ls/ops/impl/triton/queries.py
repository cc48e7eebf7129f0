"""Gradients of the Triton row, each by a kernel that makes its scores anew from the saved `lse`.

With p = exp2(score - lse) and delta = sum_d out * grad, the gradient of a score is p * (grad . v -
delta). `queries` writes delta, which the others read. `keys` gathers what windows give to a key;
`front_keys` and `tables` write one sum per part of the queries, which the caller adds up.
"""

import triton
import triton.language as tl

from vit_ls.ops.impl.triton.kernels import (
    LOG2E,
    _bias,
    _dot,
    _front_bias,
    _keys,
    _load,
    _of_image,
    _place,
    _program,
    _queries,
    _rows,
    _store,
)


@triton.jit
def queries(
    q,
    k,
    v,
    front_k,
    front_v,
    bias,
    front_bias,
    query_pos,
    key_pos,
    valid,
    out,
    lse,
    grad,
    grad_q,
    delta,
    H,
    W,
    E,
    heads,
    q_b,
    q_y,
    q_x,
    kv_b,
    kv_y,
    kv_x,
    front_b,
    front_e,
    scale,
    A: tl.constexpr,
    W_: tl.constexpr,
    SA: tl.constexpr,
    SW: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradient of the queries [B,H,W,C], and delta [B,h,H,W]; tiled as the forward is."""
    head, b, wy, wx, t = _program(H, W, heads, A, W_, BLOCK_T)
    C = heads * D
    T: tl.constexpr = A * W_
    channels = tl.arange(0, BLOCK_D)
    y, x, real = _queries(t, wy, wx, H, W, A, W_)
    valid = _of_image(valid, b * H * W)
    q_tile = _load(q + b * q_b + head * D, _rows(y, x, q_y, q_x), real, channels, D, BLOCK_D)
    q_tile = _place(q_tile, _of_image(query_pos, head * D), t, t < T, channels, C, D, BLOCK_D)
    own = _rows(y, x, W * C, C)
    image = b * H * W * C + head * D
    grad_tile = _load(grad + image, own, real, channels, D, BLOCK_D)
    out_tile = _load(out + image, own, real, channels, D, BLOCK_D)
    at = (b * heads + head) * H * W + _rows(y, x, W, 1)
    delta_tile = tl.sum(out_tile.to(tl.float32) * grad_tile.to(tl.float32), 1)
    tl.store(delta + at, delta_tile, mask=real)
    lse_tile = tl.load(lse + at, mask=real, other=0.0)
    scale2 = scale * LOG2E
    acc = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    if front_k is not None:
        start = b * front_b + head * D
        for first in range(0, E, BLOCK_E):
            e = first + tl.arange(0, BLOCK_E)
            k_tile = _load(front_k + start, e.to(tl.int64) * front_e, e < E, channels, D, BLOCK_D)
            v_tile = _load(front_v + start, e.to(tl.int64) * front_e, e < E, channels, D, BLOCK_D)
            scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale2
            scores += _front_bias(front_bias, head, e, e < E, E)[None, :]
            p = tl.where((e < E)[None, :], tl.exp2(scores - lse_tile[:, None]), 0.0)
            dp = _dot(grad_tile, tl.trans(v_tile), PRECISION)
            ds = (p * (dp - delta_tile[:, None])).to(k_tile.dtype)
            acc += _dot(ds, k_tile, PRECISION)
    start = b * kv_b + head * D
    for first in range(0, K, BLOCK_K):
        j = first + tl.arange(0, BLOCK_K)
        ky, kx, seen = _keys(j, wy, wx, H, W, valid, A, W_, SA, SW)
        rows = _rows(ky, kx, kv_y, kv_x)
        k_tile = _load(k + start, rows, seen, channels, D, BLOCK_D)
        v_tile = _load(v + start, rows, seen, channels, D, BLOCK_D)
        k_tile = _place(k_tile, _of_image(key_pos, head * D), j, j < K, channels, C, D, BLOCK_D)
        scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale2
        scores += _bias(
            bias, head, t[:, None], j[None, :], (t < T)[:, None] & (j < K)[None, :], T, K
        )
        p = tl.where(seen[None, :], tl.exp2(scores - lse_tile[:, None]), 0.0)
        dp = _dot(grad_tile, tl.trans(v_tile), PRECISION)
        ds = (p * (dp - delta_tile[:, None])).to(k_tile.dtype)
        acc += _dot(ds, k_tile, PRECISION)
    _store(grad_q + image, own, real, channels, acc * scale, D, BLOCK_D)


@triton.jit
def tables(
    q,
    k,
    v,
    bias,
    query_pos,
    key_pos,
    valid,
    lse,
    grad,
    delta,
    grad_bias,
    grad_key_pos,
    B,
    H,
    W,
    heads,
    parts,
    q_b,
    q_y,
    q_x,
    kv_b,
    kv_y,
    kv_x,
    scale,
    A: tl.constexpr,
    W_: tl.constexpr,
    SA: tl.constexpr,
    SW: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Sums of the gradients of the bias and of keys' positions over parts of all windows, float32.

    The bias [parts,h,T,K]; positions of keys [tiles of T,parts,K,C].
    """
    T: tl.constexpr = A * W_
    T_TILES: tl.constexpr = (T + BLOCK_T - 1) // BLOCK_T
    K_TILES: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    pid = tl.program_id(0)
    head = pid % heads
    pid = pid // heads
    j = pid % K_TILES * BLOCK_K + tl.arange(0, BLOCK_K)
    pid = pid // K_TILES
    t_tile = pid % T_TILES
    t = t_tile * BLOCK_T + tl.arange(0, BLOCK_T)
    part = (pid // T_TILES).to(tl.int64)

    C = heads * D
    channels = tl.arange(0, BLOCK_D)
    across = (W + W_ - 1) // W_
    down = (H + A - 1) // A
    entries = (t < T)[:, None] & (j < K)[None, :]
    added = _bias(bias, head, t[:, None], j[None, :], entries, T, K)
    scale2 = scale * LOG2E
    acc_bias = tl.zeros([BLOCK_T, BLOCK_K], tl.float32)
    acc_pos = tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    for window in range(pid // T_TILES, B * down * across, parts):
        b = (window // (down * across)).to(tl.int64)
        wy = window // across % down
        wx = window % across
        y, x, real = _queries(t, wy, wx, H, W, A, W_)
        ky, kx, seen = _keys(j, wy, wx, H, W, _of_image(valid, b * H * W), A, W_, SA, SW)
        q_tile = _load(q + b * q_b + head * D, _rows(y, x, q_y, q_x), real, channels, D, BLOCK_D)
        q_tile = _place(q_tile, _of_image(query_pos, head * D), t, t < T, channels, C, D, BLOCK_D)
        rows = _rows(ky, kx, kv_y, kv_x)
        start = b * kv_b + head * D
        k_tile = _load(k + start, rows, seen, channels, D, BLOCK_D)
        v_tile = _load(v + start, rows, seen, channels, D, BLOCK_D)
        k_tile = _place(k_tile, _of_image(key_pos, head * D), j, j < K, channels, C, D, BLOCK_D)
        image = b * H * W * C + head * D
        grad_tile = _load(grad + image, _rows(y, x, W * C, C), real, channels, D, BLOCK_D)
        at = (b * heads + head) * H * W + _rows(y, x, W, 1)
        lse_tile = tl.load(lse + at, mask=real, other=0.0)
        delta_tile = tl.load(delta + at, mask=real, other=0.0)
        scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale2 + added
        both = real[:, None] & seen[None, :]
        p = tl.where(both, tl.exp2(scores - lse_tile[:, None]), 0.0)
        dp = _dot(grad_tile, tl.trans(v_tile), PRECISION)
        ds = p * (dp - delta_tile[:, None])
        if grad_bias is not None:
            acc_bias += ds
        if grad_key_pos is not None:
            acc_pos += _dot(tl.trans(ds.to(q_tile.dtype)), q_tile, PRECISION)
    if grad_bias is not None:
        at = grad_bias + (part * heads + head) * T * K + t[:, None] * K + j[None, :]
        tl.store(at, acc_bias, mask=entries)
    if grad_key_pos is not None:
        at = grad_key_pos + (t_tile * parts + part) * K * C + head * D
        _store(at, j.to(tl.int64) * C, j < K, channels, acc_pos * scale, D, BLOCK_D)
