"""A process that hangs or dies ends a run of several, which says so."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.landing
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_is_lost_ends_the_others_in_one_line(
    number: signal.Signals, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ask = ["--model", "test_resnet", "--random-weights", "--img-size", "32", "--suites", "digits"]
    where = ["--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    how = ["--workers", "0", "--dist-timeout", "5", "--device", "cpu"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "robustness", *ask, *where, *how],
            cwd=ROOT,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": str(rank)}
            | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stderr=subprocess.DEVNULL if rank else subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        while len(list((tmp_path / "cache").rglob("*.json"))) < 2:
            assert started[0].poll() is None, started[0].communicate()[1]
            time.sleep(0.05)
        started[1].send_signal(number)
        _, error = started[0].communicate(timeout=60)
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert started[0].returncode == 1
    assert "Traceback" not in error
    assert error.strip().splitlines()[-1].startswith("python -m robustness: lost contact with")
