"""Slice (b): whole trainings on the digits, each `train.py` in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.gpu.plan import Case, Plan, Row, read
from vit_ls.errors import STOPPED_STATUS
from vit_ls.run import read_checkpoint

COLUMNS = ("case", "status", "seconds", "top1", "note", "ok")
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds that a training may take."""
BF16 = ("--amp", "--amp-dtype", "bfloat16")
FP16 = ("--amp", "--amp-dtype", "float16")
SAVING = ("--recovery-interval", "1")


class Ended(NamedTuple):
    """A process that has ended."""

    status: int
    seconds: float


def cases(plan: Plan) -> Iterator[Case]:
    """Precisions, compiler, CUDA graphs, a kill, a stop, and two processes."""
    backend = "eager" if plan.rehearse else "inductor"
    runs = {"bf16": BF16, "fp16": FP16, "compiled": (*BF16, "--torchcompile", backend)}
    if not plan.rehearse:
        graphs = ("--torchcompile", backend, "--torchcompile-mode", "reduce-overhead")
        runs["CUDA graphs"] = (*BF16, *graphs)
    for name, flags in runs.items():
        yield Case(name, partial(_whole, plan, name, flags))
    yield Case("kill -9", partial(_interrupted, plan, "kill -9", signal.SIGKILL))
    yield Case("SIGTERM", partial(_interrupted, plan, "SIGTERM", signal.SIGTERM))
    yield Case("two processes", partial(_two, plan))


def _whole(plan: Plan, name: str, flags: tuple[str, ...]) -> Iterator[Row]:
    yield _row(plan, name, _wait(plan, name, _start(plan, name, *flags)))


def _interrupted(plan: Plan, name: str, number: signal.Signals) -> Iterator[Row]:
    """A run that is ended after an update and continued, beside the one that nothing ended."""
    process = _start(plan, name, *BF16, *SAVING)
    until = time.monotonic() + PATIENCE
    while process.poll() is None and not any(_folder(plan, name).glob("recovery-*.pth.tar")):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    process.send_signal(number)
    ended = _wait(plan, name, process)
    wanted = STOPPED_STATUS if number == signal.SIGTERM else -number
    yield _row(plan, name, ended, wanted=wanted)
    again = _start(plan, name, *BF16, *SAVING, "--resume", "auto")
    yield _row(plan, name, _wait(plan, name, again), said="resumed") | _beside(plan, name)


def _beside(plan: Plan, name: str) -> Row:
    """Whether a run's weights are those of the run that nothing ended."""
    files = [_folder(plan, which) / "last.pth.tar" for which in ("bf16", name)]
    if not all(file.is_file() for file in files):
        return {"note": "resumed; there is no undisturbed run to compare with"}
    whole, resumed = (read_checkpoint(file)["state_dict"] for file in files)
    far = max(float((whole[key].float() - resumed[key].float()).abs().max()) for key in whole)
    return {"note": f"resumed; weights differ from the undisturbed run's by at most {far:.1e}"}


def _two(plan: Plan) -> Iterator[Row]:
    gpus = torch.cuda.device_count()
    if plan.rehearse or gpus < 2:
        note = "not in a rehearsal" if plan.rehearse else f"needs two GPUs, got {gpus}"
        yield dict.fromkeys(COLUMNS, "") | {"case": "two processes", "note": note}
        return
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    process = _start(plan, "two processes", *BF16, launcher=launcher)
    yield _row(plan, "two processes", _wait(plan, "two processes", process))


def _folder(plan: Plan, name: str) -> Path:
    return plan.folder / "engine" / name.replace(" ", "_")


def _start(
    plan: Plan, name: str, *flags: str, launcher: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start a training of the digits, with its log beside its folder."""
    folder = _folder(plan, name)
    folder.parent.mkdir(exist_ok=True)
    few = ("--epochs", "1", "--batch-size", "256") if plan.rehearse else ("--epochs", "3")
    where = ("--output", str(folder.parent), "--experiment", folder.name, "--device", plan.device)
    with folder.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *launcher, str(ROOT / "train.py"), *few, *where, *flags],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )


def _wait(plan: Plan, name: str, process: subprocess.Popen[bytes]) -> Ended:
    started = time.monotonic()
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        log = _folder(plan, name).with_suffix(".log")
        raise RuntimeError(f"train.py took over {PATIENCE:.0f} s; its log is {log}.") from None
    return Ended(status, time.monotonic() - started)


def _row(plan: Plan, name: str, ended: Ended, *, wanted: int = 0, said: str = "") -> Row:
    """What a run left behind; of one that failed, the last line of its log."""
    right = ended.status == wanted
    log = _folder(plan, name).with_suffix(".log").read_text(errors="replace").splitlines()
    summary = read(_folder(plan, name) / "summary.csv")
    top1 = summary[-1].get("eval_top1", "") if summary else ""
    note = said if right else (log or [""])[-1][:200]
    found = name, str(ended.status), f"{ended.seconds:.1f}", top1, note, "yes" if right else "no"
    return dict(zip(COLUMNS, found, strict=True))
