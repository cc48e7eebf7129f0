"""Dropout of attention weights: each is dropped or scaled, in every implementation."""

import pytest
import torch

from vit_ls.ops import (
    Positions,
    Windows,
    attend,
    slice_attention,
    use_implementation,
    window_attention,
)
from vit_ls.ops.impl import IMPLEMENTATIONS, WHY_NOT

DROP = 0.25


def assert_dropped(actual, weights):
    """Of weights that all differ, each is zero or itself by 1 / (1 - DROP)."""
    kept = actual != 0
    torch.testing.assert_close(actual, torch.where(kept, weights / (1 - DROP), 0.0))
    share = kept[weights > 0].double().mean().item()
    assert abs(share - (1 - DROP)) < 0.1


@pytest.mark.parametrize("impl", ["auto", "fused", "products"])
@pytest.mark.parametrize("grad", [True, False])
def test_each_weight_is_dropped_or_scaled(impl, grad):
    torch.manual_seed(0)
    q, k = torch.randn(3, 2, 30, 30, requires_grad=grad), torch.randn(3, 2, 30, 30)
    v = torch.eye(30).expand(3, 2, -1, -1)
    mask = torch.zeros(1, 1, 30, 30).masked_fill(torch.rand(30, 30) < 0.2, -torch.inf)
    assert_dropped(attend(q, k, v, mask, impl, drop=DROP), attend(q, k, v, mask))


@pytest.mark.parametrize(
    "impl", ["auto", *(name for name in IMPLEMENTATIONS if name not in WHY_NOT)]
)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("window", [(3, 3), (0, 0)], ids=["windows", "front alone"])
def test_each_weight_of_a_window_and_of_the_keys_in_front_is_dropped_or_scaled(impl, grad, window):
    torch.manual_seed(0)
    H, W, E = 5, 6, 4
    C = H * W + E  # one head, a channel for each key
    q = torch.randn(2, H, W, C, requires_grad=grad)
    kv = torch.randn(2, 2, H, W, C)
    kv[1] = torch.eye(C)[: H * W].view(1, H, W, C)
    front = torch.randn(2, 2, E, C)
    front[1] = torch.eye(C)[H * W :]
    halo = (1, 1) if window[0] else (0, 0)
    arguments = q, kv, front, Positions(), Windows(window, halo)
    weights = window_attention(*arguments, num_heads=1)
    assert_dropped(window_attention(*arguments, impl, num_heads=1, drop=DROP), weights)


def test_a_kernel_that_cannot_drop_says_so():
    x = torch.randn(1, 4, 4, 8)
    with (
        use_implementation(windows="triton"),
        pytest.raises(ValueError, match=r"impl='triton' cannot run here: its kernels drop no"),
    ):
        slice_attention(
            x, torch.stack((x, x)), None, None, Windows((2, 2), (0, 0)), num_heads=2, drop=DROP
        )
