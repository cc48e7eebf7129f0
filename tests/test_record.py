import pytest
import timm
import torch

import vit_ls
from vit_ls.ops.recording import is_recording

CASES = [
    ("test_vil_ls", {}),
    ("test_cvt_ls", {}),
    ("test_cvt_ls", {"window": 0}),
    ("test_cvt_ls", {"rank": 0}),
    ("test_vil", {}),
    ("test_cvt", {}),
    ("test_cst_vit", {}),
    ("test_cst_vit", {"composition": "slices_first", "alpha": 2}),
    ("test_cst_vil", {"local_mixer": "mlp", "composition": "parallel"}),
]


@pytest.fixture(params=CASES, ids=str)
def recorded(request):
    name, kwargs = request.param
    torch.manual_seed(0)
    model, x = timm.create_model(name, **kwargs).eval(), torch.randn(2, 3, 45, 70)
    with torch.no_grad():
        before = model(x)
        with vit_ls.record(model) as records:
            during = model(x)
        assert not is_recording()
        assert torch.equal(model(x), before)
    torch.testing.assert_close(during, before, rtol=1e-4, atol=1e-5)
    layers = [n for n, _ in model.named_modules() if n.endswith(".attn")]
    assert list(records) == layers
    return records


def test_shares_of_a_query_add_up_to_one(recorded):
    for layer in recorded.values():
        total = sum(layer.shares().values())
        assert total.shape[2:] == layer.grid
        torch.testing.assert_close(total, torch.ones_like(total))


def test_each_row_of_the_projection_is_a_softmax_over_the_grid(recorded):
    for layer in recorded.values():
        if layer.projection is not None:
            total = layer.projection.sum(-1)
            torch.testing.assert_close(total, torch.ones_like(total))


def test_maps_of_a_query_hold_all_but_the_global_tokens(recorded):
    for layer in recorded.values():
        row, column = layer.grid[0] - 1, layer.grid[1] // 2
        total = sum(part.sum((2, 3)) for part in layer.of_query(row, column).values())
        expected = torch.ones_like(total)
        if layer.num_global:
            expected -= layer.shares()["global"][:, :, row, column]
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-5)


def test_a_rollout_neither_makes_nor_loses_relevance(recorded):
    for layer in recorded.values():
        grid = torch.rand(2, *layer.grid, dtype=torch.float64)
        tokens = torch.rand(2, layer.num_global, dtype=torch.float64)
        pulled, to_tokens = layer.pull(grid, tokens)
        torch.testing.assert_close(
            pulled.sum((1, 2)) + to_tokens.sum(1), grid.sum((1, 2)) + tokens.sum(1),
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip


def test_a_query_sees_in_its_window_what_the_window_reaches():
    model = timm.create_model("test_cvt_ls", rank=0).eval()
    with torch.no_grad(), vit_ls.record(model) as records:
        model(torch.randn(1, 3, 64, 64))
    seen = records["stages.0.blocks.0.attn"].of_query(5, 6)["window"][0, 0] > 0
    rows, columns = (seen.any(i).nonzero().flatten().tolist() for i in (1, 0))
    # windows of 4 with a halo of 2: that of the query runs from token 4 to 7
    assert rows == columns == list(range(2, 10))


def test_what_is_no_query_and_what_has_no_attention_is_an_error():
    model = timm.create_model("test_cst_vit").eval()
    with vit_ls.record(model) as records:
        model(torch.randn(1, 3, 32, 32))
    with pytest.raises(ValueError, match=r"^query must lie in the grid of 8 x 8 tokens.*got 8,0"):
        records["stages.0.blocks.0.attn"].of_query(8, 0)
    with (
        pytest.raises(ValueError, match=r"^model must have attention layers.*got none in ResNet"),
        vit_ls.record(timm.create_model("test_resnet")),
    ):
        pass
