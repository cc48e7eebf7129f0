"""Traces, FX, torch.compile, inference mode and torch.func on one model of each family."""

import pytest
import timm
import torch
from families import SMALL
from timm.models import get_notrace_functions, get_notrace_modules
from tolerances import TOLERANCE
from torchvision.models.feature_extraction import create_feature_extractor

pytestmark = pytest.mark.parametrize("name", SMALL)


def create(name, **kwargs):
    return timm.create_model(name, **kwargs).eval()


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float32])


def traced(model):
    """As timm's own tests extract features with FX."""
    return create_feature_extractor(
        model,
        return_nodes=["head.fc"],
        tracer_kwargs={
            "leaf_modules": get_notrace_modules(),
            "autowrap_functions": get_notrace_functions(),
            "param_shapes_constant": True,
        },
    )


def test_torchscript_is_refused_with_what_takes_its_place(name):
    with pytest.raises(ValueError, match=r"torch\.export.*got torch\.jit\.script"):
        torch.jit.script(create(name))
    with pytest.raises(ValueError, match=r"torch\.export.*got scriptable=True"):
        create(name, scriptable=True)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # a trace is of one size
def test_a_trace_with_gradients_is_saved_and_read(name, tmp_path):
    model, x = create(name), torch.randn(2, 3, 64, 64)
    torch.jit.save(torch.jit.trace(model, x, check_trace=False), tmp_path / "model.pt")
    assert_close(torch.jit.load(tmp_path / "model.pt")(x), model(x))


def test_fx_extracts_features_with_gradients_at_any_size(name):
    model = create(name)
    extractor = traced(model)
    for size in ((64, 64), (45, 83)):
        x = torch.randn(2, 3, *size)
        actual = extractor(x)["head.fc"]
        assert_close(actual, model(x))
    actual.mean().backward()
    assert all(p.grad is not None for p in extractor.parameters())


@pytest.mark.slow
def test_torch_compile_makes_one_graph_for_a_geometry(name):
    graphs = []

    def backend(module, _inputs):
        graphs.append(module)
        return module

    model, x = create(name), torch.randn(2, 3, 45, 83)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=False)
    for _ in range(2):
        assert_close(compiled(x), model(x))
    assert len(graphs) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("grad", [False, True])
def test_torch_compile_makes_one_graph_for_other_batches_and_sizes(name, grad):
    graphs = []

    def backend(module, _inputs):
        graphs.append(module)
        return module

    model = create(name)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    with torch.set_grad_enabled(grad):
        for shape in ((2, 3, 75, 91), (3, 3, 128, 83), (5, 3, 66, 160)):
            x = torch.randn(*shape)
            assert_close(compiled(x), model(x))
    assert len(graphs) == 1


def test_no_grad_and_inference_mode_change_no_output(name):
    model, x = create(name), torch.randn(1, 3, 45, 45)
    expected = model(x)
    with torch.no_grad():
        assert_close(model(x), expected)
    with torch.inference_mode():
        assert_close(model(x), expected)


# fused attention on a CPU has no batching rule: slower, not wrong
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_over_images_is_the_batch(name):
    model, x = create(name), torch.randn(3, 3, 45, 37)
    with torch.no_grad():
        mapped = torch.func.vmap(lambda image: model(image[None])[0])(x)
        assert_close(mapped, model(x))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_each_image_come_from_vmap_of_grad(name):
    model, x = create(name), torch.randn(2, 3, 32, 32)
    parameters = dict(model.named_parameters())

    def loss(parameters, image):
        return torch.func.functional_call(model, parameters, image[None]).square().mean()

    mapped = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for i, image in enumerate(x):
        expected = torch.autograd.grad(loss(parameters, image), list(parameters.values()))
        assert_close([mapped[key][i] for key in parameters], list(expected))
