"""The Triton row in Triton's interpreter, on a CPU: what it computes, not how fast."""

import sys
from contextlib import nullcontext
from importlib import metadata
from importlib.util import find_spec

import pytest
import timm
import torch
from timm import create_model
from tolerances import TOLERANCE
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from benchmarks.gpu.compiled import calls, compile_call, compiled
from benchmarks.gpu.kernels import differentiated as attend
from benchmarks.gpu.kernels import widened
from benchmarks.gpu.shapes import Shape, inputs, shapes, specs
from vit_ls.ops import Positions, Windows, long_short_attention, rules, use_implementation
from vit_ls.ops.impl import dense, triton
from vit_ls.ops.impl.triton import launch, operators, support, tiles

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton comes with PyTorch for CUDA on Linux only"
)
KERNELS = ("kernels", "queries", "keys")
PLAIN = Shape((3, 3), (1, 1), 8, 5, True, False, False)
FRONT_BIAS = PLAIN._replace(front_bias=True)
POSITIONS = Shape((4, 2), (2, 1), 8, 3, True, True, True)


@pytest.fixture
def interpreted(monkeypatch):
    """The kernels, imported anew, under the interpreter."""
    import triton.language as tl
    from triton import JITFunction, knobs
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):  # as in 3.4, of torch 2.8
        pytest.skip("the interpreter of this Triton cannot take back what it changes")
    InterpretedFunction, _patch_lang = interpreter.InterpretedFunction, interpreter._patch_lang

    def forget():
        for name in KERNELS:
            sys.modules.pop(f"vit_ls.ops.impl.triton.{name}", None)

    # Triton's own functions were made before
    made = {}
    for module in (tl, tl.standard):
        for name, function in list(vars(module).items()):
            if isinstance(function, JITFunction):
                same = made.setdefault(id(function), InterpretedFunction(function.fn))
                monkeypatch.setattr(module, name, same)
    # Each function that a kernel calls would change triton.language for itself once more, which
    # takes most of the time and is never undone; once is enough.
    changed = _patch_lang(tl.zeros.fn)
    monkeypatch.setattr(
        InterpretedFunction, "__call__", lambda self, *args, **named: self.rewrite()(*args, **named)
    )
    forget()
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        yield
    changed.restore()
    forget()


def check(shape, dtype=torch.float32, *, grid, batch=1, heads=1, valid=None):
    given = inputs(shape, dtype, batch=batch, grid=grid, heads=heads, device="cpu")
    given = given._replace(valid=valid)
    expected = attend(dense.window_attention, widened(given))
    actual = attend(triton.window_attention, given)
    for name, e in expected.items():
        assert actual[name].dtype == dtype
        scale = e.abs().max().clamp_min(1)
        torch.testing.assert_close(
            actual[name].double() / scale,
            e / scale,
            **TOLERANCE[dtype],
            msg=lambda m, n=name: f"{n}: {m}",
        )


@needs_triton
@pytest.mark.parametrize("shape", [PLAIN, FRONT_BIAS, POSITIONS], ids=str)
@pytest.mark.usefixtures("interpreted")
def test_output_and_every_gradient_equal_the_definition(shape):
    check(shape, grid=(4, 5))


@needs_triton
@pytest.mark.usefixtures("interpreted")
def test_without_a_window_the_keys_in_front_are_all_there_is():
    check(Shape((0, 0), (0, 0), 8, 5, False, True, False), grid=(4, 9), batch=2, heads=2)


@needs_triton
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("front", [0, 3])
def test_small_windows_share_a_program_and_no_keys(front):
    shape = Shape((2, 2), (1, 1), 8, front, True, front > 0, False)
    check(shape, grid=(5, 4), valid=torch.rand(1, 5, 4) < 0.6 if front else None)


def dots(monkeypatch, shape, **how):
    """Multiplications in matrix products of the kernels of a forward and its backward."""
    from triton.runtime.interpreter import InterpreterBuilder

    given = inputs(shape, torch.float32, batch=1, heads=1, device="cpu", **how)
    counts = []
    dot = InterpreterBuilder.create_dot

    def counted(builder, a, b, *rest):
        counts.append(a.data.size * b.data.shape[-1])
        return dot(builder, a, b, *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", counted)
    out, lse = operators._empty_outputs(given.q, 1)
    operators._run(launch.forward_call(given, out, lse))
    forward = sum(counts)
    attend(triton.window_attention, given)
    monkeypatch.setattr(InterpreterBuilder, "create_dot", dot)
    return forward, sum(counts) - 2 * forward


@needs_triton
@pytest.mark.landing
@pytest.mark.usefixtures("interpreted")
def test_small_windows_multiply_little_more_than_they_need(monkeypatch):
    shape, grid = Shape((2, 2), (1, 1), 16, 5, False, False, False), (8, 8)
    needed = 2 * 64 * (16 + 5) * 16  # queries, keys, channels, for scores and for values
    forward, backward = dots(monkeypatch, shape, grid=grid)
    monkeypatch.setattr(tiles, "block_size", tiles.window)
    alone_forward, alone_backward = dots(monkeypatch, shape, grid=grid)
    assert forward < 4 * needed < 6 * needed < alone_forward
    assert 2 * backward < alone_backward


@needs_triton
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("front", [None, torch.empty(2, 1, 0, 8)], ids=["none", "empty"])
def test_a_bias_of_no_keys_in_front_gets_an_empty_gradient(front):
    shape = PLAIN._replace(front=0)
    given = inputs(shape, torch.float32, batch=1, grid=(2, 3), heads=1, device="cpu")
    widened = given._replace(front=front, front_bias=torch.empty(1, 0))
    found = attend(triton.window_attention, widened)
    assert found["front_bias"].shape == (1, 0)
    torch.testing.assert_close(found["q"], attend(dense.window_attention, given)["q"])


@needs_triton
@pytest.mark.usefixtures("interpreted")
def test_a_checkpoint_gives_the_same_gradients():
    from torch.utils.checkpoint import checkpoint

    def checkpointed(*args, **named):
        return checkpoint(
            lambda: triton.window_attention(*args, **named), use_reentrant=False, debug=False
        )

    given = inputs(PLAIN, torch.float32, batch=1, grid=(4, 5), heads=1, device="cpu")
    expected = attend(triton.window_attention, given)
    torch.testing.assert_close(attend(checkpointed, given), expected, rtol=0, atol=0)


@needs_triton
@pytest.mark.usefixtures("interpreted")
def test_forward_mode_derivatives_are_refused_and_not_zero():
    given = inputs(PLAIN, torch.float32, batch=1, grid=(4, 5), heads=1, device="cpu")

    def of_keys(kv):
        positions, windows = Positions(given.bias), Windows((3, 3), (1, 1))
        return triton.window_attention(given.q, kv, None, positions, windows, num_heads=1)

    refused = pytest.raises(ValueError, match="no forward-mode derivatives")
    with refused, forward_ad.dual_level():
        of_keys(forward_ad.make_dual(given.kv, torch.ones_like(given.kv)))
    with refused:
        torch.func.jvp(of_keys, (given.kv,), (torch.ones_like(given.kv),))


@needs_triton
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("front", [0, 5])
def test_tokens_that_are_not_valid_are_not_seen(front):
    valid = torch.rand(2, 4, 5) < 0.6
    valid[1, -1] = False
    check(PLAIN._replace(front=front), grid=(4, 5), batch=2, valid=valid)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("shape", shapes(), ids=str)
def test_every_window_of_a_registered_model_equals_the_definition(shape):
    a, b = shape.window
    several = 2 if a <= 4 else 1
    check(shape, grid=(2 * a - 1, b + 1), batch=several, heads=several)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [PLAIN, POSITIONS, PLAIN._replace(window=(7, 7), halo=(3, 3))])
def test_half_precision_is_close_to_the_definition(shape, dtype):
    check(shape, dtype, grid=(8, 9), batch=2, heads=2)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("window", [(3, 3), (4, 2), (2, 6)])
@pytest.mark.parametrize("halo", [(0, 0), (1, 2), (3, 1), (5, 4)])
@pytest.mark.parametrize("grid", [(1, 1), (2, 11), (9, 8)])
def test_any_halo_and_any_grid_equal_the_definition(grid, halo, window):
    check(Shape(window, halo, 24, 3, True, True, True), grid=grid)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("window", [(1, 1), (2, 2), (1, 2), (3, 2), (2, 4)])
@pytest.mark.parametrize("halo", [(0, 0), (1, 1), (2, 1), (3, 5)])
@pytest.mark.parametrize("grid", [(1, 1), (5, 7)])
@pytest.mark.parametrize("bias", [False, True])
def test_small_windows_of_any_halo_equal_the_definition(bias, grid, halo, window):
    shape = Shape(window, halo, 8, 3, bias, True, False)
    check(shape, grid=grid, batch=2, heads=2)
    alone = shape._replace(front=0, front_bias=False)
    check(alone, grid=grid, batch=2, heads=2, valid=torch.rand(2, *grid) < 0.6)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_tokens_in_front_are_summed_over_several_parts(monkeypatch):
    monkeypatch.setattr(tiles, "FRONT_PART", 32)
    monkeypatch.setattr(tiles, "PROGRAMS", 3)
    check(FRONT_BIAS, grid=(9, 8), batch=2)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_under_autocast_it_runs_in_the_narrow_type_and_gradients_are_wide():
    given = inputs(PLAIN, torch.float32, batch=1, grid=(4, 5), heads=2, device="cpu")
    expected = attend(dense.window_attention, given)
    with torch.autocast("cpu", torch.bfloat16):
        actual = attend(triton.window_attention, given)
    assert actual.pop("out").dtype == torch.bfloat16
    for name, x in actual.items():
        assert x.dtype == torch.float32
        torch.testing.assert_close(x, expected[name], rtol=0.05, atol=0.05)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ["test_vil_ls", "test_cvt_ls", "test_vil", "test_cst_vit"])
def test_a_model_compiles_into_one_graph_and_learns_as_with_the_default(name):
    model = create_model(name).eval()
    x = torch.randn(1, 3, 32, 32)
    results = []
    for impl in ("auto", "triton"):
        model.zero_grad()
        run = (
            torch.compile(model, fullgraph=True, backend="aot_eager") if impl == "triton" else model
        )
        with use_implementation(windows=impl):
            y = run(x)
            y.square().sum().backward()
        results.append([y.detach(), *(p.grad.clone() for p in model.parameters())])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # the check's own
def test_it_is_a_proper_custom_operator():
    given = inputs(POSITIONS, torch.float32, batch=1, grid=(3, 3), heads=1, device="cpu")
    arguments = [x.detach().requires_grad_() if isinstance(x, torch.Tensor) else x for x in given]
    torch.library.opcheck(operators._attend, arguments)


class Attention(torch.nn.Module):
    """Queries that are keys and values too, by the Triton row."""

    def forward(self, q, front):
        kv = torch.stack((q, q))
        positions, windows = Positions(), Windows((3, 3), (1, 1))
        return long_short_attention(q, kv, front, None, positions, windows, "triton", num_heads=2)


@needs_triton
@pytest.mark.usefixtures("interpreted")
def test_an_export_keeps_one_operator_for_any_batch_and_grid():
    sizes = dict.fromkeys(range(3), torch.export.Dim.DYNAMIC)
    program = torch.export.export(
        Attention(),
        (torch.randn(2, 5, 7, 8), torch.randn(2, 2, 4, 8)),
        dynamic_shapes=(sizes, {1: torch.export.Dim.DYNAMIC}),
    )
    names = [str(node.target) for node in program.graph.nodes]
    assert names.count("vit_ls.window_attention.default") == 1
    assert not any("softmax" in name or "pad" in name for name in names)
    q, front = torch.randn(1, 3, 4, 8), torch.randn(2, 1, 4, 8)
    torch.testing.assert_close(program.module()(q, front), Attention()(q, front))


@needs_triton
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": torch.zeros(1, 9, 9)}, r"positions.bias must be \[1, 9, 25\] on cpu, got \[1, 9"),
        ({"front": torch.zeros(2, 3, 5, 8)}, r"front must be \[2, 1, 5, 8\]"),
        ({"kv": torch.zeros(2, 1, 4, 5, 8).half()}, "kv must have the dtype of q, torch.float32"),
        ({"num_heads": 3}, r"dim must be divisible by num_heads, got dim=8, num_heads=3\."),
    ],
)
def test_what_a_kernel_would_read_beyond_is_refused(change, message):
    given = inputs(PLAIN, torch.float32, batch=1, grid=(4, 5), heads=1, device="cpu")
    with pytest.raises(ValueError, match=message):
        attend(triton.window_attention, given._replace(**change))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_named_where_it_cannot_run_it_says_why(dtype):
    x = torch.randn(1, 4, 4, 8, dtype=dtype)
    reasons = {torch.float32: "must be a GPU .*, got cpu", torch.float64: "dtype must be .*float64"}
    reason = reasons[dtype] if find_spec("triton") else "Triton is not installed"
    with pytest.raises(ValueError, match=f"impl='triton' cannot run here: .*{reason}"):
        long_short_attention(
            *(x, torch.stack((x, x)), None, None, Positions(), Windows((2, 2), (1, 1)), "triton"),
            num_heads=2,
        )


def test_named_for_the_meta_device_it_says_that_this_is_no_gpu():
    x = torch.empty(1, 4, 4, 8, device="meta")
    reason = "device must be a GPU .*, got meta" if find_spec("triton") else "not installed"
    with pytest.raises(ValueError, match=f"impl='triton' cannot run here: .*{reason}"):
        long_short_attention(
            *(x, torch.stack((x, x)), None, None, Positions(), Windows((2, 2), (1, 1)), "triton"),
            num_heads=2,
        )


def test_a_kernel_runs_on_the_device_of_its_tensors(monkeypatch):
    entered = []

    class Device(nullcontext):
        def __enter__(self):
            entered.append(self.enter_result)

    class Kernels:
        def __getattr__(self, name):
            return {(4,): lambda **arguments: entered.append(arguments["q"].device)}

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(launch, "kernels_of", lambda _: Kernels())
    with FakeTensorMode(allow_non_fake_inputs=True):
        q = torch.empty(1, device="cuda:1")
        operators._run(launch.Call("kernels", "forward", 4, {"q": q}, 4, 2))
    assert entered == [torch.device("cuda:1")] * 2


def test_amd_gpus_get_no_option_and_no_precision_that_they_lack(monkeypatch):
    exact = launch.Call("kernels", "forward", 1, {}, 4, 1)
    assert exact.options()["maxnreg"] == tiles.REGISTERS
    monkeypatch.setattr(tiles, "precision_of_products", lambda _: "tf32")
    assert tiles.precision() == "tf32"
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert "maxnreg" not in exact.options()
    assert tiles.precision() == "ieee"


@pytest.mark.parametrize("tokens", [16, 10**9])
def test_the_rules_never_choose_what_was_not_measured(tokens):
    assert {device for device, _, _ in rules.PRODUCTS | rules.WINDOW_PRODUCTS} == {"cpu"}
    for q in (torch.empty(0), torch.empty(0, device="meta")):
        assert rules.choose_windows("auto", q, tokens) in ("gathered", "products", "tiled")


@needs_triton
def test_a_triton_that_does_not_compile_the_kernels_is_refused_whatever_its_package(monkeypatch):
    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", none)
    monkeypatch.setattr("triton.__version__", "3.4.0")
    reason = "must be newer than 3.4, which does not compile the kernels, got 3.4.0"
    assert reason in str(support._why_not("cuda", torch.bfloat16))


@needs_triton
def test_a_kernel_compiles_for_a_gpu_without_one_and_spills_no_register():
    if reason := triton.too_old():
        pytest.skip(reason)
    shape = PLAIN._replace(head_dim=16)
    given = inputs(shape, torch.bfloat16, batch=2, grid=(6, 6), heads=2, device="meta")
    forward = calls(given)[0]
    used = compile_call(forward, 80)
    assert used["registers"] > 0
    assert used["shared_bytes"] > 0
    assert used["spill_bytes"] == 0


@needs_triton
@pytest.mark.parametrize(("arch", "lanes"), [("gfx942", 64), ("gfx1100", 32)])
def test_a_kernel_compiles_for_amds_gpus_without_one(arch, lanes, monkeypatch):
    if reason := support.too_old():
        pytest.skip(reason)
    from triton.backends.compiler import GPUTarget

    monkeypatch.setattr(torch.version, "hip", "7.0")
    shape = Shape((2, 2), (1, 1), 16, 5, True, False, False)
    given = inputs(shape, torch.float32, batch=2, grid=(6, 6), heads=2, device="meta")
    made = compiled(calls(given)[0], GPUTarget("hip", arch, lanes))
    assert "amdgcn" in made.asm


def test_the_shapes_are_those_of_every_registered_model():
    ours = {
        n for m in ("cvt", "cvt_ls", "vil", "vil_ls", "cst_vit") for n in timm.list_models(module=m)
    }
    assert specs().keys() == ours
