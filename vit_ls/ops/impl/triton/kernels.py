"""The kernels of the Triton row: one softmax over the keys in front and a window's keys.

A program takes one image, one head and a tile of one window's queries (forward, gradient of
queries) or of a window's own tokens as keys (gradient of keys and values, gathered over the windows
that see them). Keys and values are read from the grid by address, halo included; the softmax runs
in float32 over tiles of keys (arXiv:2205.14135), in powers of 2. No two programs write one number
and nothing is added atomically, so that gradients are the same in every run.

Grids are [B,H,W,C] with any strides of B, H and W; outputs are contiguous. Dim letters are those of
`vit_ls.grid`; with a window (A, W_) of halo (SA, SW).
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
    """The bias at (rows, columns), which broadcast, of one head [T,K]; 0 without a bias."""
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
def _queries(t, wy, wx, H, W, A: tl.constexpr, W_: tl.constexpr):
    """Row and column in the grid of the places t of a window, and whether they are in it."""
    y = wy * A + t // W_
    x = wx * W_ + t % W_
    return y, x, (t < A * W_) & (y < H) & (x < W)


@triton.jit
def _keys(
    j,
    wy,
    wx,
    H,
    W,
    valid,
    A: tl.constexpr,
    W_: tl.constexpr,
    SA: tl.constexpr,
    SW: tl.constexpr,
):
    """Row and column in the grid of the keys j of a window, and whether they are seen."""
    y = wy * A - SA + j // (W_ + 2 * SW)
    x = wx * W_ - SW + j % (W_ + 2 * SW)
    inside = (j < (A + 2 * SA) * (W_ + 2 * SW)) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    return y, x, _real(valid, y, x, inside, W)


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
    K: tl.constexpr,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Out [B,H,W,C], and lse [B,h,H,W]: the base-2 logarithm of each query's sum."""
    head, b, wy, wx, t = _program(H, W, heads, A, W_, BLOCK_T)
    C = heads * D
    T: tl.constexpr = A * W_
    channels = tl.arange(0, BLOCK_D)
    y, x, real = _queries(t, wy, wx, H, W, A, W_)
    valid = _of_image(valid, b * H * W)
    q_tile = _load(q + b * q_b + head * D, _rows(y, x, q_y, q_x), real, channels, D, BLOCK_D)
    q_tile = _place(q_tile, _of_image(query_pos, head * D), t, t < T, channels, C, D, BLOCK_D)
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
        scores = tl.where(seen[None, :], scores, -float("inf"))
        most, total, acc = _absorb(scores, v_tile, most, total, acc, PRECISION)
    # a query that is not valid may see nothing
    total = tl.where(total > 0, total, 1.0)
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
    tl.store(at, most + tl.log2(total), mask=real)


@triton.jit
def _program(H, W, heads, A: tl.constexpr, W_: tl.constexpr, BLOCK_T: tl.constexpr):
    """This program's head, image (int64), window, and places of queries in it.

    Heads are the fastest, since those of a token lie side by side in memory.
    """
    pid = tl.program_id(0)
    head = pid % heads
    pid = pid // heads
    TILES: tl.constexpr = (A * W_ + BLOCK_T - 1) // BLOCK_T
    tile = pid % TILES
    pid = pid // TILES
    across = (W + W_ - 1) // W_
    down = (H + A - 1) // A
    wx = pid % across
    pid = pid // across
    wy = pid % down
    return head, (pid // down).to(tl.int64), wy, wx, tile * BLOCK_T + tl.arange(0, BLOCK_T)
