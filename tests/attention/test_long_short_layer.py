import pytest
import torch
from torch import nn

from vit_ls.attention import Convolutions, Full, LongShort, Place
from vit_ls.attention.projections import ConvDynamicProjection, ConvQKV, LinearQKV
from vit_ls.blocks import BlockSpec, ConvEmbed, Embed, Stage, StageSpec
from vit_ls.blocks.block import ResidualDropPath

DIM, HEADS = 16, 2
PLACE = Place(DIM, HEADS)


def make_layer(window=3, rank=2, conv_projection=None, **options):
    place = Place(DIM, HEADS, conv_projection=conv_projection)
    return LongShort(window, rank, **options).layer(place).double().eval()


def run(layer, x, g=None, window=3):
    options = LongShort(window, 0, position_table=layer.position_bias is not None)
    return layer(x, g, options.shared(PLACE)(x))


@pytest.fixture
def x():
    return torch.randn(2, 5, 7, DIM, dtype=torch.float64)


@pytest.fixture
def g():
    return torch.randn(2, 1, DIM, dtype=torch.float64)


def copy_shared(source, target):
    """Give `target` the parameters of `source` that it has too."""
    weights = {k: v for k, v in source.state_dict().items() if k in target.state_dict()}
    target.load_state_dict({**target.state_dict(), **weights})
    return target


@pytest.mark.parametrize("conv_projection", [None, Convolutions()])
def test_without_dual_ln_the_layer_has_no_norm_of_keys_and_values(x, conv_projection):
    layer = make_layer(dual_ln=False, conv_projection=conv_projection)
    assert not [m for m in layer.modules() if isinstance(m, nn.LayerNorm)]
    with_norm = copy_shared(layer, make_layer(conv_projection=conv_projection))
    assert not torch.allclose(run(layer, x)[0], run(with_norm, x)[0])


def test_dual_ln_makes_the_output_independent_of_the_scale_of_the_keys(x, g):
    layer, scaled = make_layer(), make_layer()
    copy_shared(layer, scaled)
    with torch.no_grad():
        scaled.qkv.weight[DIM : 2 * DIM] *= 100
        scaled.qkv.bias[DIM : 2 * DIM] *= 100
    torch.testing.assert_close(run(scaled, x, g)[0], run(layer, x, g)[0], rtol=1e-3, atol=1e-3)
    for norm in (layer.norm_kv, layer.norm_projected):
        assert isinstance(norm, nn.LayerNorm)


def test_rank_zero_is_the_window_alone(x):
    layer = make_layer(rank=0, dual_ln=False)
    assert layer.dynamic_projection is None
    far = x.clone()
    far[:, :, 6] += 1.0
    # the first window ends at column 2 and reaches column 3
    assert torch.equal(run(layer, far)[0][:, :, :3], run(layer, x)[0][:, :, :3])


def test_window_zero_is_the_projection_alone(x):
    """Every token then sees the same R keys, so that equal queries give equal outputs."""
    layer = make_layer(window=0, dual_ln=False, position_table=True)
    assert layer.position_bias is None
    same = x.clone()
    same[:, 0, 0] = same[:, 4, 6]
    out, _ = run(layer, same, window=0)
    torch.testing.assert_close(out[:, 0, 0], out[:, 4, 6])
    far = same.clone()
    far[:, 2, 3] += 1.0
    assert not torch.allclose(run(layer, far, window=0)[0][:, 4, 6], out[:, 4, 6])


def test_a_window_over_the_whole_grid_without_rank_and_dual_ln_is_full_attention(x, g):
    layer = make_layer(window=7, rank=0, dual_ln=False, conv_projection=Convolutions())
    place = Place(DIM, HEADS, conv_projection=Convolutions())
    full = Full().layer(place).double().eval()
    full.load_state_dict(layer.state_dict())
    expected, _ = full(x, g, Full().shared(place)(x))
    torch.testing.assert_close(run(layer, x, g, window=7)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_global", [1, 3])
def test_full_attention_sees_global_tokens_and_gives_them_back(x, num_global):
    options, place = Full(position_table=True), Place(DIM, HEADS, (5, 7), num_global)
    layer, shared = options.layer(place).double(), options.shared(place)
    g = torch.randn(2, num_global, DIM, dtype=torch.float64)
    out, out_g = layer(x, g, shared(x))
    assert out.shape == x.shape
    assert out_g.shape == g.shape
    other, _ = layer(x, g + 1, shared(x))
    assert not torch.allclose(out, other)


def test_global_tokens_skip_the_depthwise_convolution():
    qkv = ConvQKV(DIM, Convolutions()).eval()
    g = torch.randn(2, 3, DIM)
    q, kv = qkv.tokens(g)
    for out, projection in zip((q, *kv), (qkv.q, qkv.k, qkv.v), strict=True):
        torch.testing.assert_close(out, projection.pointwise(g))


def test_linear_qkv_is_one_projection_in_three_parts():
    qkv, x = LinearQKV(DIM), torch.randn(2, 3, 4, DIM)
    together = nn.functional.linear(x, qkv.weight, qkv.bias)
    q, kv = qkv(x)
    assert torch.equal(torch.cat((q, *kv), -1), together)


def test_the_kernels_of_the_dynamic_projection_are_standardised():
    """Shift and scale of a kernel do not matter: each has mean 0 and variance 1 over its taps."""
    layer = ConvDynamicProjection(DIM, 4)
    x = torch.randn(1, 6, 6, DIM)
    expected = layer(x)
    with torch.no_grad():
        layer.depthwise.weight.mul_(3.0).add_(2.0)
    torch.testing.assert_close(layer(x), expected, rtol=1e-3, atol=1e-3)


def test_drop_path_leaves_out_grid_and_global_tokens_of_an_image_together():
    drop = ResidualDropPath(0.5).train()
    x, g = torch.zeros(64, 2, 2, 3), torch.zeros(64, 1, 3)
    out, out_g = drop(x, torch.ones_like(x), g, torch.ones_like(g))
    kept = out.flatten(1).any(1)
    assert torch.equal(kept, out_g.flatten(1).any(1))
    assert 10 < kept.sum() < 54
    # what is kept is scaled up, so that the mean stays
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(drop.eval()(x, torch.ones_like(x), None, None)[0], torch.ones_like(x))


def test_blocks_of_a_stage_share_one_geometry():
    made = []

    spec = StageSpec(Embed(2, 2), HEADS, DIM, 4, LongShort(3, 2))
    stage = Stage(spec, BlockSpec(), in_chans=3, place=spec.place(), drop_path_rates=(0.0,) * 4)
    stage.geometry.register_forward_hook(lambda _, inputs, __: made.append(inputs[0].shape))
    stage(torch.randn(2, 12, 10, 3))
    assert made == [(2, 6, 5, DIM)]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 8), (11, 5), (1, 1)])
def test_an_embedding_rounds_up_and_drops_no_pixel(height, width):
    embed = ConvEmbed(Embed(4, 4), 3, DIM)
    x = torch.randn(1, height, width, 3, requires_grad=True)
    out = embed(x)
    assert out.shape == (1, -(-height // 4), -(-width // 4), DIM)
    (out * torch.randn_like(out)).sum().backward()
    assert (x.grad != 0).any(-1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 15}, "dim must be divisible by num_heads, got dim=15, num_heads=2"),
        ({"num_heads": 0}, "got dim=16, num_heads=0"),
        ({"rank": -1}, "must not be negative, got window=3, rank=-1"),
        ({"window": -7}, "must not be negative, got window=-7, rank=2"),
    ],
)
def test_bad_numbers_are_named(options, message):
    numbers = {"dim": DIM, "num_heads": HEADS, "window": 3, "rank": 2} | options
    dim, num_heads, window, rank = numbers.values()
    with pytest.raises(ValueError, match=message):
        LongShort(window, rank).layer(Place(dim, num_heads))


def test_full_attention_checks_its_heads_too():
    with pytest.raises(ValueError, match="dim must be divisible by num_heads"):
        Full().layer(Place(16, 3))
