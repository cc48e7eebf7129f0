"""Real launchers and real signals: a run that is asked to stop saves, and leaves no process behind.

The processes of a job are found by a variable of its environment, because torchrun gives each rank
a session of its own.
"""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGUSR1

import pytest

from vit_ls.errors import STOPPED_STATUS
from vit_ls.run import read_checkpoint

ROOT = Path(__file__).parents[1]
TORCHRUN = [
    *("-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"),
    *("--rdzv-endpoint", "127.0.0.1:0"),
]
FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--batch-size", "8", "--epochs", "1000"),
    *("--device", "cpu", "--log-interval", "1", "--experiment", "run"),
]
FAST = [
    ("python", "2", "all", SIGTERM),
    ("python", "0", "process", SIGINT),
    ("torchrun", "2", "process", SIGUSR1),
]
CASES = itertools.product(
    ("python", "torchrun"),
    ("0", "2"),
    ("process", "group", "rank", "all"),
    (SIGTERM, SIGINT, SIGUSR1),
)
MATRIX = [
    pytest.param(
        *case,
        marks=pytest.mark.landing if case in FAST else pytest.mark.slow,
        id="-".join(map(str, case)),
    )
    for case in CASES
    if case[:3:2] != ("python", "rank")  # it is the process
]


class Job:
    """A launcher in a session of its own, and everything that it starts."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str] | None = None) -> None:
        self.folder, self.log = folder, folder / "log"
        self.mark = f"VIT_LS_JOB={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        env = os.environ | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            name: value,
            **(env or {}),
        }
        with self.log.open("wb") as log:
            self.launcher = subprocess.Popen(
                command, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True
            )

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def processes(self) -> dict[int, int]:
        """The processes of the job that live, each with its parent."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
                    found[int(path.name)] = int(parent)
            except OSError:  # it has ended meanwhile
                continue
        return found

    def ranks(self) -> list[int]:
        """The processes that train."""
        found = self.processes()
        if self.launcher.pid in found and "torch.distributed.run" in map(str, self.launcher.args):
            return sorted(pid for pid, parent in found.items() if parent == self.launcher.pid)
        return [self.launcher.pid]

    def loading(self) -> list[int]:
        """The loading processes of the first rank."""
        first = self.ranks()[0]
        return [pid for pid, parent in self.processes().items() if parent == first]

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 200
        while not condition():
            assert self.launcher.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.05)

    def end(self) -> int:
        """Wait for the end of the launcher and of everything that it started."""
        status = self.launcher.wait(120)
        deadline = time.monotonic() + 60
        while left := self.processes():
            assert time.monotonic() < deadline, f"left behind: {left}\n{self.text()}"
            time.sleep(0.05)
        return status


@pytest.fixture
def start(digit_folder: Path, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs = []

    def start(launcher: str = "python", *flags: str) -> Job:
        command = [
            sys.executable,
            *(TORCHRUN if launcher == "torchrun" else []),
            str(ROOT / "train.py"),
        ]
        command += [str(digit_folder), "--output", str(tmp_path), *FLAGS, *flags]
        jobs.append(Job(command, tmp_path))
        return jobs[-1]

    yield start
    for job in jobs:
        for pid in job.processes():
            os.kill(pid, SIGKILL)
        job.launcher.wait(10)


def _updates(job: Job) -> int:
    found = re.findall(r"update (\d+)/", job.text())
    return int(found[-1]) if found else 0


def _send(job: Job, target: str, number: signal.Signals) -> None:
    if target == "group":
        os.killpg(job.launcher.pid, number)
        return
    chosen = {"process": [job.launcher.pid], "rank": job.ranks()[-1:], "all": job.processes()}
    for pid in chosen[target]:
        os.kill(pid, number)


@pytest.mark.parametrize(("launcher", "workers", "target", "number"), MATRIX)
def test_a_signal_saves_the_last_update_and_leaves_no_process(
    start: Callable[..., Job], launcher: str, workers: str, target: str, number: signal.Signals
) -> None:
    job = start(launcher, "--workers", workers)
    job.wait_for(lambda: _updates(job) >= 3)
    _send(job, target, number)
    status = job.end()
    if launcher == "python":
        assert status == STOPPED_STATUS, job.text()
    else:
        assert status != 0, job.text()
    assert "stopped as asked, and saved in" in job.text()
    saved = max((job.folder / "run").glob("*.pth.tar"), key=lambda path: path.stat().st_mtime_ns)
    assert read_checkpoint(saved)["position"]["updates"] == _updates(job)


@pytest.mark.slow
def test_loading_processes_end_with_a_parent_that_is_killed(start: Callable[..., Job]) -> None:
    job = start("python", "--workers", "2")
    job.wait_for(lambda: _updates(job) >= 1)
    assert len(job.loading()) >= 2
    os.kill(job.launcher.pid, SIGKILL)
    assert job.end() == -SIGKILL


@pytest.mark.slow
def test_a_loading_process_that_hangs_is_named_after_the_timeout(start: Callable[..., Job]) -> None:
    job = start("python", "--workers", "2", "--dist-timeout", "4")
    job.wait_for(lambda: _updates(job) >= 1)
    for pid in job.loading():
        os.kill(pid, SIGSTOP)
    assert job.end() == 1
    last = job.text().splitlines()[-1]
    assert last.startswith(
        "train.py: a loading process (--workers 2) was killed, or hung for longer"
    )
    assert "--dist-timeout 4 seconds: " in last
    assert "no batch has come for 4 seconds" in job.text()
    assert "Traceback" not in job.text()


@pytest.mark.slow
def test_a_loading_process_that_is_killed_is_named(start: Callable[..., Job]) -> None:
    job = start("python", "--workers", "2")
    job.wait_for(lambda: _updates(job) >= 1)
    os.kill(job.loading()[0], SIGKILL)
    assert job.end() == 1
    # Not the last line: the other processes may complain that their parent is gone.
    assert "train.py: a loading process (--workers 2) was killed" in job.text()


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(start: Callable[..., Job]) -> None:
    job = start("python", "--workers", "1")
    job.wait_for(lambda: _updates(job) >= 1)
    for pid in job.loading():
        os.kill(pid, SIGSTOP)
    before = 0
    while (now := _updates(job)) != before:  # no batch is left, so the first one has to wait
        before = now
        time.sleep(3)
    os.kill(job.launcher.pid, SIGINT)
    time.sleep(1.5)
    os.kill(job.launcher.pid, SIGINT)
    assert job.end() == -SIGINT


@pytest.mark.slow
@pytest.mark.parametrize("number", [SIGUSR1, SIGTERM])
def test_the_slurm_script_requeues_a_run_whose_processes_get_its_signal(
    digit_folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    # SLURM signals every process of the step, the loading processes too.
    for name, text in (
        ("srun", 'shift 2\nexec "$@"'),
        ("scontrol", 'echo "scontrol $*"\n[ "$1" = show ] && echo 127.0.0.1 || exit 0'),
    ):
        (shims / name).write_text(f"#!/bin/bash\n{text}\n")
        (shims / name).chmod(0o755)
    (tmp_path / "train.py").symlink_to(ROOT / "train.py")
    command = [
        "bash",
        str(ROOT / "configs" / "slurm.sbatch"),
        str(ROOT / "configs" / "digits.yaml"),
    ]
    command += [str(digit_folder), "--output", str(tmp_path), *FLAGS[:-2], "--workers", "2"]
    env = {"PATH": f"{shims}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here"}
    job = Job(command, tmp_path, env)
    try:
        job.wait_for(lambda: _updates(job) >= 3)
        for pid in job.processes().keys() - {job.launcher.pid}:
            os.kill(pid, number)
        assert job.end() == 0, job.text()
    finally:
        for pid in job.processes():
            os.kill(pid, SIGKILL)
    assert "stopped as asked, and saved in" in job.text()
    assert "scontrol requeue 7" in job.text()
    assert list((tmp_path / "digits-7").glob("recovery-*.pth.tar"))
