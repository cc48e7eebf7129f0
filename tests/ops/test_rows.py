"""Large grids by rows: the same numbers, less memory, and only where nothing looks."""

import pytest
import timm
import torch
from tolerances import TOLERANCE
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import vit_ls
from vit_ls.ops import dynamic_projection, rows, rules

MODELS = [
    ("test_vil_ls", {}),
    ("test_vil_ls", {"attention": "long_short"}),
    ("test_vil_ls", {"rank": 0, "dual_ln": False}),
    ("test_vil_ls", {"window": 0}),
    ("test_cvt_ls", {}),
    ("test_cvt_ls", {"attention": "full"}),
    ("test_vil", {}),
    ("test_cst_vit", {"alpha": 2.0}),
    ("test_cst_vit", {"local_mixer": "mlp", "pos_embed": "absolute"}),
]


def drawn(name, **kwargs):
    """A model in which no table, norm or statistic is what it is at first."""
    model = timm.create_model(name, num_classes=7, **kwargs).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return model


@pytest.mark.parametrize("piece", [2**11, 2**13, 2**15])
@pytest.mark.parametrize("batch, size", [(1, (96, 64)), (3, (70, 45))])
@pytest.mark.parametrize("name, kwargs", MODELS)
def test_a_large_grid_in_pieces_gives_what_it_gives_whole(
    name, kwargs, batch, size, piece, monkeypatch
):
    model, x = drawn(name, **kwargs).double(), torch.randn(batch, 3, *size).double()
    with torch.inference_mode():
        whole, maps = model(x), model.forward_features(x)
        monkeypatch.setattr(rules, "ROWS_PIECE", piece)
        torch.testing.assert_close(model(x), whole, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(model.forward_features(x), maps, rtol=1e-9, atol=1e-9)


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that is made, views aside."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = {x.untyped_storage().data_ptr() for x in tree_leaves(args) if torch.is_tensor(x)}
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if torch.is_tensor(x) and x.untyped_storage().data_ptr() not in given:
                self.numbers = max(self.numbers, x.numel())
        return out


@pytest.mark.parametrize(
    "name, kwargs, most",
    [
        ("test_vil_ls", {"attention": "long_short"}, 3),  # q, k and v
        ("test_cvt_ls", {}, 2),  # k and v
        ("test_cst_vit", {}, 3),
    ],
)
def test_no_tensor_within_a_large_grid_is_as_wide_as_an_mlp(name, kwargs, most, monkeypatch):
    model, x = drawn(name, **kwargs), torch.randn(1, 3, 256, 256)
    first = model.stages[0]
    with torch.inference_mode():
        tokens = first.embed(x.permute(0, 2, 3, 1)).numel()
        with Largest() as whole:
            first(x.permute(0, 2, 3, 1))
        monkeypatch.setattr(rules, "ROWS_PIECE", 2**14)
        with Largest() as pieces:
            first(x.permute(0, 2, 3, 1))
    assert whole.numbers >= 4 * tokens
    assert pieces.numbers <= max(most * tokens, x.numel())


def test_pieces_hold_each_row_once_and_no_more_than_they_may(monkeypatch):
    monkeypatch.setattr(rules, "ROWS_PIECE", 1000)
    for B, H in ((1, 1), (1, 7), (3, 5), (9, 2)):
        for row in (1, 40, 100, 5000):
            x, seen = torch.zeros(B, H, 4), torch.zeros(B, H)
            for piece in rows.pieces(x, row):
                seen[piece] += 1
                many = seen[piece].numel()
                assert many == 1 or many * row * x.element_size() <= 1000
            assert seen.eq(1).all()


def test_a_result_goes_where_it_is_told_whether_it_is_large_or_not(monkeypatch):
    for piece in (2**30, 8):
        monkeypatch.setattr(rules, "ROWS_PIECE", piece)
        x = torch.arange(24.0).view(2, 3, 4)
        with torch.inference_mode():
            assert rows.by_rows(lambda y: y + 1, x, 4, out=x) is x
        assert x.flatten().tolist() == [float(n) for n in range(1, 25)]


def test_where_something_looks_or_follows_a_grid_is_taken_whole(monkeypatch):
    monkeypatch.setattr(rules, "ROWS_PIECE", 0)
    x = torch.zeros(1, 2, 2)
    assert not rules.is_large(x, 2)  # a gradient may follow
    with torch.no_grad():
        assert rules.is_large(x, 2)
        assert not rules.is_large(nn.Parameter(x), 2)
        with torch._subclasses.FakeTensorMode() as fake:
            assert not rules.is_large(fake.from_tensor(x), 2)
        found = []
        torch.func.vmap(lambda y: found.append(rules.is_large(y, 2)) or y)(x[None])
        torch.jit.trace(lambda y: found.append(rules.is_large(y, 2)) or y + 1, x, check_trace=False)
        torch.compile(lambda y: y + rules.is_large(y, 2), backend="eager", fullgraph=True)(x)
        assert found == [False, False]


def test_a_recording_has_the_weights_of_a_large_grid(monkeypatch):
    model, x = drawn("test_cvt_ls"), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        with vit_ls.record(model) as whole:
            model(x)
        monkeypatch.setattr(rules, "ROWS_PIECE", 2**11)
        with vit_ls.record(model) as pieces:
            model(x)
    for a, b in zip(whole.values(), pieces.values(), strict=True):
        torch.testing.assert_close(a.weights, b.weights, **TOLERANCE[torch.float32])


def test_dropout_draws_alike_in_training_with_and_without_a_gradient(monkeypatch):
    monkeypatch.setattr(rules, "ROWS_PIECE", 2**11)
    model = drawn("test_vil_ls", proj_drop_rate=0.5, drop_path_rate=0.2).train()
    x = torch.randn(2, 3, 64, 64)
    torch.manual_seed(0)
    expected = model(x)
    with torch.no_grad():
        torch.manual_seed(0)
        torch.testing.assert_close(model(x), expected, **TOLERANCE[torch.float32])


def test_the_statistics_of_a_batch_are_those_of_all_its_rows(monkeypatch):
    monkeypatch.setattr(rules, "ROWS_PIECE", 2**11)
    model, x = drawn("test_cvt_ls"), torch.randn(2, 3, 64, 64)
    names = [name for name, _ in model.named_buffers() if "running" in name]
    found = []
    for gradient in (True, False):
        other = drawn("test_cvt_ls").train()
        other.load_state_dict(model.state_dict())
        with torch.set_grad_enabled(gradient):
            other(x)
        found.append({name: other.get_buffer(name) for name in names})
    torch.testing.assert_close(*found, **TOLERANCE[torch.float32])


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_projection_by_rows_is_the_projection(scale, monkeypatch):
    monkeypatch.setattr(rules, "ROWS_PIECE", 2**12)
    logits = scale * torch.randn(2, 9, 7, 3 * 5).double()
    kv = torch.randn(2, 2, 9, 7, 3 * 4).double()
    with torch.inference_mode():
        expected = dynamic_projection(logits, kv, num_heads=3)
        found = rows.dynamic_projection_by_rows(logits, kv, num_heads=3)
    torch.testing.assert_close(found, expected, **TOLERANCE[torch.float64])
