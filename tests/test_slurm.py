"""configs/slurm.sbatch, run by bash; srun and scontrol are stand-ins.

One of them notes its calls; the other starts two tasks, and ends them as srun does.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "configs" / "slurm.sbatch"


def _submitted(folder: Path, status: int, **env: str) -> tuple[int, str]:
    """Exit status of the script where srun ends with `status`, and what it called."""
    tools = folder / "bin"
    tools.mkdir()
    calls = folder / "calls"
    for name, text in (
        (
            "srun",
            'echo "srun cpus=$SRUN_CPUS_PER_TASK address=$MASTER_ADDR port=$MASTER_PORT"'
            f' >> "{calls}"; exit {status}',
        ),
        ("scontrol", f'echo "scontrol $*" >> "{calls}"; echo node1'),
    ):
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[1-2]", "MAX_RESTARTS": "1"}
    env = {"PATH": f"{tools}:{os.environ['PATH']}", **job, **env}
    command = ["bash", str(SCRIPT), "configs/cvt_ls_13_224.yaml", "/data"]
    done = subprocess.run(command, env=env, cwd=SCRIPT.parents[1], capture_output=True, timeout=60)
    return done.returncode, calls.read_text()


@pytest.mark.parametrize(("given", "cpus"), [({"SLURM_CPUS_PER_TASK": "8"}, 8), ({}, 1)])
def test_srun_is_told_the_cpus_of_a_task(tmp_path: Path, given: dict[str, str], cpus: int) -> None:
    status, calls = _submitted(tmp_path, 0, **given)
    assert status == 0
    assert f"srun cpus={cpus} address=node1 port=20041\n" in calls


def test_a_stopped_job_is_requeued(tmp_path: Path) -> None:
    status, calls = _submitted(tmp_path, 85)
    assert status == 0
    assert calls.splitlines()[-1] == "scontrol requeue 41"
    assert calls.count("srun") == 1


def test_a_failed_job_starts_again_at_another_port(tmp_path: Path) -> None:
    status, calls = _submitted(tmp_path, 1)
    assert status == 1
    assert [line.rpartition("=")[2] for line in calls.splitlines() if line.startswith("srun")] == [
        "20041",
        "20042",
    ]
    assert "requeue" not in calls


# It ends with the highest status of its tasks. With --kill-on-bad-exit=1, which goes before --wait,
# it kills the others as soon as one ends with another status than 0.
SRUN = """
import os, signal, subprocess, sys, time
flags = [word for word in sys.argv[1:] if word.startswith("--kill") or word.startswith("--wait")]
command = sys.argv[1 + len(flags):]
tasks = [
    subprocess.Popen(command, env={**os.environ, "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2"})
    for rank in range(2)
]
killing = "--kill-on-bad-exit=1" in flags
while any(task.poll() is None for task in tasks):
    if killing and any(task.poll() for task in tasks):
        for task in tasks:
            task.kill()
    time.sleep(0.02)
statuses = [task.returncode if task.returncode >= 0 else 128 - task.returncode for task in tasks]
sys.exit(max(statuses))
"""
# A run that saves for a second when it is asked to stop; the primary only, as in train.py.
TASK = """
import os, signal, sys, time
stopped = []
signal.signal(signal.SIGUSR1, lambda *_: stopped.append(1))
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
rank, folder = os.environ["SLURM_PROCID"], os.environ["FOLDER"]
open(f"{folder}/pid-{rank}", "w").write(str(os.getpid()))
for _ in range(3000):
    if stopped:
        break
    time.sleep(0.01)
else:
    sys.exit(3)
if rank == "0":
    time.sleep(1)
    open(f"{folder}/saved", "w").close()
sys.exit(85)
"""


@pytest.mark.parametrize(("number", "to_script"), [(signal.SIGUSR1, False), (signal.SIGTERM, True)])
def test_a_job_is_requeued_when_its_primary_has_saved(
    tmp_path: Path, number: signal.Signals, to_script: bool
) -> None:
    """The other processes end first; the signal comes to them, and at a limit to the script too."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "srun.py").write_text(SRUN)
    (tmp_path / "task.py").write_text(TASK)
    for name, text in (
        ("srun", f'exec {sys.executable} {tmp_path}/srun.py "$@"'),
        ("python", f"exec {sys.executable} {tmp_path}/task.py"),
        ("scontrol", f'echo "scontrol $*" >> {tmp_path}/calls; echo node1'),
    ):
        (tools / name).write_text(f"#!/bin/bash\n{text}\n")
        (tools / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node1", "FOLDER": str(tmp_path)}
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "MAX_RESTARTS": "0", **job}
    command = ["bash", str(SCRIPT), "configs/digits.yaml", "/data"]
    script = subprocess.Popen(command, env=env, cwd=SCRIPT.parents[1])
    pids = [tmp_path / f"pid-{rank}" for rank in range(2)]
    deadline = time.monotonic() + 60
    while not all(path.exists() and path.read_text() for path in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for pid in [int(path.read_text()) for path in pids] + [script.pid] * to_script:
        os.kill(pid, number)
    assert script.wait(60) == 0
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "scontrol requeue 41"


def test_the_signal_before_the_end_goes_to_the_processes() -> None:
    """With "B:" it would go to the script alone."""
    (line,) = [
        line for line in SCRIPT.read_text().splitlines() if line.startswith("#SBATCH --signal")
    ]
    assert line == "#SBATCH --signal=USR1@300"
