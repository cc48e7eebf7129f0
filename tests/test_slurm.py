"""configs/slurm.sbatch, run by bash; srun and scontrol are stand-ins that note their calls."""

import os
import subprocess
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
