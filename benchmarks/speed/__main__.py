"""Time models beside their peers, or report what was measured.

    python -m benchmarks.speed --out FILE.csv                      # 224, float32, all models
    python -m benchmarks.speed --out FILE.csv --setting bf16 --mode step --models cvt_ls_21 cvt_21
    python -m benchmarks.speed --out FILE.csv --size 1024 --batch-size 1
    python -m benchmarks.speed --report FILE.csv --markdown FILE.md --plots FOLDER

Models are timed in turn, in one process, after a round of warm-up. Each command adds its rows to
the file, so a machine can be measured in parts; ratios are taken of rows of one command alone.
Where other work goes on, `--threads 1 --processor-time` counts the processor's time alone.
With `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184` before the command (of glibc) the
process keeps its memory, and the rows say so.
Beside each model stand its FLOPs, and the floor: the time of its matrix products alone.
"""

import argparse
import datetime
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.speed import table
from benchmarks.speed.floor import products_of, seconds_of
from benchmarks.speed.measure import in_turn, peak_bytes
from benchmarks.speed.subjects import MODES, RUNTIMES, SETTINGS, SUBJECTS, create, run
from vit_ls.count import count_flops, explicit_attention, saved_activations
from vit_ls.job.machine import machine

DEFAULT = "vil_ls_medium swin_small swin_base cvt_ls_21 cvt_21 cst_vit_small_patch16 deit_small"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 2 where it asks for what cannot be."""
    args = _parse(argv)
    warnings.filterwarnings("ignore", "`torch.jit", FutureWarning)  # by fvcore, which scripts
    try:
        if args.report:
            _report(args)
        else:
            with tempfile.TemporaryDirectory() as folder:
                _measure(args, args.onnx_dir or Path(folder))
    except ValueError as error:
        sys.stderr.write(f"benchmarks.speed: {error}\n")
        return 2
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.speed", description="Time and memory, in turn.")
    add = parser.add_argument
    add("--setting", choices=SETTINGS, default="float32")
    add("--mode", choices=MODES, default="forward")
    add("--size", type=int, default=224, help="side of the images, in pixels")
    add("--batch-size", type=int, default=8)
    add("--models", nargs="+", choices=SUBJECTS, default=DEFAULT.split(), metavar="MODEL")
    add("--rounds", type=int, default=5, help="after one of warm-up")
    add("--threads", type=int, default=torch.get_num_threads(), help="of the CPU")
    add("--processor-time", action="store_true", help="one thread's own time, on a busy CPU")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--no-floor", action="store_true", help="neither FLOPs nor the floor")
    add("--out", type=Path, help="CSV file of this machine; rows are added")
    add("--onnx-dir", type=Path, help="where ONNX files stay, for the next command")
    add("--report", type=Path, help="measure nothing, write what this CSV file says")
    add("--markdown", type=Path, help="of --report, instead of the standard output")
    add("--plots", type=Path, help="of --report: a folder for two plots of the setting and mode")
    args = parser.parse_args(argv)
    if min(args.size, args.batch_size, args.rounds, args.threads) < 1:
        parser.error("--size, --batch-size, --rounds and --threads must be positive.")
    if args.device == "cuda" and args.setting in RUNTIMES:
        parser.error(f"--setting {args.setting} runs on a CPU.")
    if args.processor_time and (args.device == "cuda" or args.threads > 1):
        parser.error("--processor-time is that of a CPU's one thread: give --threads 1.")
    if args.mode == "step" and args.setting in RUNTIMES:
        parser.error(f"--mode step trains, which --setting {args.setting} cannot.")
    return args


def _report(args: argparse.Namespace) -> None:
    rows = table.read(args.report)
    if not rows:
        raise ValueError(f"--report must be a file with rows, got {args.report}.")
    text = table.markdown(rows)
    if args.markdown:
        args.markdown.write_text(text)
    else:
        sys.stdout.write(text)
    if args.plots:
        table.plot(rows, args.setting, args.mode, args.plots)


def _measure(args: argparse.Namespace, onnx_dir: Path) -> None:
    if args.out:
        table.read(args.out)  # refuses a file of other columns before the work
    torch.set_num_threads(args.threads)
    side = (args.batch_size, 3, args.size, args.size)
    images = torch.randn(side, device=args.device)
    made = {n: run(SUBJECTS[n], args.setting, args.mode, images, onnx_dir) for n in args.models}
    times = in_turn(
        {n: call for n, (call, _) in made.items()},
        args.rounds,
        args.device,
        processor=args.processor_time,
    )
    known = {name.removeprefix("# "): value for name, value in machine(args.device)}
    shared = {
        "date": known["date"],
        "machine": known["machine"],
        "versions": _versions(args.setting),
        "threads": how_it_ran(args.threads, processor_time=args.processor_time),
        "run": datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S"),
        "setting": args.setting,
        "mode": args.mode,
        "size": str(args.size),
        "batch": str(args.batch_size),
        "rounds": str(args.rounds),
    }
    rows = []
    for name, (call, model) in made.items():
        row = shared | {
            "model": name,
            "median_s": f"{times[name].median:.4f}",
            "least_s": f"{times[name].least:.4f}",
            "images_per_s": f"{args.batch_size / times[name].median:.2f}",
            **_memory(args, call, model, images),
            **_floor(args, name),
        }
        rows.append(row)
        shown = ("model", "median_s", "least_s", "images_per_s", "peak_mb", "saved_mb", "floor_s")
        sys.stdout.write(" ".join(f"{key}={row[key]}" for key in shown) + "\n")
        sys.stdout.flush()
        if args.out:
            table.append(args.out, [row])


def how_it_ran(threads: int, *, processor_time: bool) -> str:
    """Threads, the clock, and whether the process keeps memory that it has had."""
    kept = os.environ.get("MALLOC_MMAP_MAX_") == "0" and "MALLOC_TRIM_THRESHOLD_" in os.environ
    parts = (str(threads), processor_time * "processor time", kept * "memory kept")
    return ", ".join(filter(None, parts))


def _versions(setting: str) -> str:
    packages = ["torch", "timm"]
    if setting in RUNTIMES:
        packages.append("onnxruntime" if setting == "onnx" else "openvino")
    return ", ".join(f"{package} {version(package)}" for package in packages)


def _memory(
    args: argparse.Namespace, call: Callable[[], Any], model: nn.Module, images: torch.Tensor
) -> dict[str, str]:
    """Megabytes; a runtime keeps its memory from the first run on, which says nothing."""
    peak = None if args.setting in RUNTIMES else peak_bytes(call, args.device)
    found = {"peak_mb": "" if peak is None else f"{peak / 1e6:.0f}", "saved_mb": ""}
    if args.mode == "step" and args.setting == "float32":
        found["saved_mb"] = f"{saved_activations(model, images) / 1e6:.0f}"
    return found


def _floor(args: argparse.Namespace, name: str) -> dict[str, str]:
    if args.no_floor or args.device != "cpu":
        return {"gflops": "", "floor_s": ""}
    subject = SUBJECTS[name]
    with explicit_attention():
        model = create(subject, args.size, "cpu").eval()
    gflops = count_flops(model, (args.size, args.size)) / 1e9
    products = products_of(subject, args.mode, args.batch_size, args.size)
    floor = seconds_of(products, args.setting, processor=args.processor_time)
    return {"gflops": f"{gflops:.2f}", "floor_s": f"{floor:.4f}"}


if __name__ == "__main__":
    sys.exit(main())
