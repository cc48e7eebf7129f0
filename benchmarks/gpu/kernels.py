"""Slice (a): each implementation beside the definition in float64, outputs and gradients."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.gpu.plan import Case, Plan, Row
from benchmarks.gpu.shapes import Shape, inputs, shapes
from vit_ls.ops import Positions, Windows, window_attention
from vit_ls.ops.impl import IMPLEMENTATIONS
from vit_ls.ops.impl.triton.tiles import Inputs

COLUMNS = ("impl", "window", "halo", "head_dim", "front", "tables", "dtype", "what", "error", "ok")
NAMES = ("q", "kv", "front", "bias", "query_pos", "key_pos", "front_bias")
BOUNDS = {"float32": 2e-3, "float16": 1e-2, "bfloat16": 6e-2}
"""Of the largest difference, as a share of the largest value: TF32 counts as float32."""
TINY = Shape((3, 3), (1, 1), 8, 3, True, False, False)


def cases(plan: Plan) -> Iterator[Case]:
    """One for each window, precision and implementation, first of all one window of each family."""
    for shape in [TINY] if plan.rehearse else _first_of_families():
        for dtype in plan.dtypes:
            for impl in IMPLEMENTATIONS:
                if impl != "dense":
                    name = f"{impl} {dtype} {shape.window} {shape.halo} {shape.head_dim}"
                    yield Case(name, partial(_rows, plan, shape, dtype, impl))


def differentiated(attention: Callable[..., Tensor], given: Inputs) -> dict[str, Tensor]:
    """The output at valid tokens, and the gradients of all that is there, by name."""
    there = {name: x for name in NAMES if (x := getattr(given, name)) is not None}
    leaves = {name: x.detach().requires_grad_() for name, x in there.items()}
    q, kv, front, bias, query_pos, key_pos, front_bias, valid, window, halo, h = given._replace(
        **leaves
    )
    positions = Positions(bias, query_pos, key_pos, front_bias)
    out = attention(q, kv, front, positions, Windows(window, halo, valid=valid), num_heads=h)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    if valid is not None:
        out = out * valid[..., None]
    grads = torch.autograd.grad(
        (out * weights).sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    return {"out": out, **dict(zip(leaves, grads, strict=True))}


def widened(given: Inputs) -> Inputs:
    """The same inputs in float64."""
    there = {name: x for name in NAMES if (x := getattr(given, name)) is not None}
    return given._replace(**{name: x.double() for name, x in there.items()})


def _rows(plan: Plan, shape: Shape, name: str, impl: str) -> Iterator[Row]:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a dtype must be one of torch's, got {name!r}.")
    if name not in BOUNDS:
        raise ValueError(f"a dtype must be one of {', '.join(BOUNDS)}, got {name!r}.")
    (a, b), heads = shape.window, 1 if plan.rehearse else 3
    grid = (2 * a - 1, b + 1)  # one that windows do not divide
    given = inputs(shape, dtype, batch=heads, grid=grid, heads=heads, device=plan.device)
    expected = differentiated(partial(window_attention, impl="dense"), widened(given))
    actual = differentiated(partial(window_attention, impl=impl), given)
    tables = [t for t in ("bias", "front_bias", "positions") if getattr(shape, t)]
    for what, wanted in expected.items():
        error = float(
            (actual[what].double() - wanted).abs().max() / wanted.abs().max().clamp_min(1)
        )
        found = (
            *(impl, f"{a}x{b}", "x".join(map(str, shape.halo)), str(shape.head_dim)),
            *(str(shape.front), " ".join(tables), name, what, f"{error:.2e}"),
            "yes" if error <= BOUNDS[name] else "no",
        )
        yield dict(zip(COLUMNS, found, strict=True))


def _first_of_families() -> list[Shape]:
    seen: dict[str, int] = {}
    place = {}
    for shape, models in shapes().items():
        family = models[0].rsplit("_", 1)[0]
        place[shape] = seen[family] = seen.get(family, -1) + 1
    return sorted(place, key=place.__getitem__)
