import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from tolerances import TOLERANCE

from vit_ls.attention import CompositeSlice, Place
from vit_ls.ops import add_to_tokens

DIM, HEADS = 8, 2
EXACT = TOLERANCE[torch.float64]
OPTIONS = [
    {"composition": composition, "aggregation": aggregation, **others}
    for composition, aggregation, others in itertools.product(
        ("local_first", "parallel", "slices_first"),
        ("mean", "max", "linear"),
        (
            {},
            {"alpha": 2.0, "shared_qkv": False},
            {"pos_embed": "absolute"},
            {"local_mixer": "mlp", "alpha": 2.0},
        ),
    )
]


def build(grid, slice_size, *, dim=DIM, heads=HEADS, **options):
    """A layer and the geometry of a grid, in float64, all parameters far from zero."""
    options, place = CompositeSlice(slice_size, **options), Place(dim, heads, grid)
    layer, geometry = options.layer(place), options.shared(place)
    for parameter in (*layer.parameters(), *geometry.parameters()):
        torch.nn.init.normal_(parameter, std=0.5)
    return layer.double(), geometry.double()


def image(*grid, batch=2, dim=DIM):
    return torch.randn(batch, *grid, dim, dtype=torch.float64, requires_grad=True)


def paper(X, W, bias, P_l, P_g, slice_size, halo, composition):
    """Equations 8 to 11, 14 and 15 (12 and 13 are the causal form), one token after another.

    One head, one image: X [H,W,D]; W and bias of q, k, v; P_l on the extended slice, P_g.
    """
    H, width, D = X.shape
    (a, b), (sa, sb) = slice_size, halo
    W_q, W_k, W_v = W.T.chunk(3, dim=1)
    b_q, b_k, b_v = bias.chunk(3)

    def softmax_sum(query, keys, values):
        scores = [float(query @ key) / math.sqrt(D) for key in keys]
        exps = [math.exp(s - max(scores)) for s in scores]
        return sum(e / sum(exps) * v for e, v in zip(exps, values, strict=True))

    def local(S):
        Y_l = torch.zeros_like(S)
        for y, x in itertools.product(range(H), range(width)):
            top, left = y // a * a, x // b * b
            keys, values = [], []
            for ky, kx in itertools.product(
                range(max(0, top - sa), min(H, top + a + sa)),
                range(max(0, left - sb), min(width, left + b + sb)),
            ):
                keys.append((S[ky, kx] + P_l[ky - top + sa, kx - left + sb]) @ W_k + b_k)
                values.append(S[ky, kx] @ W_v + b_v)
            query = (S[y, x] + P_l[y - top + sa, x - left + sb]) @ W_q + b_q
            Y_l[y, x] = softmax_sum(query, keys, values)
        return Y_l

    def slice_means(Y):
        means = {}
        for i, j in itertools.product(range(-(-H // a)), range(-(-width // b))):
            total, count = torch.zeros(D, dtype=Y.dtype), 0
            for y, x in itertools.product(range(i * a, i * a + a), range(j * b, j * b + b)):
                if y < H and x < width:  # m_l of the paper
                    total, count = total + Y[y, x], count + 1
            means[i, j] = total / count
        return means

    def globally(Y):
        S_bar = slice_means(Y)
        keys = [(s + P_g[at]) @ W_k + b_k for at, s in S_bar.items()]
        values = [s @ W_v + b_v for s in S_bar.values()]
        return {at: softmax_sum((s + P_g[at]) @ W_q + b_q, keys, values) for at, s in S_bar.items()}

    Y_l = local(X)
    Y_g = globally(Y_l if composition == "local_first" else X)
    Y = torch.empty_like(X)
    for y, x in itertools.product(range(H), range(width)):
        Y[y, x] = Y_l[y, x] + Y_g[y // a, x // b]
    return Y


@pytest.mark.parametrize("impl", ["dense", "tiled"])
@pytest.mark.parametrize("composition", ["local_first", "parallel"])
@pytest.mark.parametrize(
    ("grid", "slice_size", "alpha"),
    [((4, 4), 2, 1), ((5, 3), (2, 2), 2), ((2, 6), (1, 3), 1), ((3, 5), (4, 2), 3), ((1, 7), 3, 1)],
)
@torch.no_grad()
def test_the_layer_is_the_paper_s_equations_token_by_token(
    grid, slice_size, alpha, composition, impl
):
    layer, make_geometry = build(grid, slice_size, heads=1, alpha=alpha, composition=composition)
    layer.impl = impl
    x = image(*grid, batch=1)
    geometry = make_geometry(x)
    y = paper(
        x[0],
        layer.qkv.weight,
        layer.qkv.bias,
        make_geometry.local_pos,
        make_geometry.slice_pos,
        layer.slice_size,
        layer.halo,
        composition,
    )
    torch.testing.assert_close(layer(x, None, geometry)[0][0], layer.proj(y), **EXACT)


@pytest.mark.parametrize("grid", [(5, 9), (3, 2)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_implementations_agree_and_every_parameter_has_a_gradient(options, grid):
    layer, make_geometry = build((8, 8), (4, 3), **options)
    x = image(*grid)
    leaves = [x, *layer.parameters(), *make_geometry.parameters()]
    results = []
    for impl in ("dense", "tiled"):
        layer.impl = impl
        y, g = layer(x, None, make_geometry(x))
        assert y.shape == x.shape
        assert g is None
        generator = torch.Generator().manual_seed(1)
        cotangent = torch.randn(y.shape, generator=generator, dtype=y.dtype)
        results.append([y, *torch.autograd.grad(y, leaves, cotangent)])
    for dense, tiled in zip(*results, strict=True):
        assert torch.isfinite(dense).all()
        torch.testing.assert_close(tiled, dense, **EXACT)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@torch.no_grad()
def test_the_content_of_padding_changes_nothing(monkeypatch, options):
    layer, make_geometry = build((5, 7), (4, 4), **options)
    x = image(5, 7)
    expected = layer(x, None, make_geometry(x))[0]
    pad = F.pad
    # but that of masks, which say what is padding
    monkeypatch.setattr(
        F, "pad", lambda x, widths: pad(x, widths, value=100.0 * (x.dtype != torch.bool))
    )
    torch.testing.assert_close(layer(x, None, make_geometry(x))[0], expected, **EXACT)


@torch.no_grad()
def test_parallel_with_shared_weights_is_the_sum_of_both_attentions():
    layer, make_geometry = build((5, 9), 3, composition="parallel")
    x = image(5, 9)
    geometry = make_geometry(x)
    among = layer.attend_among_slices(x, geometry)
    both = add_to_tokens(layer.attend_in_slices(x, geometry), among, (3, 3))
    torch.testing.assert_close(layer(x, None, geometry)[0], layer.proj(both), **EXACT)


@torch.no_grad()
def test_global_first_shows_the_local_attention_what_the_global_one_found():
    layer, make_geometry = build((5, 9), 3, composition="slices_first")
    x = image(5, 9)
    geometry = make_geometry(x)
    y_g = layer.attend_among_slices(x, geometry)
    inside = layer.attend_in_slices(add_to_tokens(x, y_g, (3, 3)), geometry)
    y = add_to_tokens(inside, y_g, (3, 3))
    torch.testing.assert_close(layer(x, None, geometry)[0], layer.proj(y), **EXACT)


@torch.no_grad()
def test_slices_of_one_token_leave_the_local_attention_the_values():
    """The global attention then sees X W_v, and is full attention of it."""
    layer, make_geometry = build((4, 6), 1)
    x = image(4, 6)
    geometry = make_geometry(x)
    _, (_, values) = layer.qkv(x)
    torch.testing.assert_close(layer.attend_in_slices(x, geometry), values, **EXACT)
    torch.testing.assert_close(
        layer(x, None, geometry)[0],
        layer.proj(add_to_tokens(values, layer.attend_among_slices(values, geometry), (1, 1))),
        **EXACT,
    )


@torch.no_grad()
def test_keys_beyond_the_grid_add_nothing_to_one_slice_over_all_of_it():
    plain, make_plain = build((5, 6), (5, 6), alpha=1.0, pos_embed="absolute")
    extended, make_extended = build((5, 6), (5, 6), alpha=3.0, pos_embed="absolute")
    extended.load_state_dict(plain.state_dict())
    x = image(5, 6)
    expected = plain(x, None, make_plain(x))[0]
    torch.testing.assert_close(extended(x, None, make_extended(x))[0], expected, **EXACT)


@torch.no_grad()
def test_an_extension_that_rounds_to_no_token_is_alpha_one():
    plain, make_plain = build((8, 8), 4)
    extended, make_extended = build((8, 8), 4, alpha=1.2)
    extended.load_state_dict(plain.state_dict())
    make_extended.load_state_dict(make_plain.state_dict())
    x = image(8, 8)
    assert torch.equal(extended(x, None, make_extended(x))[0], plain(x, None, make_plain(x))[0])


@torch.no_grad()
def test_an_extension_reaches_into_the_neighbouring_slices_and_no_further():
    layer, make_geometry = build((4, 12), 4, alpha=1.5)  # keys reach one token beyond
    x = image(4, 12)
    geometry = make_geometry(x)
    before = layer.attend_in_slices(x, geometry)
    for column, slices in ((3, "110"), (4, "110"), (5, "010"), (7, "011")):
        moved = x.clone()
        moved[:, :, column] += 1
        difference = (layer.attend_in_slices(moved, geometry) - before).abs()
        reached = difference.unflatten(2, (3, 4)).amax((0, 1, 3, 4)) > 1e-9
        assert reached.tolist() == [seen == "1" for seen in slices]


@torch.no_grad()
def test_values_do_not_depend_on_the_position_embeddings():
    """With no weight on queries and keys nothing is left for a position embedding to enter."""
    layer, make_geometry = build((5, 9), 3, alpha=2.0)
    x = image(5, 9)
    before = layer(x, None, make_geometry(x))[0]
    layer.qkv.weight[: 2 * DIM] = 0
    uniform = layer(x, None, make_geometry(x))[0]
    for positions in make_geometry.parameters():
        positions += torch.randn_like(positions)
    assert torch.equal(layer(x, None, make_geometry(x))[0], uniform)
    assert not torch.allclose(before, uniform)


@pytest.mark.parametrize("name", ["local_pos", "slice_pos"])
@torch.no_grad()
def test_each_position_embedding_enters_queries_and_keys(name):
    layer, make_geometry = build((5, 9), 3)
    x = image(5, 9)
    before = layer(x, None, make_geometry(x))[0]
    positions = getattr(make_geometry, name)
    positions += torch.randn_like(positions)
    assert (layer(x, None, make_geometry(x))[0] - before).abs().max() > 1e-3


def test_ms_vipe_has_l_plus_n_over_l_times_d_parameters():
    layer, geometry = build((14, 28), 7)
    L, N = 49, 14 * 28
    assert sum(p.numel() for p in geometry.parameters()) == (L + N // L) * DIM
    assert not [name for name, _ in layer.named_parameters() if "pos" in name]


def test_absolute_leaves_no_position_embedding_and_an_mlp_needs_no_local_one():
    _, absolute = build((8, 8), 4, pos_embed="absolute")
    assert list(absolute.parameters()) == []
    _, mlp = build((8, 8), 4, local_mixer="mlp")
    assert [name for name, _ in mlp.named_parameters()] == ["slice_pos"]


def test_on_its_own_grid_a_geometry_hands_the_position_embeddings_out_unchanged():
    _, make_geometry = build((8, 6), (4, 2), alpha=2.0)
    geometry = make_geometry(image(8, 6))
    assert torch.equal(geometry.local_pos, make_geometry.local_pos)
    assert torch.equal(geometry.slice_pos, make_geometry.slice_pos)
    assert geometry.local_pos.shape == (8, 4, DIM)


def test_another_grid_resizes_the_slice_positions_alone():
    _, make_geometry = build((8, 6), (4, 2))
    geometry = make_geometry(image(11, 9))
    assert torch.equal(geometry.local_pos, make_geometry.local_pos)
    image_ = make_geometry.slice_pos.permute(2, 0, 1)[None]
    expected = F.interpolate(image_, size=(3, 5), mode="bicubic", align_corners=False)
    assert torch.equal(geometry.slice_pos, expected[0].permute(1, 2, 0))


@torch.no_grad()
def test_separate_weights_that_are_equal_are_shared_weights():
    shared, make_geometry = build((5, 9), 3)
    separate, _ = build((5, 9), 3, shared_qkv=False)
    weights = shared.state_dict()
    separate.load_state_dict(
        weights | {k.replace("qkv", "slice_qkv"): v for k, v in weights.items() if "qkv" in k}
    )
    x = image(5, 9)
    geometry = make_geometry(x)
    expected = shared(x, None, geometry)[0]
    torch.testing.assert_close(separate(x, None, geometry)[0], expected, **EXACT)
    separate.slice_qkv.weight += 1
    assert not torch.allclose(separate(x, None, geometry)[0], expected)
    assert torch.equal(separate.attend_in_slices(x, geometry), shared.attend_in_slices(x, geometry))


@torch.no_grad()
def test_linear_aggregation_by_equal_weights_is_the_mean():
    mean, make_geometry = build((6, 8), (3, 2))
    linear, _ = build((6, 8), (3, 2), aggregation="linear")
    equal = torch.full((1, 6), 1 / 6, dtype=torch.float64)
    linear.load_state_dict(mean.state_dict() | {"aggregate.weight": equal})
    x = image(6, 8)
    geometry = make_geometry(x)
    expected = mean(x, None, geometry)[0]
    torch.testing.assert_close(linear(x, None, geometry)[0], expected, **EXACT)


@torch.no_grad()
def test_the_mlp_mixes_the_tokens_of_a_slice_channel_by_channel():
    layer, make_geometry = build((4, 9), (4, 3), local_mixer="mlp", mixer_hidden=32)
    assert layer.mixer.mlp.fc1.weight.shape == (32, 12)
    x = image(4, 9)
    y = layer.attend_in_slices(x, make_geometry(x))
    for j in range(3):
        tokens = x[:, :, 3 * j : 3 * j + 3].flatten(1, 2)
        expected = layer.mixer.mlp(tokens.mT).mT.unflatten(1, (4, 3))
        torch.testing.assert_close(y[:, :, 3 * j : 3 * j + 3], expected, **EXACT)


@torch.no_grad()
def test_the_mlp_of_an_extended_slice_reads_the_neighbours():
    layer, make_geometry = build((4, 8), 4, local_mixer="mlp", alpha=2.0)
    assert layer.mixer.mlp.fc1.weight.shape == (16, 64)
    assert layer.mixer.mlp.fc2.weight.shape == (16, 16)
    x = image(4, 8)
    before = layer.attend_in_slices(x, make_geometry(x))
    x[:, :, 5] += 1
    assert (layer.attend_in_slices(x, make_geometry(x)) - before)[:, :, :4].abs().max() > 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_half_precision_stays_near_float32(dtype):
    layer, make_geometry = build((8, 8), 4)
    x = image(7, 9)
    expected = layer(x, None, make_geometry(x))[0].float()
    layer, make_geometry, x = layer.to(dtype), make_geometry.to(dtype), x.to(dtype)
    y = layer(x, None, make_geometry(x))[0]
    assert y.dtype == dtype
    spread = expected.std()
    torch.testing.assert_close(y.float() / spread, expected / spread, atol=0.1, rtol=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"composition": "serial"},
            "composition must be one of 'local_first', 'parallel', 'slices_first', got 'serial'.",
        ),
        (
            {"aggregation": "sum"},
            "aggregation must be one of 'mean', 'max', 'linear', got 'sum'.",
        ),
        ({"local_mixer": "conv"}, "local_mixer must be one of 'attention', 'mlp', got 'conv'."),
        ({"pos_embed": "rope"}, "pos_embed must be one of 'ms_vipe', 'absolute', got 'rope'."),
        ({"mixer_hidden": 0}, "mixer_hidden must be positive, got 0."),
        ({"alpha": 4}, "alpha must lie in [1, 3], got 4."),
        ({"slice_size": -1}, "slice_size must be positive, got (-1, -1)."),
        (
            {"slice_size": (1, 2, 3)},
            "slice_size must be an integer or two of them, got (1, 2, 3).",
        ),
        ({"slice_size": 3.5}, "slice_size must be an integer or two of them, got 3.5."),
        (
            {"local_mixer": "mlp", "shared_qkv": False},
            "shared_qkv must be true where no local attention has q, k, v of its own, "
            "got shared_qkv=False, local_mixer='mlp'.",
        ),
        ({"heads": 3}, "dim must be divisible by num_heads, got dim=8, num_heads=3."),
    ],
)
def test_an_option_that_cannot_be_is_one_error(options, message):
    with pytest.raises(ValueError) as error:
        build((4, 4), **({"slice_size": 2} | options))
    assert str(error.value) == message
