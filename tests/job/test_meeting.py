"""Two processes meet: after each restart by a launcher that keeps its store, and in time."""

import datetime
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import runs
from torch.distributed import TCPStore

from vit_ls.errors import STOPPED_STATUS
from vit_ls.job import ranks
from vit_ls.job.meeting import MeetingError, Patience, own_store, within

LIMIT = 2.0  # seconds, where somebody is waited for in vain
FLAGS = ["--dist-timeout", str(LIMIT), "--device", "cpu"]


def _case(name: str, log: Path, env: dict[str, str]) -> tuple[int | None, str]:
    """Exit status of the first process, and what both said."""
    first, second = runs.start_two("rank_cases", [name], log, env=env)
    first.join(60)
    second.kill()
    second.join()
    return first.exitcode, log.read_text()


def test_processes_join_after_two_kills_at_the_store_that_an_agent_keeps(
    tmp_path: Path, agent: dict[str, str]
) -> None:
    for start in range(2):
        env = agent | {"TORCHELASTIC_RESTART_COUNT": str(start)}
        status, log = _case("lost_before_a_meeting", tmp_path / f"{start}.log", env)
        assert status == 1
        assert "lost contact with process 1 of 2" in log  # so they had joined
    status, log = _case("joined", tmp_path / "last.log", agent)
    assert (status, log) == (0, "joined: [0, 1]\n")


def test_nodes_that_count_their_restarts_differently_join(
    tmp_path: Path, agent: dict[str, str]
) -> None:
    """A node that is restarted because of another one's failure does not count that."""
    _case("lost_before_a_meeting", tmp_path / "lost.log", agent)
    log = tmp_path / "log"
    env = agent | {"WORLD_SIZE": "2"}
    both = [
        runs.start(["joined"], log, script="rank_cases", env=env | {"RANK": rank} | counts)
        for rank, counts in (
            ("0", {"LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0"}),
            ("1", {"LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"}),
        )
    ]
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0], log.read_text()


@pytest.mark.parametrize(
    ("interface", "statuses", "said"),
    [("lo", [0, 0], "joined: [0, 1]"), ("nosuch0", [1, 1], "nosuch0")],
)
def test_gloo_listens_at_the_interface_that_is_named(
    tmp_path: Path, interface: str, statuses: list[int], said: str
) -> None:
    log = tmp_path / "log"
    env = {"GLOO_SOCKET_IFNAME": interface}
    both = runs.start_two("rank_cases", ["joined"], log, env=env)
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == statuses, log.read_text()
    assert said in log.read_text()
    assert "Traceback" not in log.read_text()


def _late() -> None:
    """The primary comes when the other one has read what the last start left."""
    if os.environ["RANK"] == "0":
        time.sleep(1)


def test_a_process_does_not_take_the_call_of_an_earlier_start(
    tmp_path: Path, agent: dict[str, str]
) -> None:
    _case("lost_before_a_meeting", tmp_path / "lost.log", agent)
    log = tmp_path / "log"
    both = runs.start_two("rank_cases", ["joined"], log, env=agent, before=_late)
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0], log.read_text()


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        ("0", "no word of process 1."),
        ("1", "no word of process 0, which may wait for another one."),
    ],
)
def test_who_does_not_come_is_named_after_the_limit(
    tmp_path: Path, agent: dict[str, str], rank: str, said: str
) -> None:
    log = tmp_path / "log"
    env = agent | {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    started = time.monotonic()
    assert runs.finish([*FLAGS, "--output", str(tmp_path)], log, env=env) == 1
    assert time.monotonic() - started < LIMIT + 20
    assert log.read_text() == (
        f"train.py: process {rank} cannot join the 2 of its job (torchrun or srun starts them; "
        f"--dist-timeout 2 seconds): {said}\n"
    )


def test_a_store_that_does_not_answer_is_named_after_the_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    env |= {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    started = time.monotonic()
    assert runs.finish([*FLAGS, "--output", str(tmp_path)], log, env=env) == 1
    assert time.monotonic() - started < 2 * LIMIT + 20
    line = log.read_text().splitlines()[-1]
    assert line.endswith(": no store answers at 127.0.0.1:1.")
    assert "Traceback" not in log.read_text()


def _stops_once_they_have_met() -> None:
    """The primary, which no longer answers while the other one connects."""

    def stopping(rank: int, *args: Any) -> Any:
        store = own_store(rank, *args)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return store

    ranks.own_store = stopping  # type: ignore[assignment]


def test_a_process_that_stops_in_joining_ends_the_others_after_the_limit(
    tmp_path: Path, agent: dict[str, str]
) -> None:
    """gloo waits longer than it is told to where the primary no longer answers."""
    log = tmp_path / "log"
    argv = [*FLAGS, "--output", str(tmp_path)]
    first, second = runs.start_two("train", argv, log, env=agent, before=_stops_once_they_have_met)
    try:
        second.join(2 * LIMIT + 20)
        assert second.exitcode == 1, log.read_text()
    finally:
        for process in (first, second):
            process.kill()
            process.join()
    assert "train.py: process 1 cannot join the 2 of its job" in log.read_text()
    assert log.read_text().endswith(": a process does not go on since they have met.\n")


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_that_waits_for_others_stops_at_once_when_asked(
    tmp_path: Path, agent: dict[str, str], rank: str
) -> None:
    log = tmp_path / "log"
    env = agent | {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    store = TCPStore(agent["MASTER_ADDR"], int(agent["MASTER_PORT"]), wait_for_workers=False)
    if rank == "1":
        store.set("vit_ls/call", '["token", 1]')
    process = runs.start(["--device", "cpu", "--output", str(tmp_path)], log, env=env)
    store.wait(["vit_ls/call" if rank == "0" else "token/1"], datetime.timedelta(seconds=60))
    process.terminate()
    process.join(60)
    assert process.exitcode == STOPPED_STATUS
    assert log.read_text() == "train.py: stopped as asked, before the processes had joined.\n"


def test_what_a_call_raises_in_time_is_raised_again() -> None:
    def fails() -> None:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        within(Patience(60), fails, "too late")
    assert within(Patience(60), lambda: datetime.UTC, "too late") is datetime.UTC
    with pytest.raises(MeetingError, match=r"^too late$"):
        within(Patience(0.01), lambda: time.sleep(1), "too late")
