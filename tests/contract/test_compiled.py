"""Every registered model is one graph for torch.compile, for any batch and size."""

import pytest
import timm
import torch
from families import MODELS, SMALL
from torch._dynamo.testing import CompileCounter


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in SMALL])
def test_a_registered_model_is_one_graph_for_batches_and_sizes(name):
    counter = CompileCounter()
    model = timm.create_model(name).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    with torch.no_grad():
        # a single window or slice on an axis would be a graph of its own
        for shape in ((2, 3, 250, 310), (3, 3, 330, 270)):
            x = torch.randn(*shape)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1


@pytest.mark.landing
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SMALL)
def test_a_second_size_compiles_once_more(name):
    counter = CompileCounter()
    model = timm.create_model(name).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    found = []
    with torch.no_grad():
        for side in (64, 64, 96, 96):
            x = torch.randn(2, 3, side, side)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
            found.append(counter.frame_count)
    assert found == [1, 1, 2, 2]
