"""A run that is killed, stopped or robbed of its disk ends as the undisturbed one."""

import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import runs
from resumed import assert_same_run

from vit_ls.errors import STOPPED_STATUS, CheckpointError
from vit_ls.run import read_checkpoint

# Everything random is on: dropping, mixing, erasing, an average of the weights, loading processes.
FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--workers", "0", "--opt", "adamw"),
    *("--epochs", "3", "--batch-size", "8", "--recovery-interval", "2", "--drop-path", "0.2"),
    *("--mixup", "0.3", "--reprob", "0.3", "--model-ema", "--model-ema-decay", "0.9"),
    *("--checkpoint-hist", "2", "--save-epochs", "1", "--grad-accum-steps", "2", "--log-grad-norm"),
]


@pytest.fixture(autouse=True, scope="module")
def _data(digit_folder: Path) -> Iterator[None]:
    FLAGS[:0] = ["--data-dir", str(digit_folder)]
    yield
    del FLAGS[:2]


def _flags(folder: Path) -> list[str]:
    return ["--output", str(folder.parent), "--experiment", folder.name, "--resume", "auto", *FLAGS]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    log = folder.with_suffix(".log")
    assert runs.finish(_flags(folder), log) == 0, log.read_text()
    return folder


def _killed_run(folder: Path, kills: int, seed: int, *more: str) -> None:
    """Kill a run at random moments, `kills` times; then let it end.

    On a fast machine it may end before that: then it starts anew, with moments half as far apart.
    """
    dice = random.Random(seed)
    apart = 1.0
    while not all(_kill(folder, apart * dice.random(), bool(n % 2), *more) for n in range(kills)):
        shutil.rmtree(folder)
        apart /= 2
    log = folder.with_suffix(".log")
    assert runs.finish([*_flags(folder), *more], log) == 0, log.read_text()


def _kill(folder: Path, after: float, early: bool, *more: str) -> bool:
    """Start or continue a run and kill it; False where it ended first.

    Args:
        folder: Of the run.
        after: Seconds to wait.
        early: Count them from the start of the process; else from the first thing that it saves.
        more: Flags.
    """
    log = folder.with_suffix(".log")
    before = _written(folder)
    process = runs.start([*_flags(folder), *more], log)
    if not early:
        _wait(process, lambda: _written(folder) != before)
    process.join(after)
    if process.exitcode is not None:
        assert process.exitcode == 0, log.read_text()
        return False
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return True


def _wait(process: BaseProcess, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while process.exitcode is None and not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _written(folder: Path) -> set[tuple[str, int]]:
    """Names and times of the run's checkpoints."""
    found = set()
    for path in folder.glob("[!.]*.pth.tar"):
        with contextlib.suppress(FileNotFoundError):  # it was replaced meanwhile
            found.add((path.name, path.stat().st_mtime_ns))
    return found


@pytest.mark.landing
def test_a_run_killed_three_times_ends_bit_identical(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    _killed_run(folder, 3, seed=0)
    assert "continuing from" in folder.with_suffix(".log").read_text()
    assert_same_run(folder, undisturbed)


@pytest.mark.landing
def test_loading_processes_do_not_change_a_run(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "loading"
    log = folder.with_suffix(".log")
    assert runs.finish([*_flags(folder), "--workers", "1"], log) == 0, log.read_text()
    assert_same_run(folder, undisturbed)


class _Death:
    """Kills its own process before one of the calls that change the names in a folder.

    Args:
        after: How many such calls are let through.
        call: Count only those of this function of `os`.
        name: Count only those for a file of this name.
    """

    calls = ("replace", "link", "unlink")

    def __init__(self, after: int = 0, *, call: str = "", name: str = "") -> None:
        self.left, self.call, self.name = after, call, name

    def watch(self) -> None:
        """Take the place of the functions."""
        for call in self.calls:
            setattr(os, call, functools.partial(self._called, call, getattr(os, call)))

    def _called(self, call: str, real: Callable[..., object], *paths: Any, **kwargs: Any) -> object:
        name = Path(os.fspath(paths[-1])).name
        ours = name.endswith((".pth.tar", ".pth.tar.part", "summary.csv", "args.yaml"))
        if ours and self.call in ("", call) and self.name in ("", name):
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
        return real(*paths, **kwargs)


def _died(folder: Path, death: _Death) -> bool:
    """Continue a run until it kills itself; False where it ends first."""
    log = folder.with_suffix(".log")
    status = runs.finish(_flags(folder), log, before=death.watch)
    assert status in (0, -signal.SIGKILL), log.read_text()
    return status != 0


def _good_states(folder: Path) -> int:
    """Of how many files a run could continue; several names of one file count once."""
    good = set()
    for path in folder.glob("*.pth.tar"):
        with contextlib.suppress(CheckpointError):
            read_checkpoint(path)
            good.add(path.stat().st_ino)
    return len(good)


@pytest.mark.landing
def test_a_run_killed_between_writing_a_checkpoint_and_ranking_it_ends_bit_identical(
    undisturbed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    for death in (
        _Death(call="link", name=".checkpoint-1.pth.tar.part"),
        _Death(call="replace", name="last.pth.tar"),
        _Death(call="unlink"),
        _Death(call="replace", name="summary.csv"),
    ):
        assert _died(folder, death)
        assert _good_states(folder) >= 2
    log = folder.with_suffix(".log")
    assert log.read_text().count("continuing from") >= 3
    assert runs.finish(_flags(folder), log) == 0, log.read_text()
    assert_same_run(folder, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(6))
def test_a_run_killed_at_any_change_of_its_folder_ends_bit_identical(
    undisturbed: Path, tmp_path: Path, first: int
) -> None:
    for after in itertools.count(first, 6):
        folder = tmp_path / f"killed-{after}"
        if not _died(folder, _Death(after)):
            break
        # args.yaml is the first change; each of the next two writes a state.
        assert _good_states(folder) >= min(2, max(0, after - 1)), after
        log = folder.with_suffix(".log")
        assert runs.finish(_flags(folder), log) == 0, log.read_text()
        assert_same_run(folder, undisturbed)
        shutil.rmtree(folder)
    assert after >= first + 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_run_killed_often_with_loading_processes_ends_bit_identical(
    undisturbed: Path, tmp_path: Path, seed: int
) -> None:
    folder = tmp_path / "killed"
    _killed_run(folder, 5, seed, "--workers", str(seed % 3))
    assert_same_run(folder, undisturbed)


def _stop(folder: Path, number: signal.Signals, once: str) -> str:
    """Send a signal as soon as a file is there; returns the log."""
    log = folder.with_suffix(".log")
    process = runs.start(_flags(folder), log)
    _wait(process, lambda: any(folder.glob(once)))
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == STOPPED_STATUS, log.read_text()
    return log.read_text()


@pytest.mark.landing
def test_signals_save_and_exit_with_a_status_of_their_own(
    undisturbed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "stopped"
    # The lock appears before the first update: nothing is saved yet when the signal comes.
    assert "stopped as asked" in _stop(folder, signal.SIGUSR1, ".lock")
    assert list(folder.glob("recovery-*.pth.tar"))
    assert "stopped as asked" in _stop(folder, signal.SIGTERM, "last.pth.tar")
    log = folder.with_suffix(".log")
    assert runs.finish(_flags(folder), log) == 0, log.read_text()
    assert_same_run(folder, undisturbed)


@pytest.mark.landing
def test_a_stop_during_an_evaluation_saves_and_ends_bit_identical(tmp_path: Path) -> None:
    # Batches of one image make the evaluation long; the last update is logged right before it.
    more = ["--validation-batch-size", "1", "--log-interval", "1", "--epochs", "2"]
    more += ["--recovery-interval", "100"]
    folders = tmp_path / "stopped", tmp_path / "whole"
    log = folders[0].with_suffix(".log")
    process = runs.start([*_flags(folders[0]), *more], log)
    _wait(process, lambda: log.exists() and "update 6/12" in log.read_text())
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == STOPPED_STATUS, log.read_text()
    saved = read_checkpoint(next(folders[0].glob("recovery-*.pth.tar")))
    assert (saved["position"]["epoch"], saved["position"]["batch"]) == (0, 12)
    assert not (folders[0] / "summary.csv").exists()
    for folder in folders:
        log = folder.with_suffix(".log")
        assert runs.finish([*_flags(folder), *more], log) == 0, log.read_text()
    assert_same_run(*folders)
