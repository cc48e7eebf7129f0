"""Every registered model of full size is one graph for torch.compile, for any batch and size."""

import pytest
import timm
import torch
from families import MODELS, SMALL


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in SMALL])
def test_a_registered_model_is_one_graph_for_batches_and_sizes(name):
    graphs = []

    def backend(module, _inputs):
        graphs.append(module)
        return module

    model = timm.create_model(name).eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    with torch.no_grad():
        # a single window or slice on an axis would be a graph of its own
        for shape in ((2, 3, 250, 310), (3, 3, 330, 270)):
            x = torch.randn(*shape)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert len(graphs) == 1
