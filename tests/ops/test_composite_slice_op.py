import math

import pytest
import torch
import torch.nn.functional as F
from tolerances import TOLERANCE

from vit_ls.grid import halo_mask
from vit_ls.ops import (
    Windows,
    add_to_tokens,
    attend,
    attend_slices,
    merge_heads,
    resize_positions,
    slice_attention,
    slice_embedding,
    slice_halo,
    split_heads,
)
from vit_ls.ops.impl import IMPLEMENTATIONS, WHY_NOT

HEADS, DIM, BATCH = 2, 8, 2
EXACT = TOLERANCE[torch.float64]
GRIDS = [(5, 9), (8, 8), (3, 2), (1, 8)]
SLICES = [(4, 4), (1, 4), (3, 2), (8, 9), (1, 1)]
# those that need a device of their own have a file of their own
OTHERS = [name for name in IMPLEMENTATIONS if name != "dense" and name not in WHY_NOT]


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def local(inputs, slice_size, halo, impl="auto"):
    q, k, v, pos_q, pos_k = (*inputs, None, None)[:5]
    windows = Windows(slice_size, halo)
    return slice_attention(
        q, torch.stack((k, v)), pos_q, pos_k, windows, impl=impl, num_heads=HEADS
    )


@pytest.mark.parametrize("impl", OTHERS)
@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("slice_size", SLICES)
@pytest.mark.parametrize("grid", GRIDS)
def test_every_implementation_equals_dense(grid, slice_size, alpha, impl):
    halo = slice_halo(slice_size, alpha)
    extended = [n + 2 * s for n, s in zip(slice_size, halo, strict=True)]
    inputs = [leaf(BATCH, *grid, DIM) for _ in "qkv"] + [leaf(*extended, DIM) for _ in "qk"]
    expected, y = (local(inputs, slice_size, halo, name) for name in ("dense", impl))
    torch.testing.assert_close(y, expected, **EXACT)
    cotangent = torch.randn_like(y)
    for got, want in zip(
        torch.autograd.grad(y, inputs, cotangent),
        torch.autograd.grad(expected, inputs, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(got, want, **EXACT)


@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_one_slice_over_the_whole_grid_is_full_attention(alpha):
    q, k, v = (leaf(BATCH, 5, 9, DIM) for _ in "qkv")
    heads = (split_heads(x.flatten(1, 2), HEADS) for x in (q, k, v))
    expected = merge_heads(attend(*heads)).unflatten(1, (5, 9))
    y = local((q, k, v), (5, 9), slice_halo((5, 9), alpha))
    torch.testing.assert_close(y, expected, **EXACT)


def test_slices_of_one_token_give_the_values():
    q, k, v = (leaf(BATCH, 5, 9, DIM) for _ in "qkv")
    torch.testing.assert_close(local((q, k, v), (1, 1), (0, 0)), v, **EXACT)


def test_a_row_slice_is_the_paper_s_slice_of_the_flattened_grid():
    q, k, v = (leaf(BATCH, 6, 8, DIM) for _ in "qkv")
    on_grid = local((q, k, v), (1, 4), (0, 0))
    flattened = local([x.view(BATCH, 1, 48, DIM) for x in (q, k, v)], (1, 4), (0, 0))
    torch.testing.assert_close(on_grid.view(BATCH, 1, 48, DIM), flattened, **EXACT)


@pytest.mark.parametrize("aggregation", ["mean", "max", "linear"])
@pytest.mark.parametrize("halo", [(0, 0), (2, 1)])
def test_a_slice_embedding_holds_the_tokens_inside_the_grid_and_no_padding(
    monkeypatch, aggregation, halo
):
    H, W, (a, b) = 5, 9, (4, 2)
    y, weight = leaf(BATCH, H, W, DIM), leaf(1, a * b)
    expected = torch.empty(BATCH, 2, 5, DIM, dtype=torch.float64)
    for i in range(2):
        for j in range(5):
            rows, cols = range(i * a, min(H, i * a + a)), range(j * b, min(W, j * b + b))
            tokens = torch.stack([y[:, r, c] for r in rows for c in cols])
            if aggregation == "mean":
                expected[:, i, j] = tokens.mean(0)
            elif aggregation == "max":
                expected[:, i, j] = tokens.amax(0)
            else:
                places = [(r - i * a) * b + c - j * b for r in rows for c in cols]
                expected[:, i, j] = (tokens * weight[0, places, None, None]).sum(0)
    mask = halo_mask(H, W, (a, b), halo)

    def embedding():
        used = weight if aggregation == "linear" else None
        return slice_embedding(y, Windows((a, b), halo, mask), used, aggregation=aggregation)

    torch.testing.assert_close(embedding(), expected, **EXACT)
    pad = F.pad
    monkeypatch.setattr(F, "pad", lambda x, widths: pad(x, widths, value=1e6))
    torch.testing.assert_close(embedding(), expected, **EXACT)


def test_the_mean_of_a_large_slice_does_not_overflow_in_half_precision():
    y = torch.full((1, 16, 16, 4), 1000.0, dtype=torch.float16)
    mean = slice_embedding(y, Windows((16, 16), (0, 0)), aggregation="mean")
    torch.testing.assert_close(mean, y[:, :1, :1])


def test_slices_attend_to_each_other_and_each_token_gets_what_its_slice_got():
    q, k, v = (leaf(BATCH, 2, 3, DIM) for _ in "qkv")
    among = attend_slices(q, torch.stack((k, v)), num_heads=HEADS, slice_size=(4, 2))
    own = leaf(BATCH, 7, 5, DIM)
    y = add_to_tokens(own, among, (4, 2)) - own
    heads = (split_heads(x.flatten(1, 2), HEADS) for x in (q, k, v))
    slices = merge_heads(attend(*heads)).unflatten(1, (2, 3))
    assert y.shape == (BATCH, 7, 5, DIM)
    for r in range(7):
        for c in range(5):
            torch.testing.assert_close(y[:, r, c], slices[:, r // 4, c // 2], **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_resizing_positions_to_their_own_grid_changes_no_bit(dtype):
    positions = torch.randn(4, 7, DIM).to(dtype)
    assert torch.equal(resize_positions(positions, 4, 7), positions)


def test_resizing_keeps_a_constant_and_interpolates_cubically():
    assert resize_positions(torch.ones(2, 2, 3), 5, 3).sub(1).abs().max() < 1e-6
    ramp = torch.arange(8.0).view(8, 1, 1)
    inner = resize_positions(ramp, 16, 1)[4:12, 0, 0]
    torch.testing.assert_close(inner.diff(), torch.full((7,), 0.5), atol=0.1, rtol=0)
    assert inner.diff().sub(0.5).abs().max() > 1e-3  # linear interpolation would be exact


@pytest.mark.parametrize(
    ("slice_size", "alpha", "halo"),
    [((7, 7), 1, (0, 0)), ((4, 6), 2, (2, 3)), ((7, 7), 3, (7, 7)), ((1, 14), 1.5, (0, 4))],
)
def test_a_slice_extends_by_half_of_what_alpha_adds(slice_size, alpha, halo):
    assert slice_halo(slice_size, alpha) == halo
    assert halo == tuple(round((alpha - 1) * n / 2) for n in slice_size)


@pytest.mark.parametrize("alpha", [0.9, 3.1, math.nan])
def test_alpha_outside_its_range_is_an_error(alpha):
    with pytest.raises(ValueError, match=r"^alpha must lie in \[1, 3\], got"):
        slice_halo((4, 4), alpha)


def test_a_slice_without_tokens_is_an_error():
    with pytest.raises(ValueError, match=r"^slice_size must be positive, got \(0, 4\)\.$"):
        slice_halo((0, 4), 1.0)


def test_an_unknown_implementation_is_an_error():
    q, k, v = (leaf(1, 4, 4, DIM) for _ in "qkv")
    with pytest.raises(ValueError, match=r"^impl must be 'auto' or one of .*, got 'sparse'"):
        local((q, k, v), (2, 2), (0, 0), impl="sparse")
