import pytest
import torch
from timm.layers import set_fused_attn
from tolerances import TOLERANCE

from vit_ls.ops import attend, merge_heads, softmax_float32, split_heads


@pytest.fixture(params=[True, False], ids=["fused", "explicit"])
def fused(request):
    set_fused_attn(request.param)
    yield request.param
    set_fused_attn(True)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attend_is_the_equation(mask):
    q, k, v = (torch.randn(2, 3, n, 4, dtype=torch.float64) for n in (5, 7, 7))
    scores = q @ k.transpose(-2, -1) / 2
    if mask == "bool":
        mask = torch.rand(1, 3, 5, 7) < 0.7
        mask[..., 0] = True
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask == "float":
        mask = torch.randn(1, 3, 5, 7, dtype=torch.float64)
        scores = scores + mask
    expected = scores.softmax(-1) @ v
    torch.testing.assert_close(attend(q, k, v, mask), expected, **TOLERANCE[torch.float64])


@pytest.mark.usefixtures("fused")
def test_a_float32_mask_serves_half_precision():
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.randn(1, 2, 5, 5)
    expected = attend(q.float(), k.float(), v.float(), mask)
    torch.testing.assert_close(attend(q, k, v, mask).float(), expected, **TOLERANCE[torch.bfloat16])


def test_softmax_of_half_precision_is_computed_in_float32():
    scores = torch.linspace(-3, 3, 300, dtype=torch.bfloat16)
    expected = scores.float().softmax(0).to(torch.bfloat16)
    assert torch.equal(softmax_float32(scores, 0), expected)


def test_merge_heads_is_the_inverse_of_split_heads():
    x = torch.randn(2, 5, 12)
    assert split_heads(x, 3).shape == (2, 3, 5, 4)
    assert torch.equal(merge_heads(split_heads(x, 3)), x)
