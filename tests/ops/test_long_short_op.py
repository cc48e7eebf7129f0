import itertools

import pytest
import torch
from tolerances import TOLERANCE

from vit_ls.ops import (
    Positions,
    Windows,
    attend,
    dynamic_projection,
    global_attention,
    long_short_attention,
    merge_heads,
    rules,
    split_heads,
    use_implementation,
    window_attention,
)
from vit_ls.ops import impl as implementations

HEADS, DIM, BATCH = 2, 8, 2
GRIDS = [(5, 9), (14, 14), (3, 2), (8, 8), (1, 8)]
WINDOWS = [(3, 3), (7, 7), (4, 2), (0, 0)]
# those that need a device of their own have a file of their own
IMPLEMENTATIONS = {
    name: row
    for name, row in implementations.IMPLEMENTATIONS.items()
    if name not in implementations.WHY_NOT
}
OTHERS = [name for name in IMPLEMENTATIONS if name != "dense"]


def halo_of(window):
    return tuple(max(1, w // 2) if w else 0 for w in window)


def make_inputs(H, W, window, rank=4, num_global=1, bias=True, dtype=torch.float64):
    """[q, k, v, projected k, v, global k, v, bias, global q], each a leaf or None."""

    def leaf(*shape):
        return torch.randn(*shape, dtype=dtype, requires_grad=True)

    s = halo_of(window)
    T, K = window[0] * window[1], (window[0] + 2 * s[0]) * (window[1] + 2 * s[1])
    grid = [leaf(BATCH, H, W, DIM) for _ in range(3)]
    projected = [leaf(BATCH, rank, DIM) if rank else None for _ in range(2)]
    tokens = [leaf(BATCH, num_global, DIM) if num_global else None for _ in range(3)]
    return [*grid, *projected, *tokens, leaf(HEADS, T, K) if bias and T else None]


def run(inputs, window, impl, valid=None):
    q, k, v, projected_k, projected_v, global_q, global_k, global_v, bias = inputs
    projected, tokens = (
        None if k_ is None else torch.stack((k_, v_))
        for k_, v_ in ((projected_k, projected_v), (global_k, global_v))
    )
    x = long_short_attention(
        q,
        torch.stack((k, v)),
        projected,
        tokens,
        Positions(bias),
        Windows(window, halo_of(window), valid=valid),
        num_heads=HEADS,
        impl=impl,
    )
    if global_q is None:
        return x, None
    return x, global_attention(global_q, tokens, x.expand(2, *x.shape), num_heads=HEADS)


@pytest.mark.parametrize("impl", OTHERS)
@pytest.mark.parametrize("piece", [40, 2**19])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_tokens_that_are_not_valid_are_seen_in_no_implementation(grid, piece, impl, monkeypatch):
    monkeypatch.setattr(rules, "PIECE", piece)
    valid = torch.rand(BATCH, *grid) < 0.6
    valid[1, -1] = False  # a whole row of windows, of one image alone
    for rank, bias, grad in itertools.product((0, 4), (False, True), (False, True)):
        inputs = make_inputs(*grid, (3, 3), rank, 0, bias)
        with torch.set_grad_enabled(grad):
            expected = run(inputs, (3, 3), "dense", valid)[0]
            actual = run(inputs, (3, 3), impl, valid)[0]
            changed = [*(x + 9 * ~valid[..., None] for x in inputs[:3]), *inputs[3:]]
            other = run(changed, (3, 3), impl, valid)[0]
        assert actual.isfinite().all()
        torch.testing.assert_close(actual[valid], expected[valid], **TOLERANCE[torch.float64])
        assert torch.equal(actual[valid], other[valid])


def outputs_and_gradients(inputs, window, impl):
    leaves = [x for x in inputs if x is not None]
    outputs = [y for y in run(inputs, window, impl) if y is not None]
    generator = torch.Generator().manual_seed(1)
    loss = sum(
        (y * torch.randn(y.shape, generator=generator, dtype=torch.float64)).sum() for y in outputs
    )
    grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    return outputs, grads


@pytest.mark.parametrize("impl", OTHERS)
@pytest.mark.parametrize("attention", ["fused", "products"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_every_implementation_equals_the_definition(grid, window, attention, impl):
    with use_implementation(attention=attention):
        for rank, num_global, bias in itertools.product((0, 4), (0, 1, 3), (False, True)):
            if window == (0, 0) and rank + num_global == 0:
                continue
            inputs = make_inputs(*grid, window, rank, num_global, bias)
            expected, expected_grads = outputs_and_gradients(inputs, window, "dense")
            actual, grads = outputs_and_gradients(inputs, window, impl)
            torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float64])
            torch.testing.assert_close(grads, expected_grads, **TOLERANCE[torch.float64])


@pytest.mark.parametrize("piece", [1, 2000, 10**6])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_inference_in_pieces_of_any_size_changes_nothing(grid, window, piece, monkeypatch):
    inputs = make_inputs(*grid, window)
    expected = run(inputs, window, "dense")
    monkeypatch.setattr(rules, "PIECE", piece)
    with torch.no_grad(), use_implementation(attention="products"):
        actual = run(inputs, window, "products")
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float64])


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("how", ["float32", "bfloat16", "autocast"])
def test_outputs_and_gradients_of_every_implementation_in_every_precision(how, impl):
    dtype = torch.float32 if how == "float32" else torch.bfloat16
    inputs = make_inputs(6, 9, (4, 4), dtype=torch.float64)
    expected, expected_grads = outputs_and_gradients(inputs, (4, 4), "dense")
    own = dtype if how == "bfloat16" else torch.float32
    narrow = [None if x is None else x.detach().to(own).requires_grad_() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        actual, grads = outputs_and_gradients(narrow, (4, 4), impl)
    for a, e in zip((*actual, *grads), (*expected, *expected_grads), strict=True):
        assert a.dtype in (own, dtype)
        scale = e.abs().max().clamp_min(1)
        torch.testing.assert_close(a.double() / scale, e / scale, **TOLERANCE[dtype])


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("halo", [(0, 0), (2, 1)], ids=str)
def test_positions_of_queries_and_keys_are_as_if_added_window_by_window(impl, halo):
    window, H, W = (3, 2), 5, 6
    q, k, v = (torch.randn(1, H, W, DIM, dtype=torch.float64) for _ in range(3))
    query_pos = torch.randn(*window, DIM, dtype=torch.float64)
    key_pos = torch.randn(
        window[0] + 2 * halo[0], window[1] + 2 * halo[1], DIM, dtype=torch.float64
    )
    positions = Positions(None, query_pos, key_pos)
    actual = window_attention(
        q, torch.stack((k, v)), None, positions, Windows(window, halo), impl, num_heads=HEADS
    )
    for y, x in itertools.product(range(H), range(W)):
        top, left = y // window[0] * window[0] - halo[0], x // window[1] * window[1] - halo[1]
        places = [
            (i, j)
            for i, j in itertools.product(range(key_pos.shape[0]), range(key_pos.shape[1]))
            if 0 <= top + i < H and 0 <= left + j < W
        ]
        query = q[:, y, x] + query_pos[y % window[0], x % window[1]]
        keys = torch.stack([k[:, top + i, left + j] + key_pos[i, j] for i, j in places], 1)
        values = torch.stack([v[:, top + i, left + j] for i, j in places], 1)
        expected = attend(*(split_heads(t, HEADS) for t in (query[:, None], keys, values)))
        torch.testing.assert_close(
            actual[:, y, x], merge_heads(expected)[:, 0], **TOLERANCE[torch.float64]
        )


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("window", [(7, 7), (0, 0)], ids=str)
def test_a_bias_of_keys_in_front_is_added_to_their_scores(window, with_bias, impl):
    """As one attention over [front | grid], which a window over the whole grid sees."""
    H, W, E = 5, 6, 3
    q, k, v = (torch.randn(2, H, W, DIM, dtype=torch.float64) for _ in range(3))
    front = torch.randn(2, 2, E, DIM, dtype=torch.float64)
    front_bias = torch.randn(HEADS, E, dtype=torch.float64)
    halo = (0, 0)
    bias = torch.randn(HEADS, 49, 49, dtype=torch.float64) if with_bias and window[0] else None
    actual = window_attention(
        *(q, torch.stack((k, v)), front, Positions(bias, front=front_bias)),
        Windows(window, halo),
        impl,
        num_heads=HEADS,
    )
    n = H * W if window[0] else 0
    place = torch.tensor([y * 7 + x for y in range(H) for x in range(W)])
    scores = torch.zeros(HEADS, H * W, n, dtype=torch.float64)
    if bias is not None:
        scores = bias[:, place][:, :, place]
    scores = torch.cat((front_bias[:, None].expand(-1, H * W, -1), scores), 2)
    keys, values = (
        torch.cat((f, x.flatten(1, 2)[:, :n]), 1) for f, x in zip(front, (k, v), strict=True)
    )
    expected = attend(
        *(split_heads(t, HEADS) for t in (q.flatten(1, 2), keys, values)), scores[None]
    )
    torch.testing.assert_close(
        actual.flatten(1, 2), merge_heads(expected), **TOLERANCE[torch.float64]
    )


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_a_window_over_the_whole_grid_is_full_attention(impl):
    inputs = make_inputs(5, 6, (6, 6), rank=0, num_global=0, bias=False)
    x, g = run(inputs, (6, 6), impl)
    q, k, v = (split_heads(t.flatten(1, 2), HEADS) for t in inputs[:3])
    assert g is None
    torch.testing.assert_close(
        x.flatten(1, 2), merge_heads(attend(q, k, v)), **TOLERANCE[torch.float64]
    )


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_a_key_out_of_reach_has_no_influence_and_one_in_reach_has(impl):
    inputs = make_inputs(12, 4, (4, 4), rank=0, num_global=0)
    (k_grad,) = torch.autograd.grad(run(inputs, (4, 4), impl)[0][:, :4].sum(), inputs[1])
    # the window of rows 0 to 3 reaches 2 rows below it
    assert (k_grad[:, 6:] == 0).all()
    assert (k_grad[:, :6] != 0).any(-1).all()


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_padding_never_receives_attention(impl):
    inputs = make_inputs(5, 9, (4, 4), rank=0, num_global=0, bias=False)
    inputs[2] = torch.ones_like(inputs[2])
    # with values of one, any weight on padding's zeros would show
    torch.testing.assert_close(
        run(inputs, (4, 4), impl)[0], torch.ones(BATCH, 5, 9, DIM).double(), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close_to_float32(impl, dtype):
    inputs = make_inputs(6, 9, (4, 4), dtype=torch.float32)
    expected = run(inputs, (4, 4), impl)
    actual = run([x if x is None else x.to(dtype) for x in inputs], (4, 4), impl)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.float(), e, **TOLERANCE[dtype])


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_inference_under_autocast_is_close_to_float32(impl):
    inputs = make_inputs(6, 9, (4, 4), dtype=torch.float32)
    expected = run(inputs, (4, 4), impl)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        actual = run(inputs, (4, 4), impl)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.float(), e, **TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("grid", [(1, 1), (1, 8), (8, 1), (9, 9)], ids=str)
def test_windows_that_are_nearly_all_padding_give_finite_numbers(grid):
    inputs = make_inputs(*grid, (8, 8), rank=0, num_global=0)
    outputs, grads = outputs_and_gradients(inputs, (8, 8), "tiled")
    assert all(t.isfinite().all() for t in (*outputs, *grads))


def test_no_tensor_of_the_mask_grows_with_the_batch():
    """The mask handed to the softmax is one for the whole batch."""
    sizes = []

    class Record(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if func is torch.nn.functional.scaled_dot_product_attention:
                sizes.append(kwargs["attn_mask"].shape if kwargs["attn_mask"] is not None else None)
            return func(*args, **kwargs)

    with Record():
        run(make_inputs(8, 8, (4, 4)), (4, 4), "tiled")
    assert sizes[0] == (1, 4 * HEADS, 16, 8 * 8 + 4 + 1)


def test_the_projection_is_a_mean_of_keys_with_weights_that_sum_to_one():
    k = torch.randn(2, 3, 4, DIM, dtype=torch.float64)
    v = torch.ones(2, 3, 4, DIM, dtype=torch.float64)
    logits = torch.randn(2, 3, 4, HEADS * 5, dtype=torch.float64)
    k_bar, v_bar = dynamic_projection(logits, torch.stack((k, v)), num_heads=HEADS)
    P = logits.flatten(1, 2).softmax(1)
    for head, r in itertools.product(range(HEADS), range(5)):
        d = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
        expected = (P[:, :, head * 5 + r, None] * k.flatten(1, 2)[:, :, d]).sum(1)
        torch.testing.assert_close(k_bar[:, r, d], expected, **TOLERANCE[torch.float64])
    torch.testing.assert_close(v_bar, torch.ones_like(v_bar), **TOLERANCE[torch.float64])


def test_global_tokens_attend_to_global_keys_and_outputs_of_the_grid():
    inputs = make_inputs(5, 5, (3, 3), num_global=3)
    x, g = run(inputs, (3, 3), "dense")
    keys, values = (torch.cat((t, x.flatten(1, 2)), 1) for t in inputs[6:8])
    expected = attend(*(split_heads(t, HEADS) for t in (inputs[5], keys, values)))
    torch.testing.assert_close(g, merge_heads(expected), **TOLERANCE[torch.float64])


def test_nothing_to_attend_to_is_an_error():
    inputs = make_inputs(4, 4, (0, 0), rank=0, num_global=0)
    with pytest.raises(ValueError, match="must be projected or global keys, got window=0, rank=0"):
        run(inputs, (0, 0), "tiled")


def test_an_unknown_implementation_is_an_error_that_names_the_known():
    with pytest.raises(ValueError, match=r"\['dense', .*'tiled', 'triton'\], got 'fast'"):
        run(make_inputs(4, 4, (2, 2)), (2, 2), "fast")
