"""torchrun restarts a run whose processes are killed: it ends as the undisturbed one."""

import functools
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
import restarting
import runs
from resumed import assert_same_run

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "restarting.py"
FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--workers", "0", "--opt", "adamw"),
    *("--epochs", "4", "--batch-size", "16", "--recovery-interval", "2", "--drop-path", "0.2"),
    *("--mixup", "0.3", "--reprob", "0.3", "--model-ema", "--model-ema-decay", "0.9"),
    *("--device", "cpu", "--resume", "auto"),
]
DEATHS = [
    (1, "update", 2),
    (0, "evaluation", 1),
    (1, "joining", 1),
    (0, "saving", 3),
    (1, "update", 3),
]
TWO = ("--nproc-per-node", "2")


def _flags(images: Path, folder: Path) -> list[str]:
    return [str(images), "--output", str(folder.parent), "--experiment", folder.name, *FLAGS]


def _torchrun(
    launcher: Sequence[str], deaths: Sequence[tuple[int, str, int]], flags: Sequence[str], log: Path
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", *launcher]
    command += ["--max-restarts", "5", str(SCRIPT), json.dumps(deaths), *flags]
    env = os.environ | {"PYTHONPATH": f"{ROOT}", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as file:
        return subprocess.Popen(command, env=env, stdout=file, stderr=file)


def _ended(*jobs: subprocess.Popen[Any], seconds: float) -> list[int]:
    try:
        return [job.wait(seconds) for job in jobs]
    finally:
        for job in jobs:
            job.kill()


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
def undisturbed(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two processes that nobody kills."""
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    log = folder.with_suffix(".log")
    processes = runs.start_two("train", _flags(digit_folder, folder), log)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0], log.read_text()
    return folder


@pytest.mark.landing
def test_a_run_restarted_five_times_at_one_store_ends_bit_identical(
    undisturbed: Path, digit_folder: Path, tmp_path: Path, agent: dict[str, str]
) -> None:
    folder = tmp_path / "killed"
    log = folder.with_suffix(".log")
    flags = _flags(digit_folder, folder)
    for start, death in enumerate([*DEATHS, None]):
        env = agent | {"TORCHELASTIC_RESTART_COUNT": str(start)}
        before = functools.partial(restarting.die, *death) if death else None
        both = runs.start_two("train", flags, log, env=env, before=before)
        wait([process.sentinel for process in both], 60)
        for process in both if death else []:
            process.terminate()  # as an agent ends those that are left
        for process in both:
            process.join(60)
            process.kill()
        statuses = [process.exitcode for process in both]
        assert statuses == [0, 0] if death is None else statuses[death[0]] == -9, log.read_text()
    assert_same_run(folder, undisturbed)


@pytest.mark.parametrize(
    ("launcher", "deaths"),
    [
        pytest.param(["--standalone"], DEATHS[:1], marks=pytest.mark.landing, id="standalone-1"),
        pytest.param(["--standalone"], DEATHS, marks=pytest.mark.slow, id="standalone-5"),
        pytest.param(
            ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"],
            DEATHS,
            marks=pytest.mark.slow,
            id="c10d-5",
        ),
        pytest.param(
            ["--master-addr", "127.0.0.1", "--master-port", "FREE"],
            DEATHS,
            marks=pytest.mark.slow,
            id="static-5",
        ),
    ],
)
def test_a_run_that_torchrun_restarts_ends_bit_identical(
    undisturbed: Path,
    digit_folder: Path,
    tmp_path: Path,
    launcher: list[str],
    deaths: list[tuple[int, str, int]],
) -> None:
    folder = tmp_path / "killed"
    log = folder.with_suffix(".log")
    launcher = [_free_port() if word == "FREE" else word for word in launcher]
    job = _torchrun([*TWO, *launcher], deaths, _flags(digit_folder, folder), log)
    assert _ended(job, seconds=280) == [0], log.read_text()
    # Who is started again while it still starts has nothing to say: of one of them it is known.
    starts = set(re.findall(r"start (\d) of process", log.read_text()))
    assert starts == {str(count) for count in range(len(deaths) + 1)}, log.read_text()
    assert_same_run(folder, undisturbed)


@pytest.mark.slow
def test_nodes_that_count_their_restarts_differently_go_on_together(
    undisturbed: Path, digit_folder: Path, tmp_path: Path
) -> None:
    """The first node is restarted because the second one is, and does not count that."""
    folder = tmp_path / "killed"
    port = _free_port()
    launcher = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-id", "digits", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    logs = [tmp_path / f"node-{node}.log" for node in range(2)]
    deaths = [(1, "joining", 1)]
    jobs = [_torchrun(launcher, deaths, _flags(digit_folder, folder), log) for log in logs]
    assert _ended(*jobs, seconds=200) == [0, 0], "\n".join(log.read_text() for log in logs)
    text = "\n".join(log.read_text() for log in logs)
    assert "start 1 of process 1" in text
    assert "start 1 of process 0" not in text
    assert text.count("start 0 of process 0") == 2
    assert_same_run(folder, undisturbed)
