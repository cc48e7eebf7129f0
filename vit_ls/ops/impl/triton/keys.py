"""Gradients of keys and values, each by a kernel that makes its scores anew from the saved `lse`.

`keys` gathers what blocks of windows give to a key; `front_keys` writes one sum for each part of
the queries, which the caller adds up. Both read delta, which `queries` writes.
"""

import triton
import triton.language as tl

from vit_ls.ops.impl.triton.kernels import (
    LOG2E,
    _bias,
    _dot,
    _front_bias,
    _load,
    _of_image,
    _own_place,
    _pairs,
    _place,
    _place_of_block,
    _program,
    _queries,
    _real,
    _rows,
    _store,
)


@triton.jit
def keys(
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
    grad_k,
    grad_v,
    H,
    W,
    heads,
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
    GA: tl.constexpr,
    GW: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_J: tl.constexpr,
    HALVES_A: tl.constexpr,
    HALVES_W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of keys and values [B,H,W,C], gathered over the windows that see them.

    A program has a part of a block's own tokens. Where the halo is at most half of a window, an
    axis may be halved: each half is seen by one neighbour alone, on its side.
    """
    BA: tl.constexpr = A * GA
    BW: tl.constexpr = W_ * GW
    GROUPED: tl.constexpr = GA * GW > 1
    PART_A: tl.constexpr = BA - SA * (HALVES_A - 1)
    PART_W: tl.constexpr = BW - SW * (HALVES_W - 1)
    TILES: tl.constexpr = (PART_A * PART_W + BLOCK_J - 1) // BLOCK_J
    head, tile, pid = _program(heads, TILES)
    j = tile * BLOCK_J + tl.arange(0, BLOCK_J)
    half_x = pid % HALVES_W
    pid = pid // HALVES_W
    half_y = pid % HALVES_A
    b, by, bx = _place_of_block(pid // HALVES_A, H, W, BA, BW)

    C = heads * D
    T: tl.constexpr = BA * BW
    channels = tl.arange(0, BLOCK_D)
    row = half_y * PART_A + j // PART_W
    column = half_x * PART_W + j % PART_W
    ky = by * BA + row
    kx = bx * BW + column
    inside = (j < PART_A * PART_W) & (row < BA) & (column < BW) & (ky < H) & (kx < W)
    seen_by_some = _real(_of_image(valid, b * H * W), ky, kx, inside, W)
    rows = _rows(ky, kx, kv_y, kv_x)
    start = b * kv_b + head * D
    k_own = _load(k + start, rows, inside, channels, D, BLOCK_D)
    v_tile = _load(v + start, rows, inside, channels, D, BLOCK_D)

    # the blocks whose halo may reach here, one after another, each by tiles of its queries
    first_y, last_y = _seen_from(by, half_y, (H + BA - 1) // BA, BA, SA, HALVES_A)
    first_x, last_x = _seen_from(bx, half_x, (W + BW - 1) // BW, BW, SW, HALVES_W)
    STEPS: tl.constexpr = (T + BLOCK_T - 1) // BLOCK_T
    columns = last_x - first_x + 1
    scale2 = scale * LOG2E
    image = b * H * W * C + head * D
    at_image = (b * heads + head) * H * W
    acc_k = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
    acc_v = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
    for step in range((last_y - first_y + 1) * columns * STEPS):
        t = step % STEPS * BLOCK_T + tl.arange(0, BLOCK_T)
        ny = first_y + step // STEPS // columns
        nx = first_x + step // STEPS % columns
        top = ky - (ny * BA - SA)
        left = kx - (nx * BW - SW)
        reached = (top >= 0) & (top < BA + 2 * SA) & (left >= 0) & (left < BW + 2 * SW)
        reached = reached & seen_by_some
        place = top * (BW + 2 * SW) + left
        y, x, real = _queries(t, ny, nx, H, W, BA, BW)
        own = _own_place(t, y, x, A, W_, GROUPED)
        q_tile = _load(q + b * q_b + head * D, _rows(y, x, q_y, q_x), real, channels, D, BLOCK_D)
        q_tile = _place(q_tile, _of_image(query_pos, head * D), own, real, channels, C, D, BLOCK_D)
        grad_tile = _load(grad + image, _rows(y, x, W * C, C), real, channels, D, BLOCK_D)
        at = at_image + _rows(y, x, W, 1)
        lse_tile = tl.load(lse + at, mask=real, other=0.0)
        delta_tile = tl.load(delta + at, mask=real, other=0.0)
        k_tile = _place(
            k_own, _of_image(key_pos, head * D), place, reached, channels, C, D, BLOCK_D
        )
        places, seen = _pairs(
            y[None, :],
            x[None, :],
            ky[:, None],
            kx[:, None],
            place[:, None],
            reached[:, None],
            A,
            W_,
            SA,
            SW,
            GROUPED,
        )
        seen = seen & real[None, :]
        scores = _dot(k_tile, tl.trans(q_tile), PRECISION) * scale2
        scores += _bias(bias, head, own[None, :], places, seen, A * W_, K)
        p = tl.where(seen, tl.exp2(scores - lse_tile[None, :]), 0.0)
        acc_v += _dot(p.to(grad_tile.dtype), grad_tile, PRECISION)
        dp = _dot(v_tile, tl.trans(grad_tile), PRECISION)
        ds = p * (dp - delta_tile[None, :])
        acc_k += _dot(ds.to(q_tile.dtype), q_tile, PRECISION)
    rows = _rows(ky, kx, W * C, C)
    _store(grad_k + image, rows, inside, channels, acc_k * scale, D, BLOCK_D)
    _store(grad_v + image, rows, inside, channels, acc_v, D, BLOCK_D)


@triton.jit
def _seen_from(w, half, count, BA: tl.constexpr, SA: tl.constexpr, HALVES: tl.constexpr):
    """The first and the last block on an axis whose halo reaches (a half of) block w."""
    if HALVES == 2:
        first = w - 1 + half
        last = w + half
    else:
        REACH: tl.constexpr = (SA + BA - 1) // BA
        first = w - REACH
        last = w + REACH
    return tl.maximum(first, 0), tl.minimum(last, count - 1)


@triton.jit
def front_keys(
    q,
    front_k,
    front_v,
    front_bias,
    query_pos,
    lse,
    grad,
    delta,
    grad_k,
    grad_v,
    grad_bias,
    B,
    H,
    W,
    E,
    heads,
    q_b,
    q_y,
    q_x,
    front_b,
    front_e,
    scale,
    A: tl.constexpr,
    W_: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    PART: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Sums of the gradients of keys in front over parts of PART tokens, float32.

    Keys and values [parts,B,E,C], their bias [parts,B,h,E].
    """
    pid = tl.program_id(0)
    head = pid % heads
    pid = pid // heads
    tiles = (E + BLOCK_E - 1) // BLOCK_E
    e = pid % tiles * BLOCK_E + tl.arange(0, BLOCK_E)
    pid = pid // tiles
    parts = (H * W + PART - 1) // PART
    part = pid % parts
    b = (pid // parts).to(tl.int64)

    C = heads * D
    channels = tl.arange(0, BLOCK_D)
    rows = e.to(tl.int64) * front_e
    start = b * front_b + head * D
    k_tile = _load(front_k + start, rows, e < E, channels, D, BLOCK_D)
    v_tile = _load(front_v + start, rows, e < E, channels, D, BLOCK_D)
    added = _front_bias(front_bias, head, e, e < E, E)
    scale2 = scale * LOG2E
    image = b * H * W * C + head * D
    at_image = (b * heads + head) * H * W
    acc_k = tl.zeros([BLOCK_E, BLOCK_D], tl.float32)
    acc_v = tl.zeros([BLOCK_E, BLOCK_D], tl.float32)
    acc_bias = tl.zeros([BLOCK_E], tl.float32)
    for first in range(part * PART, tl.minimum(part * PART + PART, H * W), BLOCK_T):
        n = first + tl.arange(0, BLOCK_T)
        y = n // W
        x = n % W
        real = n < H * W
        q_tile = _load(q + b * q_b + head * D, _rows(y, x, q_y, q_x), real, channels, D, BLOCK_D)
        t = y % A * W_ + x % W_
        q_tile = _place(q_tile, _of_image(query_pos, head * D), t, real, channels, C, D, BLOCK_D)
        grad_tile = _load(grad + image, _rows(y, x, W * C, C), real, channels, D, BLOCK_D)
        lse_tile = tl.load(lse + at_image + n, mask=real, other=0.0)
        delta_tile = tl.load(delta + at_image + n, mask=real, other=0.0)
        seen = (e < E)[:, None] & real[None, :]
        scores = _dot(k_tile, tl.trans(q_tile), PRECISION) * scale2 + added[:, None]
        p = tl.where(seen, tl.exp2(scores - lse_tile[None, :]), 0.0)
        acc_v += _dot(p.to(grad_tile.dtype), grad_tile, PRECISION)
        dp = _dot(v_tile, tl.trans(grad_tile), PRECISION)
        ds = p * (dp - delta_tile[None, :])
        acc_bias += tl.sum(ds, 1)
        acc_k += _dot(ds.to(q_tile.dtype), q_tile, PRECISION)
    image = (part * B + b) * E * C + head * D
    _store(grad_k + image, e.to(tl.int64) * C, e < E, channels, acc_k * scale, D, BLOCK_D)
    _store(grad_v + image, e.to(tl.int64) * C, e < E, channels, acc_v, D, BLOCK_D)
    if grad_bias is not None:
        tl.store(grad_bias + ((part * B + b) * heads + head) * E + e, acc_bias, mask=e < E)
