"""Slices (c) and (f): images per second, peak memory and share of the peak, of whole models."""

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.plan import Case, Plan, Row
from benchmarks.speed.floor import products_of
from benchmarks.speed.measure import Times, in_turn, peak_bytes
from benchmarks.speed.subjects import MODES, SUBJECTS, call_of, create
from vit_ls.train.utilisation import PEAKS

COLUMNS = (
    *("size", "mode", "batch", "model", "median_ms", "images_per_s", "peak_mb", "gflops"),
    *("mfu", "fits"),
)
OURS = (
    *("vil_ls_medium", "vil_ls_small", "cvt_ls_13", "cvt_ls_21", "cst_vit_small_patch16"),
    "cst_vil_medium",
)
PEERS = ("swin_small", "deit_small", "hiera_small", "convnext_small")
MOST = 1024
"""Images of the largest batch that is tried."""
ROUNDS = 3

Call = Callable[[], Any]


def cases(plan: Plan) -> Iterator[Case]:
    """One for each size, mode and batch: all models in turn."""
    for largest in (False, True):
        for size in plan.sizes:
            for mode in MODES:
                name = f"{size} {mode} {'largest batch' if largest else 'batch 1'}"
                yield Case(name, partial(_rows, plan, size, mode, largest))


def _rows(plan: Plan, size: int, mode: str, largest: bool) -> Iterator[Row]:
    """The models that cannot run are named, and the others go on."""
    if size < 1:
        raise ValueError(f"a size must be positive, got {size}.")
    names = ("vil_ls_small", "deit_small") if plan.rehearse else (*OURS, *PEERS)
    calls: dict[str, Call] = {}
    batches: dict[str, int] = {}
    for name in names:
        try:
            model = create(SUBJECTS[name], size, plan.device).train(mode == "step")
            most = MOST if not plan.rehearse else 2
            calls[name], batches[name] = _largest(
                plan, name, model, size, mode, most * largest or 1
            )
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            plan.failed("c", f"{name} {size} {mode}", error)
    if not calls:
        return
    times = in_turn(calls, ROUNDS, plan.device)
    for name, call in calls.items():
        yield _row(plan, size, mode, name, (call, batches[name], times[name]), largest=largest)


def _row(
    plan: Plan, size: int, mode: str, name: str, found: tuple[Call, int, Times], *, largest: bool
) -> Row:
    call, batch, times = found
    peak = peak_bytes(call, plan.device)
    flops = flops_of(name, size)
    per_second = batch / times.median
    cells = (
        *(str(size), mode, str(batch), name, f"{1e3 * times.median:.3f}", f"{per_second:.1f}"),
        *("" if peak is None else f"{peak / 1e6:.0f}", f"{flops / 1e9:.2f}"),
        mfu(plan, flops * per_second * (3 if mode == "step" else 1)),
        "the most" if largest else "",
    )
    return dict(zip(COLUMNS, cells, strict=True))


@cache
def flops_of(name: str, size: int) -> float:
    """Of the matrix products of one image's forward, a multiply-add counted as two."""
    products = products_of(SUBJECTS[name], "forward", 1, size)
    return 2.0 * sum(count * math.prod(product) for product, count in products.items())


def mfu(plan: Plan, flops_per_second: float) -> str:
    """The share of the device's peak, empty where that is not known."""
    peak = PEAKS.get(torch.cuda.get_device_name()) if plan.device == "cuda" else None
    return "" if peak is None else f"{flops_per_second / (1e12 * peak):.3f}"


def _largest(
    plan: Plan, name: str, model: nn.Module, size: int, mode: str, most: int
) -> tuple[Call, int]:
    """A call of the most images, by doubling, that the device has memory for; at most `most`."""
    batch, found = 1, None
    while True:
        try:
            images = torch.randn(batch, 3, size, size, device=plan.device)
            call = call_of(model, SUBJECTS[name], "bf16", mode, images, plan.folder)
            call()
        except torch.OutOfMemoryError:
            if found is None:
                raise
            torch.cuda.empty_cache()
            return found
        found = call, batch
        if 2 * batch > most:
            return found
        batch *= 2
