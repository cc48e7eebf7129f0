import pytest
import torch
from definitions import long_short, slices
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_ls.ops.impl import IMPLEMENTATIONS, WHY_NOT
from vit_ls.sequence import (
    CompositeSlice,
    CompositeSliceAttention1d,
    Full,
    FullAttention1d,
    LongShort,
    LongShortAttention1d,
    SequenceClassifier,
    SequenceEncoder,
    SlicePositionEmbedding,
    SlicePositions,
)

DIM, HEADS = 8, 2
CLOSE = {"rtol": 0.0, "atol": 1e-10}
SIZES = [(8, 6), (7, 2), (1, 2), (3, 0), (0, 4), (40, 1)]


def tokens(N, batch=2):
    return torch.randn(batch, N, DIM, dtype=torch.float64)


def drawn(module):
    torch.manual_seed(0)
    module.double()
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return module


class Sliced(torch.nn.Module):
    """Composite slices with their positions, as a layer like the others."""

    def __init__(self, slice_size=4, alpha=1, max_length=128, **options):
        super().__init__()
        self.layer = CompositeSliceAttention1d(
            DIM, HEADS, CompositeSlice(slice_size=slice_size, alpha=alpha, **options)
        )
        self.positions = SlicePositionEmbedding(
            DIM, slice_size=slice_size, max_length=max_length, alpha=alpha
        )

    def forward(self, x, cls=None, valid=None):
        assert cls is None
        return self.layer(x, self.positions(), valid), None


LAYERS = {
    **{
        f"window{w}_rank{r}": lambda w=w, r=r: LongShortAttention1d(
            DIM, HEADS, LongShort(window=w, rank=r)
        )
        for w, r in SIZES
    },
    "full": lambda: FullAttention1d(DIM, HEADS),
    "slices": Sliced,
    "long_slices": lambda: Sliced(5, 3),
    "max": lambda: Sliced(aggregation="max"),
    "linear": lambda: Sliced(aggregation="linear"),
    "parallel": lambda: Sliced(composition="parallel"),
    "slices_first": lambda: Sliced(composition="slices_first", alpha=2, shared_qkv=False),
    "mlp": lambda: Sliced(local_mixer="mlp", alpha=3),
}
MASKS = {
    "end": [[1] * 19, [1] * 11 + [0] * 8],
    "few": [[1] + [0] * 18, [1] * 2 + [0] * 17],
    "holes": [[0] * 9 + [1] * 3 + [0] * 7, [1, 0] * 9 + [1]],
}


def outputs_and_gradients(layer, x, cls, valid):
    """Outputs at real tokens and of the class token, and the gradients of inputs and parameters."""
    x = x.clone().requires_grad_()
    y, y_cls = layer(x, cls, valid)
    outputs = [y[valid]] if y_cls is None else [y[valid], y_cls]
    weights = torch.Generator().manual_seed(0)
    loss = sum((o * torch.randn(o.shape, generator=weights, dtype=o.dtype)).sum() for o in outputs)
    wanted = [x, *layer.parameters()]
    return outputs, torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)


WITH_CLS = [name for name in LAYERS if name.startswith(("window", "full"))]


@pytest.mark.parametrize(
    ("name", "with_cls"), [*((n, False) for n in LAYERS), *((n, True) for n in WITH_CLS)]
)
@pytest.mark.parametrize("mask", MASKS)
def test_the_content_of_padding_changes_no_bit(name, mask, with_cls):
    layer = drawn(LAYERS[name]())
    cls = tokens(1) if with_cls else None
    valid, x = torch.tensor(MASKS[mask], dtype=torch.bool), tokens(19)
    other = torch.where(valid[..., None], x, 100 * torch.randn_like(x))
    outputs, grads = outputs_and_gradients(layer, x, cls, valid)
    others, other_grads = outputs_and_gradients(layer, other, cls, valid)
    assert all(torch.equal(a, b) for a, b in zip(outputs, others, strict=True))
    assert not grads[0][~valid].any()
    assert all(torch.isfinite(g).all() for g in grads)
    torch.testing.assert_close(grads, other_grads, **CLOSE)


@pytest.mark.parametrize("name", LAYERS)
def test_padding_at_the_end_is_as_if_it_were_not_there(name):
    layer = drawn(LAYERS[name]())
    x = tokens(19)
    expected, _ = layer(x[:, :13])
    y, _ = layer(x, None, (torch.arange(19) < 13).expand(2, -1))
    torch.testing.assert_close(y[:, :13], expected, **CLOSE)


@pytest.mark.parametrize("name", LAYERS)
def test_a_sample_without_a_real_token_is_finite_and_changes_no_other(name):
    layer = drawn(LAYERS[name]())
    x, valid = tokens(19), torch.ones(2, 19, dtype=torch.bool)
    expected, _ = layer(x, None, valid)
    valid[1] = False
    x.requires_grad_()
    y, _ = layer(x, None, valid)
    torch.testing.assert_close(y[0], expected[0], **CLOSE)
    y[0].sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()
    assert not x.grad[1].any()


@pytest.mark.parametrize("impl", sorted(IMPLEMENTATIONS.keys() - WHY_NOT - {"dense"}))
@pytest.mark.parametrize(("window", "rank"), SIZES)
@pytest.mark.parametrize("mask", MASKS)
def test_every_implementation_masks_as_the_definition_does(window, rank, mask, impl):
    layer = drawn(LongShortAttention1d(DIM, HEADS, LongShort(window=window, rank=rank)))
    valid, x, cls = torch.tensor(MASKS[mask], dtype=torch.bool), tokens(19), tokens(1)
    results = []
    for layer.impl in ("dense", impl):
        results.append(outputs_and_gradients(layer, x, cls, valid))
    torch.testing.assert_close(results[1], results[0], **CLOSE)


@pytest.mark.parametrize("dual_ln", [True, False])
@pytest.mark.parametrize(
    ("window", "rank", "with_cls"),
    [
        *((w, r, c) for w, r in [*SIZES, (1, 0), (8, 0), (5, 3)] for c in (True, False)),
        (0, 0, True),
    ],
)
@pytest.mark.parametrize("mask", MASKS)
def test_long_short_attention_equals_its_definition(window, rank, with_cls, dual_ln, mask):
    layer = drawn(
        LongShortAttention1d(DIM, HEADS, LongShort(window=window, rank=rank, dual_ln=dual_ln))
    )
    x, valid = tokens(19), torch.tensor(MASKS[mask], dtype=torch.bool)
    cls = tokens(1) if with_cls else None
    y, y_cls = layer(x, cls, valid)
    for i in range(2):
        expected, of_cls = long_short(layer, x[i], None if cls is None else cls[i, 0], valid[i])
        torch.testing.assert_close(y[i][valid[i]], expected[valid[i]], **CLOSE)
        if cls is not None:
            torch.testing.assert_close(y_cls[i, 0], of_cls, **CLOSE)


@pytest.mark.parametrize(
    ("window", "rank", "with_cls"),
    [*((w, r, c) for w, r in [*SIZES, (1, 0)] for c in (True, False)), (0, 0, True)],
)
@pytest.mark.parametrize("mask", MASKS)
def test_dropping_next_to_no_weight_is_dropping_none(window, rank, with_cls, mask):
    layer = drawn(
        LongShortAttention1d(DIM, HEADS, LongShort(window=window, rank=rank, attn_drop=1e-13))
    )
    x, valid = tokens(19), torch.tensor(MASKS[mask], dtype=torch.bool)
    cls = tokens(1) if with_cls else None
    expected = outputs_and_gradients(layer.eval(), x, cls, valid)
    found = outputs_and_gradients(layer.train(), x, cls, valid)
    torch.testing.assert_close(found, expected, **CLOSE)


DROPPING = {
    "window": lambda p: LongShortAttention1d(DIM, HEADS, LongShort(window=4, rank=0, attn_drop=p)),
    "projection": lambda p: LongShortAttention1d(
        DIM, HEADS, LongShort(window=0, rank=5, attn_drop=p)
    ),
    "both": lambda p: LongShortAttention1d(DIM, HEADS, LongShort(window=2, rank=3, attn_drop=p)),
    "full": lambda p: FullAttention1d(DIM, HEADS, Full(attn_drop=p)),
}


@pytest.mark.parametrize("name", DROPPING)
def test_weights_are_dropped_in_training_alone_and_the_mean_stays(name):
    layer, x = drawn(DROPPING[name](0.3)), tokens(9, 1)
    expected = layer.eval()(x)[0]
    torch.testing.assert_close(expected, drawn(DROPPING[name](0.0))(x)[0], **CLOSE)
    found = layer.train()(x.expand(4000, -1, -1))[0].detach()
    errors = (found.mean(0) - expected[0]).abs() / (found.std(0) / 4000**0.5)
    assert errors.max() < 5
    assert (found.std(0) > 0.01).all()


@pytest.mark.parametrize("name", DROPPING)
def test_dropping_leaves_a_sample_without_a_real_token_finite(name):
    layer, x = drawn(DROPPING[name](0.3)).train(), tokens(9).requires_grad_()
    valid = torch.tensor([[True] * 9, [False] * 9])
    y, _ = layer(x, None, valid)
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()
    torch.testing.assert_close(y[1], layer.proj.bias.expand(9, -1))
    with pytest.raises(ValueError, match=r"attn_drop must lie in \[0, 1\), got 1"):
        DROPPING[name](1.0)


@pytest.mark.parametrize("N", [1, 2, 7])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_single_short_sequence_with_a_class_token_equals_its_definition(N, rank):
    layer = drawn(LongShortAttention1d(DIM, HEADS, LongShort(window=4, rank=rank)))
    x, cls = tokens(N, 1), tokens(1, 1)
    y, y_cls = layer(x, cls)
    expected, of_cls = long_short(layer, x[0], cls[0, 0])
    torch.testing.assert_close(y[0], expected, **CLOSE)
    torch.testing.assert_close(y_cls[0, 0], of_cls, **CLOSE)


def test_a_layer_without_rank_and_class_token_has_no_norm_of_projected_keys():
    layer = LongShortAttention1d(DIM, HEADS, LongShort(window=4, rank=0), cls_token=False)
    assert layer.norm_projected is None
    with pytest.raises(ValueError, match=r"needs a layer with one, got cls_token=False\."):
        layer(tokens(9).float(), tokens(1).float())


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("slice_size", "alpha"), [(4, 1), (4, 3), (5, 2), (1, 1), (19, 1)])
def test_slices_equal_their_definition(slice_size, alpha, mask):
    model = drawn(Sliced(slice_size, alpha))
    x, valid = tokens(19), torch.tensor(MASKS[mask], dtype=torch.bool)
    P_l, P_g = model.positions()
    y, _ = model(x, None, valid)
    for i in range(2):
        expected = slices(model.layer, x[i], P_l, P_g, model.layer.halo[1], valid[i])
        torch.testing.assert_close(y[i][valid[i]], expected[valid[i]], **CLOSE)


def zeros(model):
    return SlicePositions(*(torch.zeros_like(P) for P in model.positions()))


def full(layer, x):
    """Full attention by the weights of a layer, before its output projection."""
    q, k, v = (
        y.unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for y in (layer.qkv.tokens(x)[0], *layer.qkv.tokens(x)[1])
    )
    weight = (q @ k.transpose(-2, -1) / (DIM // HEADS) ** 0.5).softmax(-1)
    return (weight @ v).transpose(1, 2).flatten(2)


def test_one_slice_is_full_attention_and_the_value_of_its_mean():
    model = drawn(Sliced(17))
    x = tokens(17)
    F = full(model.layer, x)
    mean = model.layer.qkv.tokens(F.mean(1, keepdim=True))[1][1]
    torch.testing.assert_close(model.layer(x, zeros(model)), model.layer.proj(F + mean), **CLOSE)


def test_slices_of_one_token_are_values_and_full_attention_among_them():
    model = drawn(Sliced(1))
    x = tokens(13)
    U = model.layer.qkv.tokens(x)[1][1]
    expected = model.layer.proj(U + full(model.layer, U))
    torch.testing.assert_close(model.layer(x, zeros(model)), expected, **CLOSE)


def test_a_window_over_the_sequence_without_norms_is_full_attention():
    layer = drawn(LongShortAttention1d(DIM, HEADS, LongShort(window=13, rank=0, dual_ln=False)))
    whole = drawn(FullAttention1d(DIM, HEADS))
    whole.load_state_dict(layer.state_dict())
    x = tokens(13)
    torch.testing.assert_close(layer(x)[0], whole(x)[0], **CLOSE)
    torch.testing.assert_close(whole(x)[0], whole.proj(full(whole, x)), **CLOSE)


@pytest.mark.parametrize("window", [1, 2, 3, 7, 8])
def test_a_window_has_as_many_keys_as_the_released_one(window):
    layer = drawn(LongShortAttention1d(DIM, HEADS, LongShort(window=window, rank=0)))
    expected = {1: 3, 2: 4, 3: 5, 7: 13, 8: 16}[window]
    x = tokens(5 * window, batch=1).requires_grad_()
    for t in range(window, 4 * window):
        (grad,) = torch.autograd.grad(layer(x)[0][0, t].sum(), x)
        assert (grad[0].abs().sum(1) > 0).sum() == expected


def test_without_window_and_rank_a_token_sees_itself_and_the_class_token():
    layer = drawn(LongShortAttention1d(DIM, HEADS, LongShort(window=0, rank=0)))
    x, cls = tokens(5).requires_grad_(), tokens(1).requires_grad_()
    y, _ = layer(x, cls)
    grad, grad_cls = torch.autograd.grad(y[:, 2].sum(), (x, cls))
    assert (grad.abs().sum((0, 2)) > 0).tolist() == [False, False, True, False, False]
    assert grad_cls.any()
    with pytest.raises(ValueError, match="both be 0 only with a class token"):
        layer(x)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(0, 20), st.integers(0, 5), st.integers(1, 20), st.data())
def test_any_length_window_and_padding_run(N, window, rank, slice_size, data):
    valid = torch.tensor([data.draw(st.lists(st.booleans(), min_size=N, max_size=N))])
    x, cls = tokens(N, 1), tokens(1, 1)
    for layer in (
        LongShortAttention1d(DIM, HEADS, LongShort(window=window, rank=rank)),
        Sliced(slice_size, data.draw(st.floats(1, 3))),
    ):
        y, _ = layer.double()(x, None if isinstance(layer, Sliced) else cls, valid)
        assert y.shape == x.shape
        assert torch.isfinite(y).all()


ENCODERS = {
    "full": (Full(), "cls"),
    "long_short": (LongShort(4, 2), "cls"),
    "long_short_mean": (LongShort(4, 2), "mean"),
    "window": (LongShort(4, 0), "cls"),
    "window_mean": (LongShort(4, 0), "mean"),
    "slices": (CompositeSlice(4), "mean"),
    "absolute": (CompositeSlice(4, pos_embed="absolute", alpha=2), "mean"),
}


def make_encoder(name, **options):
    torch.manual_seed(0)
    attention, pooling = ENCODERS[name]
    return SequenceEncoder(
        vocab_size=11,
        dim=DIM,
        depth=2,
        num_heads=HEADS,
        hidden=16,
        max_length=32,
        attention=attention,
        pooling=pooling,
        **options,
    ).eval()


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_gives_padded_sequences_the_features_of_the_sequences(name):
    encoder = make_encoder(name).double()
    ids = torch.randint(1, 11, (2, 13))
    padded = torch.nn.functional.pad(ids, (0, 9))
    torch.testing.assert_close(encoder(padded), encoder(ids), **CLOSE)
    as_tokens = make_encoder(name, pad_id=None).double()
    assert not torch.allclose(as_tokens(padded), as_tokens(ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["long_short", "slices"])
def test_an_encoder_is_one_graph_when_compiled(name):
    torch._dynamo.reset()  # else the graphs of other encoders count against the limit
    encoder, ids = make_encoder(name), torch.randint(1, 11, (2, 21))
    ids[1, 13:] = 0
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    for N in (21, 18):
        torch.testing.assert_close(compiled(ids[:, :N]), encoder(ids[:, :N]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_an_exported_encoder_takes_any_number_of_sequences_and_tokens(name):
    encoder, ids = make_encoder(name), torch.randint(1, 11, (3, 32))
    ids[1, 13:] = 0
    sizes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("tokens", min=5, max=32)}
    program = torch.export.export(
        encoder,
        (ids[:2, :21].contiguous(),),  # else a program for rows cut from 32 tokens
        dynamic_shapes={"ids": sizes},
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    for N in (5, 21, 32):
        torch.testing.assert_close(program.module()(ids[:, :N]), encoder(ids[:, :N]))


@pytest.mark.parametrize("name", ENCODERS)
def test_every_parameter_of_a_classifier_gets_a_gradient(name):
    model = SequenceClassifier(make_encoder(name), hidden=16, num_classes=3, pair=True)
    # without projection of a key's bias: softmax cancels it
    torch.nn.init.normal_(model.encoder.blocks[0].attn.qkv.bias)
    model(torch.randint(1, 11, (4, 2, 32)))[:, 0].sum().backward()
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert without == []


def test_a_pair_is_classified_by_both_of_its_sequences():
    model = SequenceClassifier(make_encoder("long_short"), hidden=16, num_classes=2, pair=True)
    pair = torch.randint(1, 11, (1, 2, 9))
    assert not torch.allclose(model(pair), model(pair.flip(1)))
    with pytest.raises(ValueError, match=r"must be \[B, 2, N\], got \[1, 9\]"):
        model(pair[:, 0])


def test_bad_input_is_one_line_that_says_the_rule():
    layer = LongShortAttention1d(DIM, HEADS, LongShort(window=4, rank=1)).double()
    sliced = Sliced(4, max_length=8).double()
    with pytest.raises(ValueError, match=r"must be bool .* \(2, 9\), got torch.bool \(2, 8\)"):
        layer(tokens(9), None, torch.ones(2, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"at most 8 tokens, got 9"):
        sliced(tokens(9))
    with pytest.raises(ValueError, match=r"P_l must have 4 rows, got 6"):
        sliced.layer(tokens(8), SlicePositions(torch.zeros(6, DIM), torch.zeros(2, DIM)))
    with pytest.raises(ValueError, match=r"N of at least 1, got \[2, 0, 8\]"):
        layer(tokens(0))
    with pytest.raises(ValueError, match=r"Positions must be given with pos_embed='ms_vipe'"):
        sliced.layer(tokens(8))
    encoder = make_encoder("slices")
    with pytest.raises(ValueError, match=r"must lie in \[0, 11\), got -1"):
        encoder(torch.tensor([[3, -1]]))
    with pytest.raises(ValueError, match=r"no longer than the position table, 32 tokens, got 33"):
        encoder(torch.ones(1, 33, dtype=torch.long))
    with pytest.raises(ValueError, match=r"pad_id must lie in \[0, 11\), got 11"):
        make_encoder("slices", pad_id=11)
    with pytest.raises(ValueError, match="num_classes must be positive, got 0"):
        SequenceClassifier(encoder, hidden=8, num_classes=0)
    with pytest.raises(ValueError, match="pooling must be 'mean'"):
        SequenceEncoder(
            vocab_size=2,
            dim=DIM,
            depth=1,
            num_heads=HEADS,
            hidden=8,
            max_length=8,
            attention=CompositeSlice(4),
        )


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LongShort(4, 2, position_table=True), "position_table must be False on rows"),
        (lambda: LongShort(4, 2, tokens_read="keys"), "tokens_read must be 'outputs' on rows"),
        (lambda: LongShort(-1, 2), "window and rank must not be negative"),
        (lambda: CompositeSlice((2, 4)), "slice_size must be an integer on rows"),
        (lambda: CompositeSlice(4, alpha=4.0), "alpha must lie in"),
    ],
)
def test_options_that_rows_of_tokens_do_not_have_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
