import copy
import pickle

import pytest
import timm
import torch

from vit_ls.ops import kept as keep
from vit_ls.ops.kept import LARGEST


def counted():
    """A function of a table, and the list of its calls."""
    calls = []

    def make(table, factor):
        calls.append(factor)
        return table * factor

    return make, calls


@torch.no_grad()
def test_a_result_is_computed_once_while_its_sources_are_equal():
    make, calls = counted()
    table = torch.nn.Parameter(torch.randn(5))
    first = keep(make, (table,), 2.0)
    assert keep(make, (table,), 2.0) is first
    assert torch.equal(keep(make, (table,), 3.0), 3 * table)
    assert calls == [2.0, 3.0]


@pytest.mark.parametrize("how", ["in place", "by .data", "replaced", "another dtype", "numpy"])
@torch.no_grad()
def test_a_result_is_never_stale(how):
    make, _ = counted()
    table = torch.nn.Parameter(torch.randn(5))
    keep(make, (table,), 2.0)
    if how == "in place":
        table[0] += 1
    elif how == "by .data":
        table.data[0] += 1
    elif how == "replaced":
        table.data = torch.randn(5)
    elif how == "another dtype":
        table.data = table.data.double() + 1e-9
    else:
        table.detach().numpy()[0] += 1
    found = keep(make, (table,), 2.0)
    assert torch.equal(found, 2 * table)
    assert found.dtype == table.dtype


def test_nothing_is_kept_with_gradients_in_graphs_or_when_it_is_large():
    make, calls = counted()
    table = torch.randn(5)
    for _ in range(2):
        keep(make, (table,), 2.0)
    assert len(calls) == 2
    with torch.no_grad():
        torch.func.vmap(lambda x: keep(make, (x,), 2.0))(torch.randn(3, 5))
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda x: keep(torch.mul, (x,), 2.0), backend="eager", fullgraph=True
        )
        assert torch.equal(compiled(table), 2 * table)
        calls.clear()
        large = torch.zeros(1).expand(LARGEST + 1)
        for _ in range(2):
            keep(make, (large,), 2.0)
        assert len(calls) == 2


@pytest.mark.parametrize("name", ["test_vil_ls", "test_vil"])
@torch.inference_mode()
def test_a_model_follows_its_weights_and_copies_know_nothing_of_what_is_kept(name):
    model, x = timm.create_model(name).eval(), torch.randn(2, 3, 45, 70)
    keys, before = model.state_dict().keys(), model(x)
    assert torch.equal(model(x), before)
    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    for key, parameter in model.named_parameters():
        if key.endswith("table"):
            parameter.data.mul_(50).add_(torch.randn_like(parameter))
    fresh = timm.create_model(name).eval()
    fresh.load_state_dict(model.state_dict())
    after = model(x)
    assert not torch.allclose(after, before)
    assert torch.equal(after, fresh(x))
    for other in copies:
        assert torch.equal(other(x), before)
        assert other.state_dict().keys() == keys
