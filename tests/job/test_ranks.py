"""Two processes (gloo): the same run as one, exact counts, and an end instead of a hang."""

import csv
import os
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import runs

# Nothing that is drawn per process or per batch: these differ between one process and two.
FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--workers", "0", "--opt", "adamw"),
    *("--lr", "1e-3", "--epochs", "2", "--validation-batch-size", "5", "--log-interval", "1"),
]


def _start_two(folder: Path, images: Path, *more: str) -> list[BaseProcess]:
    argv = [str(images), "--output", str(folder.parent), "--experiment", folder.name, *FLAGS]
    return runs.start_two("train", [*argv, *more], folder.with_suffix(".log"))


def _summary(folder: Path) -> list[dict[str, float]]:
    with (folder / "summary.csv").open() as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def test_two_processes_train_as_one_with_the_same_global_batch(
    tmp_path: Path, digit_folder: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    processes = _start_two(two, digit_folder, "--batch-size", "8")
    for process in processes:
        process.join(120)
    log = two.with_suffix(".log").read_text()
    assert [process.exitcode for process in processes] == [0, 0], log
    argv = [str(digit_folder), "--output", str(tmp_path), "--experiment", "one", *FLAGS]
    assert runs.finish([*argv, "--batch-size", "16"], tmp_path / "one.log") == 0

    wanted, found = _summary(one), _summary(two)
    assert len(found) == len(wanted) == 2
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        assert mine["eval_loss"] == pytest.approx(theirs["eval_loss"], rel=1e-3)
        assert mine["lr"] == theirs["lr"]
        # 37 held-out images do not divide by two batches of 5: each must still count once.
        hits = mine["eval_top1"] * 0.37
        assert hits == pytest.approx(round(hits), abs=1e-9)
        assert mine["eval_top1"] == pytest.approx(theirs["eval_top1"], abs=3.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ["--model", "test_cvt_ls"],
        ["--model", "test_cst_vit", "--sched-on-updates"],
        ["--model", "test_cst_vil", "--grad-checkpointing"],
        ["--grad-accum-steps", "3", "--clip-grad", "1"],
        ["--model-ema", "--channels-last"],
        ["--no-ddp-bb", "--dist-bn", "broadcast"],
        ["--amp", "--skip-nonfinite", "1"],
        ["--mixup", "0.2", "--reprob", "0.3", "--aug-repeats", "2"],
    ],
)
def test_two_processes_train_with(tmp_path: Path, digit_folder: Path, flags: list[str]) -> None:
    """DDP refuses a model that leaves a parameter out, and whoever takes another path hangs."""
    folder = tmp_path / "two"
    processes = _start_two(folder, digit_folder, "--batch-size", "8", *flags)
    for process in processes:
        process.join(120)
    log = folder.with_suffix(".log").read_text()
    assert [process.exitcode for process in processes] == [0, 0], log
    assert [row["epoch"] for row in _summary(folder)] == [0, 1]
    assert "FutureWarning" not in log


def test_a_lost_process_ends_the_other_one(tmp_path: Path, digit_folder: Path) -> None:
    folder = tmp_path / "lost"
    first, second = _start_two(folder, digit_folder, "--epochs", "50", "--batch-size", "8")
    log = folder.with_suffix(".log")
    deadline = time.monotonic() + 60
    while not log.exists() or "update" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(second.pid, signal.SIGKILL)
    first.join(60)
    assert first.exitcode == 1, "the other process hangs"
    assert "train.py: lost contact with another process" in log.read_text()


@pytest.mark.slow
def test_torchrun_names_the_cause_of_a_failing_rank(tmp_path: Path, digit_folder: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import os, sys, train\n"
        "from vit_ls import job\n"
        "def fail(*_):\n"
        "    raise ArithmeticError('rank 1 breaks down')\n"
        "if os.environ['RANK'] == '1':\n"
        "    train.Trainer._after_update = fail\n"
        "sys.exit(job.command_line('train.py', train.main))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command += [
        str(script),
        str(digit_folder),
        "--output",
        str(tmp_path),
        "--batch-size",
        "8",
        *FLAGS,
    ]
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "rank 1 breaks down" in done.stderr
