"""Compile the kernels of the Triton row for GPUs, without one, and say what each takes.

    python -m benchmarks.gpu.compiled --dtypes bfloat16 --out FILE.csv

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
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.shapes import Shape, inputs, shapes
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
        "benchmarks.gpu.compiled", description="Compile the Triton kernels without a GPU."
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
    from triton.backends.compiler import GPUTarget  # only what compiles needs it

    made = compiled(call, GPUTarget("cuda", arch, 32))
    return {**_assemble(made.asm["ptx"], arch), "shared_bytes": made.metadata.shared}


def compiled(call: launch.Call, target: Any) -> Any:
    """What Triton makes of a launch of tensors on the meta device, for a `GPUTarget`."""
    import triton
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
    source = ASTSource(kernel, signature, values, hints)
    return triton.compile(source, target=target, options=call.options())


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
