"""A resumed run is the same run, in other processes and on a disk that fills."""

import functools
import os
import re
from pathlib import Path
from typing import Any

import pytest
import runs
import torch
from resumed import FLAGS, Runs, content, rows

from vit_ls.run import read_checkpoint

# More than one process, and optimisers with a memory of their own


def _stopped(train: Runs, name: str, *flags: str) -> None:
    """A run that is stopped within its first epoch, after a recovery checkpoint."""
    assert train(*flags, "--recovery-interval", "2", name=name, before=_stop_after_saving) == 85


def _stop_after_saving() -> None:
    """Ask the run to stop where it first saves."""
    import signal

    from vit_ls.run import retention

    def stop(self: Any, *args: Any, save: Any = retention.Saver.save_recovery) -> Path:
        os.kill(os.getpid(), signal.SIGTERM)
        path: Path = save(self, *args)
        return path

    retention.Saver.save_recovery = stop  # type: ignore[method-assign]  # in a process of its own


@pytest.mark.parametrize("name", ["adahessian", pytest.param("lamb", marks=pytest.mark.slow)])
def test_a_run_stopped_within_an_epoch_is_the_same_run(train: Runs, name: str) -> None:
    flags = [
        "--opt",
        name,
        "--epochs",
        "1",
        "--batch-size",
        "16",
        "--model",
        "test_resnet.r160_in1k",
    ]
    if name == "adahessian":
        flags += ["--opt-kwargs", "update_each=2"]
    train.ends(0, *flags, name="whole")
    _stopped(train, "stopped", *flags)
    log = train.ends(0, *flags, "--recovery-interval", "2", "--resume", "auto", name="stopped")
    assert re.search(r" update (\d+)/\1 ", log), "the last update is not that of the whole run"
    files = [train.path("last.pth.tar", one) for one in ("whole", "stopped")]
    wanted, found = (read_checkpoint(path)["state_dict"] for path in files)
    assert all(torch.equal(wanted[key], found[key]) for key in wanted)
    assert rows(train.path("", "whole")) == rows(train.path("", "stopped"))


def test_after_a_change_of_the_number_of_processes_the_loss_covers_the_whole_epoch(
    train: Runs,
) -> None:
    flags = ["--epochs", "1", "--recovery-interval", "2", "--lr", "1e-9", "--batch-size", "8"]
    flags += ["--drop-path", "0", "--sched", "none", "--no-aug"]
    train.ends(0, *flags, "--batch-size", "16", name="whole")
    argv = [str(train.images), "--output", str(train.output), "--experiment", "two", *FLAGS]
    both = runs.start_two("train", [*argv, *flags], train.log, before=_stop_after_saving)
    for process in both:
        process.join(120)
        assert process.exitcode == 85, train.log.read_text()
    text = train.ends(0, *flags, "--resume", "auto", name="two")
    assert "2 processes became 1" in text
    wanted, found = (float(rows(train.path("", one))[0]["train_loss"]) for one in ("whole", "two"))
    assert found == pytest.approx(wanted, rel=1e-4)


# What the system refuses


def _die_while_saving() -> None:
    """Let a loading process's death be noticed while a checkpoint is written."""
    from vit_ls.run import retention

    def die(_: object, file: Any) -> None:
        file.write(b"begun")
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    retention.torch.save = die


def test_a_dead_loading_process_is_not_a_checkpoint_that_cannot_be_written(train: Runs) -> None:
    assert train("--epochs", "3", "--resume", "auto", before=_die_while_saving) == 1
    text = train.log.read_text()
    assert "DataLoader worker (pid 7) is killed" in text
    assert "cannot be written" not in text
    assert not list(train.path("").glob(".*.part"))


def _limit_files(size: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_is_named(train: Runs) -> None:
    size = train.path("last.pth.tar").stat().st_size
    before = content(train.path(""))
    for part in (0.01, 0.5, 0.99):
        limit = functools.partial(_limit_files, int(size * part))
        last = train.ends(1, "--epochs", "3", "--resume", "auto", before=limit).splitlines()[-1]
        assert last.endswith("last.pth.tar cannot be written: File too large.")
        assert "unexpected pos" not in last
        after = content(train.path(""))
        assert all(after[name] == before[name] for name in before if name.endswith(".tar"))
