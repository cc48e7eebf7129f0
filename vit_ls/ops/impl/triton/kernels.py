"""The kernels of the Triton row: one softmax over the keys in front and a window's keys.

A program takes one image, one head and a tile of a block's queries (forward, gradient of queries)
or of its own tokens as keys (gradient of keys and values, gathered over the blocks that see them).
A block is one window, or GA x GW windows where one would not fill a tile. Keys and values are read
from the grid by address, halo included; the softmax runs in float32 over tiles of keys
(arXiv:2205.14135), in powers of 2. No two programs write one number and nothing is added
atomically: gradients are the same in every run.

Grids are [B,H,W,C] with any strides of B, H and W; outputs are contiguous. Dim letters are those of
`vit_ls.grid`; with a window (A, W_) of halo (SA, SW), a block (BA, BW) in tokens.
"""

import triton
import triton.language as tl
from triton import knobs

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1e30)
"""A maximum of no scores: finite, since a difference of two infinities is no number."""
INTERPRETED = tl.constexpr(bool(knobs.runtime.interpret))


# Each helper has one return: what follows a branch that is not taken is compiled all the same.
@triton.jit
def _dot(x, y, PRECISION: tl.constexpr):
    if INTERPRETED:  # whose product multiplies the bits of bfloat16 as integers
        x = x.to(tl.float32)
        y = y.to(tl.float32)
    return tl.dot(x, y, input_precision=PRECISION)


@triton.jit
def _load(base, rows, inside, channels, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of D channels, zeros where not inside: int64 [N] -> [N,BLOCK_D]."""
    mask = inside[:, None]
    if D != BLOCK_D:
        mask = mask & (channels < D)[None, :]
    return tl.load(base + rows[:, None] + channels[None, :], mask=mask, other=0.0)


@triton.jit
def _store(base, rows, inside, channels, x, D: tl.constexpr, BLOCK_D: tl.constexpr):
    mask = inside[:, None]
    if D != BLOCK_D:
        mask = mask & (channels < D)[None, :]
    tl.store(base + rows[:, None] + channels[None, :], x.to(base.dtype.element_ty), mask=mask)


@triton.jit
def _place(x, table, places, inside, channels, C, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of queries or keys with what their places [N] in the window add, if anything."""
    if table is not None:
        added = _load(table, places * C, inside, channels, D, BLOCK_D)
        x = (x.to(tl.float32) + added.to(tl.float32)).to(x.dtype)
    return x


@triton.jit
def _bias(bias, head, rows, columns, seen, T: tl.constexpr, K: tl.constexpr):
    """The bias at places (rows, columns), which broadcast, of a head [T,K]; 0 without a bias."""
    added = 0.0
    if bias is not None:
        at = bias + (head * T + rows) * K + columns
        added = tl.load(at, mask=seen, other=0.0).to(tl.float32) * LOG2E
    return added


@triton.jit
def _front_bias(bias, head, e, inside, E):
    added = e * 0.0
    if bias is not None:
        added = tl.load(bias + head * E + e, mask=inside, other=0.0).to(tl.float32) * LOG2E
    return added


@triton.jit
def _queries(t, by, bx, H, W, BA: tl.constexpr, BW: tl.constexpr):
    """Row and column in the grid of the places t of a block, and whether they are in it."""
    y = by * BA + t // BW
    x = bx * BW + t % BW
    return y, x, (t < BA * BW) & (y < H) & (x < W)


@triton.jit
def _keys(
    j,
    by,
    bx,
    H,
    W,
    valid,
    BA: tl.constexpr,
    BW: tl.constexpr,
    SA: tl.constexpr,
    SW: tl.constexpr,
):
    """Row and column in the grid of the keys j of a block, and whether some query sees them."""
    y = by * BA - SA + j // (BW + 2 * SW)
    x = bx * BW - SW + j % (BW + 2 * SW)
    inside = (j < (BA + 2 * SA) * (BW + 2 * SW)) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    return y, x, _real(valid, y, x, inside, W)


@triton.jit
def _own_place(t, y, x, A: tl.constexpr, W_: tl.constexpr, GROUPED: tl.constexpr):
    """Places in their windows of the places t of a block."""
    place = t
    if GROUPED:
        place = y % A * W_ + x % W_
    return place


@triton.jit
def _pairs(
    y,
    x,
    ky,
    kx,
    place,
    seen,
    A: tl.constexpr,
    W_: tl.constexpr,
    SA: tl.constexpr,
    SW: tl.constexpr,
    GROUPED: tl.constexpr,
):
    """Places of keys in the windows of queries, and which of those seen are in the window's reach.

    Queries and keys broadcast. In a block of one window, `place` and `seen` are so already.
    """
    if GROUPED:
        top = ky - y // A * A + SA
        left = kx - x // W_ * W_ + SW
        place = top * (W_ + 2 * SW) + left
        seen = seen & (top >= 0) & (top < A + 2 * SA) & (left >= 0) & (left < W_ + 2 * SW)
    return place, seen


@triton.jit
def _real(valid, y, x, inside, W):
    """Of the tokens inside the grid, those that are valid too; `valid` is of one image [H,W]."""
    if valid is not None:
        at = y.to(tl.int64) * W + x
        inside = inside & (tl.load(valid + at, mask=inside, other=0) != 0)
    return inside


@triton.jit
def _of_image(base, offset):
    if base is not None:
        base = base + offset
    return base


@triton.jit
def _rows(y, x, y_stride, x_stride):
    return y.to(tl.int64) * y_stride + x.to(tl.int64) * x_stride


@triton.jit
def _absorb(scores, v, most, total, acc, PRECISION: tl.constexpr):
    """One tile of keys: the running maximum [N], sum [N] and weighted sum of values [N,D]."""
    new = tl.maximum(most, tl.max(scores, 1))
    p = tl.exp2(scores - new[:, None])
    shrink = tl.exp2(most - new)
    acc = acc * shrink[:, None] + _dot(p.to(v.dtype), v, PRECISION)
    return new, total * shrink + tl.sum(p, 1), acc


@triton.jit
def forward(
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
    """Out [B,H,W,C], and lse [B,h,H,W]: the base-2 logarithm of each query's sum."""
    BA: tl.constexpr = A * GA
    BW: tl.constexpr = W_ * GW
    GROUPED: tl.constexpr = GA * GW > 1
    TILES: tl.constexpr = (BA * BW + BLOCK_T - 1) // BLOCK_T
    head, tile, block = _program(heads, TILES)
    b, by, bx = _place_of_block(block, H, W, BA, BW)
    C = heads * D
    t = tile * BLOCK_T + tl.arange(0, BLOCK_T)
    channels = tl.arange(0, BLOCK_D)
    y, x, real = _queries(t, by, bx, H, W, BA, BW)
    own = _own_place(t, y, x, A, W_, GROUPED)
    valid = _of_image(valid, b * H * W)
    q_tile = _load(q + b * q_b + head * D, _rows(y, x, q_y, q_x), real, channels, D, BLOCK_D)
    q_tile = _place(q_tile, _of_image(query_pos, head * D), own, real, channels, C, D, BLOCK_D)
    scale2 = scale * LOG2E
    most = tl.full([BLOCK_T], LOWEST, tl.float32)
    total = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    if front_k is not None:
        start = b * front_b + head * D
        for first in range(0, E, BLOCK_E):
            e = first + tl.arange(0, BLOCK_E)
            k_tile = _load(front_k + start, e.to(tl.int64) * front_e, e < E, channels, D, BLOCK_D)
            v_tile = _load(front_v + start, e.to(tl.int64) * front_e, e < E, channels, D, BLOCK_D)
            scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale2
            scores += _front_bias(front_bias, head, e, e < E, E)[None, :]
            scores = tl.where((e < E)[None, :], scores, -float("inf"))
            most, total, acc = _absorb(scores, v_tile, most, total, acc, PRECISION)
    start = b * kv_b + head * D
    for first in range(0, KEYS, BLOCK_K):
        j = first + tl.arange(0, BLOCK_K)
        ky, kx, seen = _keys(j, by, bx, H, W, valid, BA, BW, SA, SW)
        rows = _rows(ky, kx, kv_y, kv_x)
        k_tile = _load(k + start, rows, seen, channels, D, BLOCK_D)
        v_tile = _load(v + start, rows, seen, channels, D, BLOCK_D)
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
        scores = _dot(q_tile, tl.trans(k_tile), PRECISION) * scale2
        scores += _bias(bias, head, own[:, None], place, pairs & real[:, None], A * W_, K)
        scores = tl.where(pairs, scores, -float("inf"))
        most, total, acc = _absorb(scores, v_tile, most, total, acc, PRECISION)
    sees = total > 0  # which a query that is not valid may not
    total = tl.where(sees, total, 1.0)
    _store(
        out + b * H * W * C + head * D,
        _rows(y, x, W * C, C),
        real,
        channels,
        acc / total[:, None],
        D,
        BLOCK_D,
    )
    at = lse + (b * heads + head) * H * W + _rows(y, x, W, 1)
    tl.store(at, tl.where(sees, most + tl.log2(total), 0.0), mask=real)


@triton.jit
def _program(heads, TILES: tl.constexpr):
    """This program's head, tile, and block of windows (or part of all blocks).

    Heads are the fastest, since those of a token lie side by side in memory.
    """
    pid = tl.program_id(0)
    head = pid % heads
    pid = pid // heads
    return head, pid % TILES, pid // TILES


@triton.jit
def _place_of_block(block, H, W, BA: tl.constexpr, BW: tl.constexpr):
    """Image (int64), row and column of a block of BA x BW tokens, counted over the batch."""
    across = (W + BW - 1) // BW
    down = (H + BA - 1) // BA
    return (block // (down * across)).to(tl.int64), block // across % down, block % across
