import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import timm
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import vit_ls
from vit_ls.ops.rules import is_recording
from vit_ls.sequence import (
    CompositeSlice,
    CompositeSliceAttention1d,
    LongShort,
    LongShortAttention1d,
)
from vit_ls.visualize.rollout import rollout

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


def test_a_recording_sees_its_own_thread_and_its_own_model_alone():
    torch.manual_seed(0)
    names = ("test_vil_ls", "test_cvt_ls", "test_vil_ls", "test_cst_vil", "test_cvt", "test_vil")
    models = [timm.create_model(name).eval() for name in names]
    models[2] = models[0]  # one model in two threads, each of which records it
    images = [torch.randn(1, 3, 32 + 4 * i, 48) for i in range(len(names))]

    def layers(records):
        return {n: [*r.tokens, r.windows, r.projection] for n, r in records.items()}

    def one(i):
        with torch.no_grad(), vit_ls.record(models[i]) as records:
            models[i](images[i])
        return layers(records)

    def unrecorded(i):
        with torch.no_grad():
            return models[i](images[i])

    alone, outputs = [one(i) for i in range(6)], [unrecorded(i) for i in range(6)]
    start = threading.Barrier(12)

    def often(work, i):
        start.wait()
        return [work(i) for _ in range(10)]

    with ThreadPoolExecutor(12) as threads:
        recorded = [threads.submit(often, one, i) for i in range(6)]
        plain = [threads.submit(often, unrecorded, i) for i in range(6)]
        for i in range(6):
            for found in recorded[i].result():
                torch.testing.assert_close(found, alone[i])
            for found in plain[i].result():
                # what is not recorded computes as if nothing were, which is another kernel
                assert torch.equal(found, outputs[i])


def test_another_model_in_the_block_is_no_part_of_the_recording():
    model, other = (timm.create_model("test_vil_ls").eval() for _ in range(2))
    x = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        before = other(x)
        with vit_ls.record(model) as records:
            model(x)
            weights = records["stages.0.blocks.0.attn"].weights
            assert torch.equal(other(x), before)
        assert records["stages.0.blocks.0.attn"].weights is weights


def test_two_recordings_of_one_model_both_get_it():
    model = timm.create_model("test_cst_vit").eval()
    with torch.no_grad(), vit_ls.record(model) as outer, vit_ls.record(model) as inner:
        model(torch.randn(1, 3, 32, 32))
    assert list(outer) == list(inner)
    assert all(torch.equal(outer[n].weights, inner[n].weights) for n in outer)


def test_a_pass_that_fails_leaves_nothing_recording():
    model = timm.create_model("test_vil_ls").eval()
    broken = model.stages[0].blocks[0].attn.proj.register_forward_hook(lambda *_: 1 / 0)
    with vit_ls.record(model) as records:
        with pytest.raises(ZeroDivisionError):
            model(torch.randn(1, 3, 32, 32))
        assert not is_recording()
        assert not records
        broken.remove()
        model(torch.randn(1, 3, 32, 32))
    assert len(records) == 5


@pytest.mark.parametrize("way", ["torch.compile", "compile() of a stage", "a function", "no pass"])
def test_a_compiled_model_and_no_pass_at_all_are_refused(way):
    model, x = timm.create_model("test_vil_ls").eval(), torch.randn(1, 3, 32, 32)
    run = recorded = model
    message = r"^model must not be compiled.*got a compiled (StagedTransformer|Stage)\.$"
    if way == "torch.compile":
        run = recorded = torch.compile(model, backend="eager")
    elif way == "compile() of a stage":
        model.stages[0].compile(backend="eager")
    else:
        message = r"^A recording must hold a forward pass.*got none of StagedTransformer\.$"
        run = torch.compile(lambda x: model(x), backend="eager") if way == "a function" else len
    with pytest.raises(ValueError, match=message), vit_ls.record(recorded):
        run(x)


@pytest.mark.parametrize(
    "layer",
    [
        LongShortAttention1d(16, 2, LongShort(window=4, rank=2)),
        CompositeSliceAttention1d(16, 2, CompositeSlice(slice_size=4)),
    ],
)
def test_a_layer_of_sequences_is_refused_by_its_name(layer):
    message = f"^What can be recorded are LongShortAttention, .*got {type(layer).__name__}.$"
    with pytest.raises(ValueError, match=message), vit_ls.record(layer):
        pass


def test_what_is_made_of_a_recording_stays_on_its_device(recorded):
    # fake tensors have no numbers, but a device, and refuse to be mixed with those of another
    fake = FakeTensorMode()

    def on_a_gpu(x):
        with fake:  # made there: a copy from a CPU asks for a driver
            return None if x is None else torch.empty(x.shape, device="cuda")

    records = {
        name: replace(
            layer,
            projection=on_a_gpu(layer.projection),
            windows=on_a_gpu(layer.windows),
            tokens=[on_a_gpu(x) for x in layer.tokens],
        )
        for name, layer in recorded.items()
    }
    with fake:
        for layer in records.values():
            assert {part.device.type for part in layer.of_query(1, 2).values()} == {"cuda"}
            assert {part.device.type for part in layer.shares().values()} == {"cuda"}
        for from_token in {False, layer.num_global > 0}:
            assert rollout(records, from_token=from_token).device.type == "cuda"
