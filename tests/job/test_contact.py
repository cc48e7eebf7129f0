"""Two processes (gloo): who is lost is said, and what they share is the same in both."""

import re
import time
from pathlib import Path

import pytest
import runs

# gloo of torch 2.8 says whom it has reached, word by word, two processes into each other's lines
GLOO = re.compile(
    r"(\[Gloo\] Rank | is connected to | peer ranks\. |"
    r"Expected number of connected peer ranks is : |[01 ])*"
)


def _case(tmp_path: Path, name: str, *flags: str) -> tuple[int | None, str]:
    """Exit status of the first process, and what both said."""
    log = tmp_path / "log"
    first, second = runs.start_two("rank_cases", [name, *flags], log)
    first.join(60)
    second.kill()
    second.join()
    return first.exitcode, log.read_text()


@pytest.mark.parametrize(
    "place",
    [
        "lost_before_a_meeting",
        "lost_in_the_backward_pass",
        "lost_before_buffers_are_broadcast",
    ],
)
def test_a_lost_process_is_one_line_wherever_it_is_noticed(tmp_path: Path, place: str) -> None:
    status, log = _case(tmp_path, place)
    assert status == 1
    assert "rank_cases.py: lost contact with " in log
    assert "Traceback" not in log


def test_a_meeting_names_who_is_late(tmp_path: Path) -> None:
    started = time.monotonic()
    status, log = _case(tmp_path, "late_for_a_meeting")
    assert status == 1
    assert "lost contact with process 1 of 2: " in log
    assert time.monotonic() - started < 40  # and not the half hour of gloo


def test_an_error_of_the_model_is_no_lost_process(tmp_path: Path) -> None:
    status, log = _case(tmp_path, "a_model_that_ddp_refuses")
    assert status == 1
    assert "lost contact" not in log
    assert "Expected to have finished reduction in the prior iteration" in log
    assert "Traceback" in log


def test_the_message_does_not_wait_for_the_end_of_the_group(tmp_path: Path) -> None:
    status, log = _case(tmp_path, "ending_a_group_that_waits")
    assert status == 1, "the process hangs in destroying the group"
    assert "lost contact with process 1 of 2: " in log


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("shared_norms", (), "shared"),
        ("broadcast_buffers", (), "running means [0.0, 0.0]"),
        ("broadcast_buffers", ("no-ddp-bb",), "running means [0.0, 1.0]"),
        ("evaluation_of_unequal_parts", (), "16 images, 0 unreadable"),
        ("one_gradient", (), "one gradient"),
    ],
)
def test_what_processes_share(tmp_path: Path, name: str, flags: tuple[str, ...], said: str) -> None:
    status, log = _case(tmp_path, name, *flags)
    own = [line for line in log.splitlines() if not GLOO.fullmatch(line)]
    assert (status, own) == (0, [said])


@pytest.mark.parametrize(
    ("line", "of_gloo"),
    [
        ("[Gloo] Rank [Gloo] Rank 0", True),
        ("1 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1", True),
        ("Expected number of connected peer ranks is : 1", True),
        ("", True),
        ("one gradient", False),
        ("[Gloo] Rank 0 one gradient", False),
    ],
)
def test_what_gloo_says_is_known_in_pieces(line: str, of_gloo: bool) -> None:
    assert bool(GLOO.fullmatch(line)) == of_gloo


def test_a_job_whose_processes_cannot_meet_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # As in an allocation of SLURM without srun: two tasks, and no address to meet at.
    status = runs.finish(["--output", str(tmp_path)], log, env={"SLURM_NTASKS": "2"})
    assert status == 1
    (line,) = log.read_text().splitlines()
    assert line.startswith("train.py: process 0 cannot join the 2 of its job (torchrun or srun")
