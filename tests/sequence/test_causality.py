import itertools

import pytest
import torch
from definitions import causal_long_short, slices
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_ls.sequence import (
    CausalCompositeSlice,
    CausalCompositeSliceAttention1d,
    CausalLongShort,
    CausalLongShortAttention,
    LanguageModel,
    SlicePositionEmbedding,
    SlicePositions,
)
from vit_ls.sequence.sinusoids import sinusoids

DIM, HEADS = 8, 2
CLOSE = {"rtol": 0.0, "atol": 1e-10}
LENGTHS = (1, 2, 5, 9)
LONG_SHORT = [
    {"window": w, "segment": size, "rank": r, "window_form": form}
    for w, size, r, form in itertools.product((1, 2, 5), (1, 3, 4), (0, 1, 2), ("band", "group"))
]
SLICED = [
    {"slice_size": L, "alpha": alpha} for L, alpha in itertools.product((1, 2, 3, 9), (1, 2, 3))
]


def make_long_short(**options):
    torch.manual_seed(0)
    layer = CausalLongShortAttention(DIM, HEADS, CausalLongShort(**options)).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return layer


class Sliced(torch.nn.Module):
    """The layer with its positions: what the language model makes of the two."""

    def __init__(self, slice_size, alpha, max_length=128):
        super().__init__()
        torch.manual_seed(0)
        self.layer = CausalCompositeSliceAttention1d(
            DIM, HEADS, CausalCompositeSlice(slice_size=slice_size, alpha=alpha)
        )
        self.positions = SlicePositionEmbedding(
            DIM, slice_size=slice_size, max_length=max_length, alpha=alpha, causal=True
        )
        self.double()
        for p in self.parameters():
            torch.nn.init.normal_(p, std=0.5)

    def forward(self, x, state=None):
        return self.layer(x, self.positions(), state)


def tokens(N, batch=1):
    return torch.randn(
        batch, N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(N)
    )


def check_no_leak(layer, N, t):
    """Outputs before t neither change nor send gradients when anything at or after t changes."""
    x = tokens(N).requires_grad_()
    y, _ = layer(x)
    weight = torch.randn(t, DIM, dtype=x.dtype)
    (y[0, :t] * weight).sum().backward()
    assert not x.grad[0, t:].any()
    assert x.grad[0, :t].abs().sum(1).all()
    other = x.detach().clone()
    other[:, t:] = 3 * torch.randn_like(other[:, t:])
    changed, _ = layer(other)
    torch.testing.assert_close(changed[:, :t], y[:, :t], **CLOSE)
    if t < N:
        assert not torch.allclose(changed[:, t:], y[:, t:])


@pytest.mark.parametrize("options", LONG_SHORT, ids=str)
def test_long_short_equals_its_definition_and_leaks_nothing(options):
    layer = make_long_short(**options)
    for N in LENGTHS:
        x = tokens(N)
        torch.testing.assert_close(layer(x)[0][0], causal_long_short(layer, x[0]), **CLOSE)
        for t in range(1, N):
            check_no_leak(layer, N, t)


@pytest.mark.parametrize("options", SLICED, ids=str)
def test_slices_equal_their_definition_and_leak_nothing(options):
    model = Sliced(**options)
    for N in LENGTHS:
        x = tokens(N)
        P_l, P_g = model.positions()
        expected = slices(model.layer, x[0], P_l, P_g, model.layer.reach, causal=True)
        torch.testing.assert_close(model(x)[0][0], expected, **CLOSE)
        for t in range(1, N):
            check_no_leak(model, N, t)


lengths = st.integers(2, 90)


@settings(max_examples=25, deadline=None)
@given(lengths, st.integers(1, 40), st.integers(1, 20), st.integers(0, 3), st.data())
def test_long_short_of_any_size_leaks_nothing(N, window, segment, rank, data):
    layer = make_long_short(window=window, segment=segment, rank=rank)
    check_no_leak(layer, N, data.draw(st.integers(1, N - 1)))


@settings(max_examples=25, deadline=None)
@given(lengths, st.integers(1, 30), st.floats(1, 3), st.data())
def test_slices_of_any_size_leak_nothing(N, slice_size, alpha, data):
    check_no_leak(Sliced(slice_size, alpha), N, data.draw(st.integers(1, N - 1)))


def pieces(data, N):
    cuts = sorted(data.draw(st.sets(st.integers(1, N - 1), max_size=6)))
    return [b - a for a, b in itertools.pairwise([0, *cuts, N])]


def check_pieces(layer, N, lengths):
    x = tokens(N, batch=2)
    whole, after = layer(x)
    state, outputs = None, []
    for piece in x.split(lengths, dim=1):
        y, state = layer(piece, state=state)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, **CLOSE)
    torch.testing.assert_close(tuple(state), tuple(after), **CLOSE)


@settings(max_examples=25, deadline=None)
@given(lengths, st.integers(1, 40), st.integers(1, 20), st.integers(0, 2), st.data())
def test_long_short_in_pieces_equals_one_call(N, window, segment, rank, data):
    form = data.draw(st.sampled_from(["band", "group"]))
    layer = make_long_short(window=window, segment=segment, rank=rank, window_form=form)
    check_pieces(layer, N, pieces(data, N))


@settings(max_examples=25, deadline=None)
@given(lengths, st.integers(1, 30), st.floats(1, 3), st.data())
def test_slices_in_pieces_equal_one_call(N, slice_size, alpha, data):
    check_pieces(Sliced(slice_size, alpha), N, pieces(data, N))


@pytest.mark.parametrize("layer", [make_long_short(window=5, segment=4, rank=2), Sliced(4, 3)])
def test_token_by_token_equals_one_call_with_a_state_that_does_not_grow(layer):
    check_pieces(layer, 33, [1] * 33)
    sizes, state = [], None
    for x in tokens(60).split(1, dim=1):
        _, state = layer(x, state=state)
        kept = (
            state[1:-1] if isinstance(layer, CausalLongShortAttention) else (*state[1:3], state[4])
        )
        sizes.append(sum(y.numel() for y in kept))
    assert max(sizes[20:40]) == max(sizes[40:])
    assert sizes[20:40] == sizes[40:]


def test_what_is_read_from_a_cache_equals_one_call():
    layer = make_long_short(window=6, segment=4, rank=2)
    x = tokens(31, batch=2)
    whole, _ = layer(x)
    for cut in (1, 4, 12, 13):
        y, _ = layer(x[:, cut:], layer.read(x[:, :cut]))
        torch.testing.assert_close(y, whole[:, cut:], **CLOSE)


def test_the_released_projection_of_a_cache_is_the_same_for_one_head_and_another_for_two():
    for heads, same in ((1, True), (2, False)):
        torch.manual_seed(0)
        options = {"window": 6, "segment": 4, "rank": 2}
        layer = CausalLongShortAttention(
            DIM, heads, CausalLongShort(**options, cached_projection="hidden")
        )
        layer.double()
        for p in layer.parameters():
            torch.nn.init.normal_(p, std=0.5)
        x = tokens(24)
        y, _ = layer(x[:, 16:], layer.read(x[:, :16]))
        assert torch.allclose(y, layer(x)[0][:, 16:], atol=1e-10) is same


def full_causal(layer, x):
    """Full causal attention by the weights of a layer, before its output projection."""
    N = x.shape[1]
    q, kv = layer.qkv.tokens(x)
    q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in (q, *kv))
    scores = q @ k.transpose(-2, -1) / (DIM // HEADS) ** 0.5
    scores = scores.masked_fill(torch.ones(N, N).triu(1).bool(), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("alpha", [1, 3])
def test_one_slice_over_the_sequence_is_full_causal_attention(alpha):
    model = Sliced(17, alpha)
    x = tokens(17)
    zero = SlicePositions(*(torch.zeros_like(P) for P in model.positions()))
    expected = model.layer.proj(full_causal(model.layer, x))
    torch.testing.assert_close(model.layer(x, zero)[0], expected, **CLOSE)
    torch.testing.assert_close(model.layer(x)[0], expected, **CLOSE)


def test_slices_of_one_token_are_values_and_the_shifted_full_attention_among_them():
    layer = Sliced(1, 1).layer
    x = tokens(13)
    U = layer.qkv.tokens(x)[1][1]
    shifted = torch.nn.functional.pad(full_causal(layer, U), (0, 0, 1, 0))[:, :-1]
    torch.testing.assert_close(layer(x)[0], layer.proj(U + shifted), **CLOSE)


def test_a_window_over_the_sequence_without_projection_sees_all_of_the_past():
    layer = make_long_short(window=40, segment=4, rank=0)
    x = tokens(21).requires_grad_()
    layer(x)[0][0, -1].sum().backward()
    assert x.grad[0].abs().sum(1).all()


@pytest.mark.parametrize(("window", "all_seen"), [(3, False), (4, True)])
def test_everything_past_is_seen_if_the_window_is_no_shorter_than_a_segment(window, all_seen):
    layer = make_long_short(window=window, segment=4, rank=1)
    seen = []
    for t in range(16):
        x = tokens(16).requires_grad_()
        layer(x)[0][0, t].sum().backward()
        seen.append(bool(x.grad[0, : t + 1].abs().sum(1).all()))
    assert all(seen) is all_seen


def make_model(attention, **options):
    torch.manual_seed(0)
    model = LanguageModel(
        vocab_size=11, dim=DIM, depth=2, num_heads=HEADS, hidden=16, attention=attention, **options
    )
    return model.double().eval()


MODELS = {
    "long_short": (CausalLongShort(5, 4, 2), {"memory_length": 64}),
    "slices": (CausalCompositeSlice(4, 3), {"max_length": 64}),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_language_model_advances_token_by_token_as_in_one_call(name):
    attention, options = MODELS[name]
    model = make_model(attention, **options)
    ids = torch.randint(11, (2, 37))
    whole, _ = model(ids)
    states, logits = None, []
    for token in ids.split(1, dim=1):
        y, states = model.advance(token, states)
        logits.append(y)
    torch.testing.assert_close(torch.cat(logits, 1), whole, rtol=0, atol=1e-6)
    likeliest = model.generate(ids, 5, temperature=0)
    assert torch.equal(likeliest[:, :37], ids)
    assert torch.equal(likeliest[:, 37], whole[:, -1].argmax(-1))
    again, _ = model(likeliest)
    assert torch.equal(again[:, 36:-1].argmax(-1), likeliest[:, 37:])


def make_dropping(**options):
    torch.manual_seed(0)
    return LanguageModel(
        vocab_size=11,
        dim=DIM,
        depth=2,
        num_heads=HEADS,
        hidden=16,
        attention=CausalLongShort(4, 2, 1),
        dropout=0.5,
        **options,
    )


def test_training_drops_positions_of_the_window_once_for_all_layers():
    model, ids = make_dropping().train(), torch.tensor([[1, 2, 3, 4, 5]])
    sines = model.blocks[0].attn.window_sines(model.embed(ids))
    seen = []
    for block in model.blocks:
        block.attn.window_position.register_forward_pre_hook(
            lambda _, args: seen.append(args[0].detach())
        )
    model(ids)
    model.advance(ids)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[2], seen[3])
    assert not torch.equal(seen[0], seen[2])
    for dropped in seen:
        gone = dropped == 0
        assert 0.2 < gone[sines != 0].double().mean() < 0.8
        torch.testing.assert_close(dropped[~gone], 2 * sines[~gone])
    seen.clear()
    model.eval()(ids)
    assert all(torch.equal(found, sines) for found in seen)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sines_of_far_distances_are_computed_wide_and_rounded_once(dtype):
    far = torch.arange(8000, 8192)
    exact = sinusoids(far, 64, torch.float64)
    torch.testing.assert_close(
        sinusoids(far, 64, dtype).double(), exact, rtol=0, atol=0.6 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("residual", ["input", "normalised"])
def test_norms_are_drawn_as_released_in_the_released_form_alone(residual):
    torch.manual_seed(0)
    model = LanguageModel(
        vocab_size=11,
        dim=64,
        depth=4,
        num_heads=HEADS,
        hidden=64,
        attention=CausalLongShort(4, 2, 1),
        residual=residual,
    )
    norms = [m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert len(norms) == 4 * 4 + (residual == "input")  # two of a block, two of its attention
    weights = torch.cat([norm.weight.detach() for norm in norms])
    assert not any(norm.bias.any() for norm in norms)
    assert abs(weights.mean() - 1) < 2e-3
    assert weights.std() == pytest.approx(0.02 if residual == "normalised" else 0.0, abs=2e-3)
    for name in ("qkv", "dynamic_projection", "segment_position", "window_position"):
        drawn = getattr(model.blocks[0].attn, name)
        assert drawn.weight.detach().std() == pytest.approx(0.02, abs=4e-3)
        assert drawn.bias is None or not drawn.bias.any()


def test_generation_drops_nothing_and_gives_each_module_its_mode_back():
    model, prompt = make_dropping().train(), torch.tensor([[1, 2, 3]])
    model.blocks[0].mlp.eval()  # one that its owner froze
    modes = [module.training for module in model.modules()]
    written = [model.generate(prompt, 20, temperature=0) for _ in range(2)]
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError, match=r"must lie in \[0, 11\), got 11"):
        model.generate(torch.tensor([[11]]), 2)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(written[0], written[1])
    assert torch.equal(written[0], model.eval().generate(prompt, 20, temperature=0))


@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-45, 1e-40, 1e-30, 1e-9])
@pytest.mark.parametrize("flush", [False, True])
def test_a_temperature_near_zero_takes_the_likeliest(temperature, flush):
    model = make_dropping().eval()
    prompt = torch.tensor([[1, 2, 3], [4, 5, 6]])
    expected = model.generate(prompt, 12, temperature=0)
    had = not torch.tensor(1e-40) * 1.0 > 0
    torch.set_flush_denormal(flush)
    try:
        found = model.generate(prompt, 12, temperature=temperature)
    finally:
        torch.set_flush_denormal(had)
    assert torch.equal(found, expected)


def test_a_temperature_shifts_how_often_a_token_is_drawn_as_the_softmax_says():
    model = make_dropping().eval()
    prompt = torch.full((20_000, 1), 3)
    drawn = model.generate(prompt, 1, temperature=0.25, generator=torch.Generator().manual_seed(0))[
        :, 1
    ]
    shares = drawn.bincount(minlength=11) / len(prompt)
    p = (model.advance(prompt[:1])[0][0, -1] / 0.25).softmax(-1)
    assert (shares - p).abs().max() < 0.02


def test_a_memory_of_everything_gives_what_one_call_gives():
    attention, options = MODELS["long_short"]
    model = make_model(attention, **options)
    ids = torch.randint(11, (2, 61))
    whole, _ = model(ids)
    memory, logits = None, []
    for piece in ids.split([8, 1, 20, 3, 29], dim=1):
        y, memory = model(piece, memory)
        logits.append(y)
    torch.testing.assert_close(torch.cat(logits, 1), whole, rtol=0, atol=1e-6)


def test_a_memory_drops_whole_segments_and_keeps_its_length():
    model = make_model(CausalLongShort(5, 4, 2), memory_length=10)
    memory, lengths = None, []
    for piece in torch.randint(11, (1, 41)).split([3, 3, 3, 3, 3, 3, 23], dim=1):
        _, memory = model(piece, memory)
        lengths.append(memory[0].shape[1])
    assert lengths == [3, 6, 9, 12, 11, 10, 13]


def test_a_cold_start_does_not_depend_on_the_memory_that_it_has_not():
    ids = torch.randint(11, (1, 9))
    outputs = [make_model(CausalLongShort(5, 4, 2), memory_length=L)(ids)[0] for L in (0, 8, 64)]
    assert all(torch.equal(y, outputs[0]) for y in outputs)
    model = make_model(CausalLongShort(5, 4, 2), memory_length=8)
    assert not torch.allclose(model(ids, model.zero_memory(1))[0], outputs[0])


def test_bad_input_is_one_line_that_says_the_rule():
    layer, model = make_long_short(window=4, segment=4, rank=2), Sliced(4, 1, max_length=8)
    with pytest.raises(ValueError, match=r"at most 8 tokens, got 9"):
        model(tokens(9))
    _, state = model(tokens(8))
    with pytest.raises(ValueError, match=r"at most 8 tokens, got 9"):
        model(tokens(1), state)
    with pytest.raises(ValueError, match=r"A state must come from this layer"):
        layer(tokens(3), state=make_long_short(window=5, segment=4, rank=2)(tokens(9))[1])
    with pytest.raises(ValueError, match=r"A state must come from this layer"):
        layer(tokens(3), state=layer(tokens(9, batch=2))[1])
    with pytest.raises(ValueError, match=r"A state must come from this layer"):
        model(tokens(3), Sliced(2, 1)(tokens(5))[1])
    with pytest.raises(ValueError, match=r"must be a LongShortState, got SliceState"):
        layer(tokens(3), state=state)
    with pytest.raises(ValueError, match=r"must be a SliceState, got LongShortState"):
        model(tokens(3), layer(tokens(3))[1])
    with pytest.raises(ValueError, match=r"N of at least 1, got \[1, 0, 8\]"):
        layer(tokens(3)[:, :0])
    with pytest.raises(ValueError, match=r"A multiple|must be a multiple of segment=4"):
        CausalLongShortAttention(
            DIM, HEADS, CausalLongShort(window=4, segment=4, rank=1, cached_projection="hidden")
        ).double().read(tokens(6))
    lm = make_model(CausalLongShort(5, 4, 2), memory_length=8)
    with pytest.raises(ValueError, match=r"A token id must lie in \[0, 11\), got 11"):
        lm(torch.tensor([[3, 11]]))
    with pytest.raises(ValueError, match=r"Token ids must be long \[B, N\]"):
        lm(torch.zeros(1, 0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"A memory must have 2 tensors of shape \(1, at most 11"):
        lm(torch.tensor([[3]]), lm.zero_memory(2))
    with pytest.raises(ValueError, match=r"and type torch.float64, got 2 of .* torch.float32"):
        lm(torch.tensor([[3]]), [past.float() for past in lm.zero_memory(1)])
    with pytest.raises(ValueError, match=r"must not be negative, got count=2, temperature=nan"):
        lm.generate(torch.tensor([[3]]), 2, temperature=float("nan"))
    with pytest.raises(ValueError, match=r"depth must be positive, got 0"):
        LanguageModel(
            vocab_size=11,
            dim=DIM,
            depth=0,
            num_heads=HEADS,
            hidden=16,
            attention=MODELS["slices"][0],
        )
    sliced = make_model(CausalCompositeSlice(4), max_length=8)
    with pytest.raises(ValueError, match=r"no longer than the position table, 8 tokens, got 9"):
        sliced(torch.zeros(1, 9, dtype=torch.long))
    assert sliced.generate(torch.tensor([[3]]), 8).shape == (1, 9)
    with pytest.raises(ValueError, match=r"at most 9 tokens must come, got 1 and 9"):
        sliced.generate(torch.tensor([[3]]), 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window and segment must be positive"),
        ({"rank": -1}, "rank not negative"),
        ({"window_form": "tile"}, "'band' or 'group', got 'tile'"),
        ({"cached_projection": "both"}, "'keys' or 'hidden', got 'both'"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CausalLongShortAttention(
            DIM, HEADS, CausalLongShort(**{"window": 4, "segment": 4, "rank": 1} | options)
        )
