import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vit_ls.grid import (
    add_halo,
    cut_halo,
    halo_mask,
    merge,
    num_windows,
    pad_to_multiple,
    partition,
    partition_halo,
    relative_position_index,
)

sizes = st.integers(1, 13)
small = st.integers(1, 4)
windows = st.tuples(st.integers(1, 6), st.integers(1, 6))
halos = st.tuples(st.integers(0, 5), st.integers(0, 5))


def numbered(H, W):
    """A grid [1,H,W,1] whose tokens carry their own number, from 1: zero is padding."""
    return torch.arange(1, H * W + 1).view(1, H, W, 1)


@given(sizes, sizes, windows)
def test_merge_is_the_inverse_of_partition(H, W, window):
    x = torch.randn(2, H, W, 3)
    assert torch.equal(merge(partition(x, window), H, W), x)


@given(sizes, sizes, windows)
def test_partition_has_one_place_for_each_token_and_zeros_elsewhere(H, W, window):
    tokens = partition(numbered(H, W), window)
    assert tokens.shape[1:5] == (num_windows(H, window[0]), num_windows(W, window[1]), *window)
    assert tokens[tokens > 0].sort().values.tolist() == list(range(1, H * W + 1))


@given(sizes, sizes, windows)
def test_padding_is_below_and_to_the_right_and_no_larger_than_needed(H, W, window):
    padded = pad_to_multiple(numbered(H, W), window)
    assert torch.equal(padded[:, :H, :W], numbered(H, W))
    assert padded.sum() == numbered(H, W).sum()
    assert 0 <= padded.shape[1] - H < window[0]
    assert 0 <= padded.shape[2] - W < window[1]


@given(sizes, sizes, windows, halos)
def test_a_halo_window_holds_the_tokens_around_its_window(H, W, window, halo):
    grid = numbered(H, W)
    windows = partition_halo(grid, window, halo)
    mask = halo_mask(H, W, window, halo)
    for i in range(windows.shape[1]):
        for j in range(windows.shape[2]):
            for y in range(windows.shape[3]):
                for x in range(windows.shape[4]):
                    row, col = i * window[0] + y - halo[0], j * window[1] + x - halo[1]
                    inside = 0 <= row < H and 0 <= col < W
                    expected = grid[0, row, col, 0] if inside else 0
                    assert windows[0, i, j, y, x, 0] == expected
                    assert mask[i, j, y, x] == inside


@given(sizes, sizes, windows)
def test_without_a_halo_both_partitions_agree(H, W, window):
    x = torch.randn(2, H, W, 3)
    assert torch.equal(partition_halo(x, window, (0, 0)), partition(x, window))


@given(sizes, sizes, windows, halos)
def test_every_window_keeps_a_key(H, W, window, halo):
    assert halo_mask(H, W, window, halo).flatten(2).any(-1).all()


@given(windows, halos)
def test_relative_position_index_depends_on_the_offset_alone(window, halo):
    (a, b), (sa, sb) = window, halo
    row_stride = 2 * (b + sb)
    index = relative_position_index(window, halo, row_stride)
    assert index.shape == (a * b, (a + 2 * sa) * (b + 2 * sb))
    assert index.min() == 0
    for query in range(a * b):
        for key in range(index.shape[1]):
            dy = query // b - (key // (b + 2 * sb) - sa)
            dx = query % b - (key % (b + 2 * sb) - sb)
            assert index[query, key] == (dy + sa + a - 1) * row_stride + dx + sb + b - 1


def test_gradients_of_overlapping_windows_add_up():
    x = torch.ones(1, 4, 4, 1, requires_grad=True)
    partition_halo(x, (2, 2), (1, 1)).sum().backward()
    # a token is a key of its own window, and of each window that it borders on
    times = torch.tensor([1.0, 2.0, 2.0, 1.0])
    assert torch.equal(x.grad[0, :, :, 0], times[:, None] * times)


@given(small, small, windows, halos)
def test_the_gradient_of_a_cut_is_that_of_unfold(Nh, Nw, window, halo):
    (a, b), (sa, sb) = window, halo
    x = torch.randn(2, Nh * a + 2 * sa, Nw * b + 2 * sb, 3, dtype=torch.double, requires_grad=True)
    tiles = cut_halo(x, window, halo)
    unfolded = x.unfold(1, a + 2 * sa, a).unfold(2, b + 2 * sb, b).permute(0, 1, 2, 4, 5, 3)
    assert torch.equal(tiles, unfolded)
    weights = torch.randn_like(tiles)
    (actual,) = torch.autograd.grad(tiles, x, weights)
    (expected,) = torch.autograd.grad(unfolded, x, weights)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(add_halo(weights, window, halo), expected)


@pytest.mark.parametrize(("window", "halo"), [((3, 2), (1, 1)), ((2, 2), (3, 0)), ((2, 3), (0, 0))])
def test_a_cut_has_all_kinds_of_derivatives(window, halo):
    def move(x):
        return cut_halo(x, window, halo)

    side = (2 * window[0] + 2 * halo[0], 2 * window[1] + 2 * halo[1])
    x = torch.randn(1, *side, 1, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(move, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: move(x) ** 2, x)
    per_sample = torch.func.vmap(torch.func.grad(lambda x: move(x).square().sum()))(x[None])
    assert torch.equal(per_sample[0], torch.func.grad(lambda x: move(x).square().sum())(x))


@pytest.mark.parametrize(("size", "window", "expected"), [(1, 7, 1), (7, 7, 1), (8, 7, 2)])
def test_num_windows_rounds_up(size, window, expected):
    assert num_windows(size, window) == expected
