import pytest
import torch
from tolerances import TOLERANCE
from torch.nn import functional

from vit_ls.ops import attend, merge_heads, rules, softmax_float32, split_heads, use_implementation

EVERY_IMPL = pytest.mark.parametrize("impl", ["fused", "products"])


@EVERY_IMPL
@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("piece", [1, 20, 10**6])
def test_attend_is_the_equation(mask, piece, impl, monkeypatch):
    monkeypatch.setattr(rules, "PIECE", piece)
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
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            actual = attend(q, k, v, mask, impl)
        torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float64])


def test_a_learned_mask_has_no_gradient_for_each_image(monkeypatch):
    q, k, v = (torch.randn(5, 3, n, 4) for n in (5, 7, 7))
    mask = torch.randn(1, 3, 5, 7, requires_grad=True)
    weights = torch.randn(5, 3, 5, 4)

    def run():
        out = attend(q, k, v, mask, "fused")
        return out.detach(), torch.autograd.grad((out * weights).sum(), mask)[0]

    images = []
    fused = functional.scaled_dot_product_attention

    def counted(q, *args, **named):
        images.append(len(q))
        return fused(q, *args, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    expected = run()
    monkeypatch.setattr(rules, "MASK_GRADIENT_DEVICES", {"cpu"})
    monkeypatch.setattr(rules, "MASK_GRADIENT", 2 * 3 * 5 * 7 * 4)
    torch.testing.assert_close(run(), expected)
    assert images == [5, 2, 2, 1]
    with torch.no_grad():
        attend(q, k, v, mask, "fused")
    assert images[-1] == 5, "no gradient follows"


@EVERY_IMPL
def test_a_float32_mask_serves_half_precision(impl):
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.randn(1, 2, 5, 5)
    expected = attend(q.float(), k.float(), v.float(), mask)
    actual = attend(q, k, v, mask, impl).float()
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("mask_heads", [None, 1, 7])
def test_the_fused_kernel_never_gets_more_heads_than_it_can_count(mask_heads, monkeypatch):
    q, k, v = (torch.randn(2, 7, 5, 4, dtype=torch.float64) for _ in "qkv")
    mask = None if mask_heads is None else torch.randn(1, mask_heads, 5, 5, dtype=torch.float64)
    expected = attend(q, k, v, mask, "products")
    counts = []

    class Record(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.nn.functional.scaled_dot_product_attention:
                counts.append(args[0].shape[1])
            return func(*args, **(kwargs or {}))

    assert rules.FUSED_HEADS == 65_535
    monkeypatch.setattr(rules, "FUSED_HEADS", 3)
    with Record():
        actual = attend(q, k, v, mask, "fused")
    assert counts == [3, 3, 1]
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float64])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_softmax_of_half_precision_is_rounded_once(dtype):
    scores = torch.randn(50, 300).mul(3).to(dtype)
    exact = scores.double().softmax(-1)
    # half a unit in the last place, and of the smallest subnormal where numbers are below the rest
    limit = exact * torch.finfo(dtype).eps / 2 * 1.01 + torch.finfo(dtype).smallest_normal
    assert ((softmax_float32(scores, -1).double() - exact).abs() <= limit).all()


def test_rules_are_taken_unless_overruled(monkeypatch):
    q, k = torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, 4, 8)
    monkeypatch.setattr(rules, "PRODUCTS", {("cpu", "float32", True): 16})
    assert rules.choose_attention("auto", q, k) == "products"
    assert rules.choose_attention("auto", q, torch.zeros(1, 1, 5, 8)) == "fused"
    assert rules.choose_attention("auto", q.half(), k.half()) == "fused"
    with torch.no_grad():
        assert rules.choose_attention("auto", q, k) == "fused"
    with use_implementation(attention="fused"):
        assert rules.choose_attention("auto", q, k) == "fused"
        assert rules.choose_attention("products", q, k) == "products"
    assert rules.choose_attention("auto", q, k) == "products"
    with torch.autocast("cpu", torch.bfloat16):
        assert rules.choose_attention("auto", q, k) == "fused"


def test_a_mask_that_learns_takes_products_for_its_gradient():
    q, k = torch.zeros(1, 1, 400, 8), torch.zeros(1, 1, 400, 8)
    mask = torch.zeros(1, 1, 400, 400, requires_grad=True)
    assert rules.choose_attention("auto", q, k, mask.detach()) == "fused"
    assert rules.choose_attention("auto", q, k, mask) == "products"
    with torch.no_grad():
        assert rules.choose_attention("auto", q, k, mask) == "fused"


@pytest.mark.parametrize(("threads", "times"), [(1, 1), (2, 2), (16, 16), (192, 16)])
def test_a_piece_grows_with_the_threads_that_share_it(threads, times, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert rules.piece() == times * rules.PIECE


def test_an_unknown_implementation_is_an_error():
    q = torch.zeros(1, 1, 4, 8)
    with pytest.raises(ValueError, match=r"must be 'auto', 'fused' or 'products', got 'fast'"):
        attend(q, q, q, impl="fast")


def test_merge_heads_is_the_inverse_of_split_heads():
    x = torch.randn(2, 5, 12)
    assert split_heads(x, 3).shape == (2, 3, 5, 4)
    assert torch.equal(merge_heads(split_heads(x, 3)), x)
