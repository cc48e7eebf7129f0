"""Compile the kernels of the Triton row for GPUs, without one, and say what each takes.

    python -m benchmarks.triton_kernel --out benchmarks/results/triton_kernel.csv

Each window of the registered models is compiled as it would run, in bfloat16, float16 and float32,
for sm_80 and sm_90: registers and bytes of spills per thread as Triton's own `ptxas` reports them,
and the shared memory of a program. Nothing is run: how fast a kernel is, this does not say.
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vit_ls.attention import CompositeSlice, LongShort
from vit_ls.blocks import StageSpec
from vit_ls.models import cst_vit, cvt, cvt_ls, vil, vil_ls
from vit_ls.models.backbone import BackboneSpec
from vit_ls.ops import slice_halo, window_halo
from vit_ls.ops.impl.triton import launch, operators
from vit_ls.ops.impl.triton.tiles import Inputs

COLUMNS = (
    *("window", "halo", "head_dim", "front", "tables", "dtype", "products", "arch", "kernel"),
    *("warps", "tiles", "registers", "spill_bytes", "shared_bytes", "models"),
)
ARCHITECTURES = (80, 90)
_TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.bool: "*i1",
}


class Shape(NamedTuple):
    """What a kernel is compiled for, and what its tiles depend on."""

    window: tuple[int, int]
    halo: tuple[int, int]
    head_dim: int
    front: int
    """E, keys in front."""
    bias: bool
    front_bias: bool
    positions: bool
    """Of queries and keys."""


def shapes() -> dict[Shape, list[str]]:
    """The windows of the registered models, and the models that have them."""
    found: dict[Shape, list[str]] = {}
    for name, spec in specs().items():
        for stage in spec.stages:
            shape = _shape(stage)
            if shape is not None and name not in found.setdefault(shape, []):
                found[shape].append(name)
    return found


def specs() -> dict[str, BackboneSpec]:
    """What each registered model is made of."""
    return cvt.VARIANTS | cvt_ls.VARIANTS | vil.VARIANTS | vil_ls.VARIANTS | cst_vit.VARIANTS


def _shape(stage: StageSpec) -> Shape | None:
    attention, head_dim = stage.attention, stage.dim // stage.num_heads
    if isinstance(attention, LongShort):
        w = attention.window
        s = window_halo(w, attention.whole_halo)
        front = attention.rank + stage.num_global
        of_tokens = attention.position_table and attention.token_bias
        return Shape((w, w), (s, s), head_dim, front, attention.position_table, of_tokens, False)
    if isinstance(attention, CompositeSlice):
        assert isinstance(attention.slice_size, int)
        window = (attention.slice_size, attention.slice_size)
        halo = slice_halo(window, attention.alpha)
        return Shape(window, halo, head_dim, 0, False, False, attention.pos_embed == "ms_vipe")
    return None


def inputs(
    shape: Shape,
    dtype: torch.dtype,
    *,
    batch: int,
    grid: tuple[int, int],
    heads: int,
    device: str,
) -> Inputs:
    """Random inputs of a shape, with the strides that a model's linear layer gives them."""
    (a, b), (sa, sb), d, E, *_ = shape
    C, K = heads * d, (a + 2 * sa) * (b + 2 * sb)

    def make(*size: int) -> Tensor:
        return torch.randn(*size, dtype=dtype, device=device)

    qkv = make(batch, *grid, 3, C).movedim(-2, 0)
    return Inputs(
        q=qkv[0],
        kv=qkv[1:],
        front=make(2, batch, E, C) if E else None,
        bias=make(heads, a * b, K) if shape.bias else None,
        query_pos=make(a, b, C) if shape.positions else None,
        key_pos=make(a + 2 * sa, b + 2 * sb, C) if shape.positions else None,
        front_bias=make(heads, E) if shape.front_bias else None,
        valid=None,
        window=shape.window,
        halo=shape.halo,
        num_heads=heads,
    )


def calls(given: Inputs) -> list[launch.Call]:
    """All launches of a forward and its backward, as the row makes them."""
    out, lse = operators._empty_outputs(given.q, given.num_heads)
    gradients = operators._empty_gradients(given)
    outputs = launch.Outputs(out, lse, torch.empty_like(out))
    return [
        launch.forward_call(given, out, lse),
        *launch.backward_calls(given, outputs, gradients),
    ]


def main() -> None:
    """Write the table, and the file of `--out` if there is one; status 1 where a kernel spills."""
    parser = argparse.ArgumentParser(
        "benchmarks.triton_kernel", description="Compile the Triton kernels without a GPU."
    )
    parser.add_argument("--models", default="", help="only windows of models with this in the name")
    parser.add_argument("--dtypes", default="bfloat16,float16,float32")
    parser.add_argument("--out", type=Path, help="a CSV file")
    args = parser.parse_args()
    rows: list[tuple[str, ...]] = [COLUMNS]
    sys.stdout.write(" | ".join(COLUMNS) + "\n")
    for cells in _measure(args.models, [getattr(torch, d) for d in args.dtypes.split(",")]):
        rows.append(cells)
        sys.stdout.write(" | ".join(cells) + "\n")
        sys.stdout.flush()
    spilling = sum(cells[COLUMNS.index("spill_bytes")] != "0" for cells in rows[1:])
    sys.stdout.write(f"{len(rows) - 1} kernels, {spilling} with spills\n")
    if args.out:
        with args.out.open("w", newline="") as file:
            csv.writer(file).writerows([*_versions(), *rows])
    sys.exit(spilling > 0)


def _measure(models: str, dtypes: list[torch.dtype]) -> Iterator[tuple[str, ...]]:
    for shape, names in shapes().items():
        if not any(models in name for name in names):
            continue
        for dtype in dtypes:
            given = inputs(shape, dtype, batch=8, grid=(48, 48), heads=4, device="meta")
            for call in calls(given):
                for arch in ARCHITECTURES:
                    yield _row(shape, names, dtype, call, arch)


def _row(
    shape: Shape, names: list[str], dtype: torch.dtype, call: launch.Call, arch: int
) -> tuple[str, ...]:
    used = compile_call(call, arch)
    tables = [t for t in ("bias", "front_bias", "positions") if getattr(shape, t)]
    tiles = (f"{k[6:]}{v}" for k, v in call.arguments.items() if k.startswith("BLOCK_"))
    return (
        *("x".join(map(str, side)) for side in (shape.window, shape.halo)),
        *(str(shape.head_dim), str(shape.front), " ".join(tables)),
        str(dtype).removeprefix("torch."),
        call.arguments["PRECISION"] if dtype == torch.float32 else "",
        *(f"sm_{arch}", call.kernel, str(call.num_warps), " ".join(tiles)),
        *(str(used[name]) for name in ("registers", "spill_bytes", "shared_bytes")),
        " ".join(names),
    )


def compile_call(call: launch.Call, arch: int) -> dict[str, int]:
    """Compile a launch of tensors on the meta device for sm_`arch`: what it takes."""
    import triton  # only what compiles needs it
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(launch.kernels_of(call.module), call.kernel)
    constants = {p.name for p in kernel.params if p.is_constexpr}
    signature, values, hints = {}, {}, {}
    for place, name in enumerate(kernel.arg_names):
        value = call.arguments[name]
        signature[name] = "constexpr" if name in constants else _type(value)
        if signature[name] == "constexpr":
            values[name] = value
        elif isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0):
            hints[(place,)] = [["tt.divisibility", 16]]
    compiled = triton.compile(
        ASTSource(kernel, signature, values, hints),
        target=GPUTarget("cuda", arch, 32),
        options=call.options(),
    )
    return {**_assemble(compiled.asm["ptx"], arch), "shared_bytes": compiled.metadata.shared}


def _type(value: Any) -> str:
    """How a launch on a GPU would specialise an argument."""
    if isinstance(value, Tensor):
        return _TYPES[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "i32" if value not in (None, 1) else "constexpr"


def _assemble(ptx: str, arch: int) -> dict[str, int]:
    from triton.backends.nvidia.compiler import get_ptxas

    target = re.search(r"\.target (sm_\w+)", ptx)
    assert target is not None
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        done = subprocess.run(
            [get_ptxas(arch).path, "-v", f"--gpu-name={target[1]}", file.name, "-o", "/dev/null"],
            capture_output=True,
            text=True,
            check=True,
        )
    found = [
        re.search(pattern, done.stderr)
        for pattern in (r"Used (\d+) registers", r"(\d+) bytes spill stores, (\d+) bytes spill lo")
    ]
    if found[0] is None or found[1] is None:
        raise ValueError(f"ptxas must report registers and spills, got {done.stderr!r}.")
    return {"registers": int(found[0][1]), "spill_bytes": int(found[1][1]) + int(found[1][2])}


def _versions() -> list[tuple[str, str]]:
    import triton

    return [("# torch", torch.__version__), ("# triton", triton.__version__)]


if __name__ == "__main__":
    main()
