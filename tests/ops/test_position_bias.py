import pytest
import torch
from torch.autograd import forward_ad

from vit_ls.grid import relative_position_index
from vit_ls.ops import (
    grid_bias,
    resize_grid_table,
    resize_window_table,
    window_bias,
    window_halo,
    window_row_stride,
    window_table_rows,
)

WINDOWS = [(window, whole) for window in (1, 2, 4, 7) for whole in (False, True)]


def table_of(window, whole, dtype=torch.float32):
    """A table, and what `window_bias` and an index of it take."""
    halo = window_halo(window, whole)
    table = torch.randn(window_table_rows(window, whole), 3).to(dtype)
    return table, ((window, window), (halo, halo), window_row_stride(window, whole))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("window", "whole"), WINDOWS)
def test_the_bias_of_a_window_is_its_table_by_index_to_the_bit(window, whole, dtype):
    table, sizes = table_of(window, whole, dtype)
    expected = table[relative_position_index(*sizes)].permute(2, 0, 1)
    bias = window_bias(table, *sizes)
    assert torch.equal(bias, expected)
    assert bias.is_contiguous()


@pytest.mark.parametrize(("window", "whole"), WINDOWS)
def test_the_gradient_of_a_bias_is_that_of_an_index(window, whole):
    table, sizes = table_of(window, whole)
    cotangent = torch.randn_like(window_bias(table, *sizes))
    by_index = table.requires_grad_().T.contiguous()[:, relative_position_index(*sizes)]
    (expected,) = torch.autograd.grad(by_index, table, cotangent)
    (found,) = torch.autograd.grad(window_bias(table, *sizes), table, cotangent)
    torch.testing.assert_close(found, expected)


def test_a_bias_has_forward_and_second_derivatives():
    table, sizes = table_of(2, False, torch.float64)
    with forward_ad.dual_level():
        tangent = torch.randn_like(table)
        dual = window_bias(forward_ad.make_dual(table, tangent), *sizes)
        assert torch.equal(forward_ad.unpack_dual(dual).tangent, window_bias(tangent, *sizes))

    def square(table):
        return window_bias(table, *sizes).square()

    assert torch.autograd.gradcheck(square, table.requires_grad_())
    assert torch.autograd.gradgradcheck(square, table)


def test_transforms_of_functions_see_the_same_bias():
    table, sizes = table_of(4, False)
    mapped = torch.func.vmap(lambda table: window_bias(table, *sizes))(torch.stack((table, table)))
    assert torch.equal(mapped[1], window_bias(table, *sizes))


def test_inference_makes_no_index(monkeypatch):
    def refuse(*_):
        raise AssertionError("an index was made")

    monkeypatch.setattr("vit_ls.ops.position_bias.relative_position_index", refuse)
    table, sizes = table_of(7, False)
    window_bias(table, *sizes)
    grid_bias(torch.randn(81, 2), (5, 5), 3, 7)


def test_resizing_to_the_same_grid_changes_no_bit():
    table = torch.randn(27 * 27, 3)
    assert torch.equal(resize_grid_table(table, (14, 14), (14, 14)), table)


def test_a_linear_table_stays_linear_in_the_middle():
    """Bilinear resizing keeps a ramp a ramp away from the border, and its middle in the middle."""
    ramp = torch.arange(-4.0, 5.0)[:, None].expand(9, 9).reshape(81, 1)
    resized = resize_grid_table(ramp, (5, 5), (9, 9)).view(17, 17)
    assert resized[8].abs().max() < 1e-5
    steps = resized[3:14].diff(dim=0)
    torch.testing.assert_close(steps, torch.full_like(steps, 9 / 17))


def test_the_bias_of_another_grid_is_that_of_the_resized_table():
    table = torch.randn(9 * 9, 2)
    index = relative_position_index((3, 7), (0, 0), 2 * 7 - 1)
    bias = grid_bias(table, (5, 5), 3, 7)
    expected = resize_grid_table(table, (5, 5), (3, 7))[index].permute(2, 0, 1)
    assert bias.shape == (2, 21, 21)
    assert torch.equal(bias, expected)


@pytest.mark.parametrize("window", [1, 2, 4, 7, 8, 12])
def test_a_window_table_has_a_row_for_each_index_and_all_are_used(window):
    s = window_halo(window)
    index = relative_position_index((window, window), (s, s), window_row_stride(window))
    assert index.max() == window_table_rows(window) - 1
    assert index.unique().numel() == window_table_rows(window)


def test_resizing_a_window_table_to_its_own_size_keeps_rows_that_one_offset_has():
    table = torch.randn(window_table_rows(7), 3)
    resized = resize_window_table(table, 7, 7)
    torch.testing.assert_close(resized, table)


def test_a_constant_window_table_stays_constant():
    table = torch.full((window_table_rows(7), 3), 0.5)
    resized = resize_window_table(table, 7, 8)
    torch.testing.assert_close(resized, torch.full((window_table_rows(8), 3), 0.5))


def test_a_window_table_that_falls_with_distance_does_so_after_resizing():
    """A table of -dy, which no shared row blurs, keeps its order from 7 to 8."""
    s, stride = window_halo(7), window_row_stride(7)
    rows = torch.arange(window_table_rows(7))
    table = -(rows / stride)[:, None]
    resized = resize_window_table(table, 7, 8)
    new_stride = window_row_stride(8)
    column = resized[8 + window_halo(8) - 1 :: new_stride, 0]
    assert s == 3
    assert (column.diff() < 0).all()
