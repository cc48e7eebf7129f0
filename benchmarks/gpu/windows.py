"""Slice (d): window attention alone, ours beside other kernels; and (e), rows for the rules."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from benchmarks import rules
from benchmarks.gpu.plan import Case, Plan, Row

COLUMNS = ("kind", "shape", "dtype", "trained", "way", "ms", "times_the_best")
TINY = rules.Shapes({"tiny": (4, 16, 1, 2, 1, 3, True)}, {"tiny": (9, 1, 16, True)})
WAYS = {"triton": "Triton", "tiled": "SDPA", "fused": "SDPA", "flex": "flex", "na2d": "NATTEN"}


def cases(plan: Plan) -> Iterator[Case]:
    """One for each precision, with and without a backward pass."""
    for dtype in plan.dtypes:
        for trained in (False, True):
            shapes = TINY if plan.rehearse else rules.SHAPES
            for kind in shapes._fields:
                for name in getattr(shapes, kind):
                    what = f"{kind} {name} {dtype}{' with its backward' * trained}"
                    yield Case(what, partial(_rows, plan, shapes, kind, name, dtype, trained))


def rule_cases(plan: Plan) -> Iterator[Case]:
    """All rows of `benchmarks.rules`, one precision after another."""
    shapes = TINY if plan.rehearse else rules.SHAPES
    batch, repeats = (1, 1) if plan.rehearse else (64, 4)
    for precision in rules.PRECISIONS:
        yield Case(precision, partial(_rules, batch, repeats, plan.device, shapes, precision))


def _rules(
    batch: int, repeats: int, device: str, shapes: rules.Shapes, precision: str
) -> Iterator[Row]:
    for cells in rules.measured(batch, repeats, device, shapes, (precision,)):
        yield dict(zip(rules.COLUMNS, cells, strict=True))


def _rows(
    plan: Plan, shapes: rules.Shapes, kind: str, name: str, dtype: str, trained: bool
) -> Iterator[Row]:
    none: dict[str, Any] = {field: {} for field in shapes._fields}
    one = rules.Shapes(**none | {kind: {name: getattr(shapes, kind)[name]}})
    known = getattr(torch, dtype, None)
    if not isinstance(known, torch.dtype) or not known.is_floating_point:
        raise ValueError(f"a dtype must be one of torch's for numbers, got {dtype!r}.")
    how = {"dtype": known, "device": plan.device, "requires_grad": trained}
    batch, repeats = (1, 1) if plan.rehearse else (64, 10)
    (_, _, _, calls), *_ = rules.calls_of(one, batch, how, trained=trained)
    calls = {way: call for way, call in calls.items() if way in WAYS}
    for way, make in _others(plan, one, batch, how).items():
        try:
            calls[way] = make()
            calls[way]()
        except Exception as error:  # whatever a kernel of others' or a compiler does
            calls.pop(way, None)
            plan.failed("d", f"{way} {kind} {name} {dtype}", error)
    seconds = rules.least(calls, repeats, plan.device, trained=trained)
    best = min(seconds.values())
    for way, s in seconds.items():
        cells = (kind, name, dtype, str(trained), way, f"{1e3 * s:.4f}", f"{s / best:.2f}")
        yield dict(zip(COLUMNS, cells, strict=True))


Maker = Callable[[], Callable[[], Tensor]]


def _others(plan: Plan, one: rules.Shapes, batch: int, how: dict[str, Any]) -> dict[str, Maker]:
    """Makers of calls of kernels that are not ours."""
    found: dict[str, Maker] = {}
    for N, h, d, bias in one.tokens.values():
        if not (plan.rehearse and how["requires_grad"]):  # on a CPU it has no backward
            found["flex"] = partial(_flex, plan, (batch, h, N, d), bias, how)
    for side, dim, h, w, s, _, _ in one.windows.values():
        if find_spec("natten") is not None:
            size = min((w + 2 * s) // 2 * 2 + 1, side - 1 + side % 2)
            found["na2d"] = partial(_natten, (batch, side, side, h, dim // h), size, how)
    return found


def _flex(
    plan: Plan, shape: tuple[int, ...], bias: bool, how: dict[str, Any]
) -> Callable[[], Tensor]:
    """Full attention with a table; in a rehearsal without its compiler, which is for GPUs."""
    q, k, v = (torch.randn(shape, **how) for _ in "qkv")
    table = torch.randn(shape[1], shape[2], shape[2], **how)

    def added(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:  # noqa: ARG001
        return score + table[h, i, j]

    run = flex_attention if plan.rehearse else torch.compile(flex_attention, dynamic=False)
    return lambda: run(q, k, v, score_mod=added if bias else None)


def _natten(shape: tuple[int, ...], size: int, how: dict[str, Any]) -> Callable[[], Tensor]:
    """NATTEN's neighbourhoods, of as many keys: a window of its own for each query, no table."""
    natten = import_module("natten")  # an optional package
    q, k, v = (torch.randn(shape, **how) for _ in "qkv")
    return lambda: natten.na2d(q, k, v, kernel_size=(size, size))
