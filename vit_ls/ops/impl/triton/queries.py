"""Gradients of queries, and the sums of those of tables, by one kernel.

With p = exp2(score - lse) and delta = sum_d out * grad, the gradient of a score is p * (grad . v -
delta). Delta is written for the kernels of `keys`. Sums over windows stand in parts, which the
caller adds up: a program takes the blocks of one part after another and alone writes its sums.
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
    _own_place,
    _pairs,
    _place,
    _place_of_block,
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
    grad_bias,
    grad_key_pos,
    B,
    H,
    W,
    E,
    heads,
    parts,
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
    GA: tl.constexpr,
    GW: tl.constexpr,
    K: tl.constexpr,
    KEYS: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradient of the queries [B,H,W,C], delta [B,h,H,W], and sums, which start at zero, float32.

    The sums: of the bias [parts,h,BA*BW,K], of keys' positions [tiles,parts,K,C].
    """
    BA: tl.constexpr = A * GA
    BW: tl.constexpr = W_ * GW
    GROUPED: tl.constexpr = GA * GW > 1
    TILES: tl.constexpr = (BA * BW + BLOCK_T - 1) // BLOCK_T
    head, tile, part = _program(heads, TILES)
    C = heads * D
    channels = tl.arange(0, BLOCK_D)
    t = tile * BLOCK_T + tl.arange(0, BLOCK_T)
    scale2 = scale * LOG2E
    blocks = B * ((H + BA - 1) // BA) * ((W + BW - 1) // BW)
    sums = part.to(tl.int64)
    bias_sums = _of_image(grad_bias, (sums * heads + head) * (BA * BW) * K)
    pos_sums = _of_image(grad_key_pos, (tile * parts + sums) * K * C + head * D)
    # what is the same in each block is made anew: kept, it spills registers
    for block in tl.range(part, blocks, parts, disable_licm=True):
        b, by, bx = _place_of_block(block, H, W, BA, BW)
        y, x, real = _queries(t, by, bx, H, W, BA, BW)
        own = _own_place(t, y, x, A, W_, GROUPED)
        seen_in_image = _of_image(valid, b * H * W)
        q_tile = _load(q + b * q_b + head * D, _rows(y, x, q_y, q_x), real, channels, D, BLOCK_D)
        q_tile = _place(q_tile, _of_image(query_pos, head * D), own, real, channels, C, D, BLOCK_D)
        rows = _rows(y, x, W * C, C)
        image = b * H * W * C + head * D
        grad_tile = _load(grad + image, rows, real, channels, D, BLOCK_D)
        out_tile = _load(out + image, rows, real, channels, D, BLOCK_D)
        at = (b * heads + head) * H * W + _rows(y, x, W, 1)
        delta_tile = tl.sum(out_tile.to(tl.float32) * grad_tile.to(tl.float32), 1)
        tl.store(delta + at, delta_tile, mask=real)
        lse_tile = tl.load(lse + at, mask=real, other=0.0)
        acc = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
        if front_k is not None:
            start = b * front_b + head * D
            for first in range(0, E, BLOCK_E):
                e = first + tl.arange(0, BLOCK_E)
                at_e = e.to(tl.int64) * front_e
                k_tile = _load(front_k + start, at_e, e < E, channels, D, BLOCK_D)
                v_tile = _load(front_v + start, at_e, e < E, channels, D, BLOCK_D)
                scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale2
                scores += _front_bias(front_bias, head, e, e < E, E)[None, :]
                p = tl.where((e < E)[None, :], tl.exp2(scores - lse_tile[:, None]), 0.0)
                dp = _dot(grad_tile, tl.trans(v_tile), PRECISION)
                ds = (p * (dp - delta_tile[:, None])).to(k_tile.dtype)
                acc += _dot(ds, k_tile, PRECISION)
        start = b * kv_b + head * D
        for first in tl.range(0, KEYS, BLOCK_K, disable_licm=True):
            j = first + tl.arange(0, BLOCK_K)
            ky, kx, seen = _keys(j, by, bx, H, W, seen_in_image, BA, BW, SA, SW)
            at_j = _rows(ky, kx, kv_y, kv_x)
            k_tile = _load(k + start, at_j, seen, channels, D, BLOCK_D)
            v_tile = _load(v + start, at_j, seen, channels, D, BLOCK_D)
            k_tile = _place(k_tile, _of_image(key_pos, head * D), j, seen, channels, C, D, BLOCK_D)
            place, pairs = _pairs(
                y[:, None],
                x[:, None],
                ky[None, :],
                kx[None, :],
                j[None, :],
                seen[None, :],
                A,
                W_,
                SA,
                SW,
                GROUPED,
            )
            pairs = pairs & real[:, None]
            scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale2
            scores += _bias(bias, head, own[:, None], place, pairs, A * W_, K)
            p = tl.where(pairs, tl.exp2(scores - lse_tile[:, None]), 0.0)
            dp = _dot(grad_tile, tl.trans(v_tile), PRECISION)
            ds = p * (dp - delta_tile[:, None])
            narrow = ds.to(k_tile.dtype)
            acc += _dot(narrow, k_tile, PRECISION)
            if bias_sums is not None:
                _add(bias_sums + t[:, None] * K + place, ds, pairs)
            if pos_sums is not None:
                added = _dot(tl.trans(narrow), q_tile, PRECISION) * scale
                mask = (j < K)[:, None] & (channels < D)[None, :]
                _add(pos_sums + j[:, None].to(tl.int64) * C + channels[None, :], added, mask)
        _store(grad_q + image, rows, real, channels, acc * scale, D, BLOCK_D)
        if grad_bias is not None or grad_key_pos is not None:
            tl.debug_barrier()  # the next block adds to what other threads may have written


@triton.jit
def _add(at, x, mask):
    tl.store(at, tl.load(at, mask=mask, other=0.0) + x, mask=mask)
