"""A process that hangs or dies ends a run of several, which says so."""

import os
import signal
import time
from pathlib import Path

import pytest
import runs


@pytest.mark.landing
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_is_lost_ends_the_others_in_one_line(
    number: signal.Signals, tmp_path: Path
) -> None:
    ask = ["--model", "test_resnet", "--random-weights", "--img-size", "32", "--suites", "digits"]
    where = ["--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    how = ["--workers", "0", "--dist-timeout", "5", "--device", "cpu"]
    log = tmp_path / "log"
    first, second = runs.start_two("robustness.cli", [*ask, *where, *how], log)
    try:
        while len(list((tmp_path / "cache").rglob("*.json"))) < 2:
            assert first.exitcode is None, log.read_text()
            time.sleep(0.05)
        os.kill(second.pid or 0, number)
        first.join(60)
    finally:
        for process in (first, second):
            process.kill()
            process.join()
    assert first.exitcode == 1
    assert "Traceback" not in log.read_text()
    assert log.read_text().splitlines()[-1].startswith("python -m robustness: lost contact with")
