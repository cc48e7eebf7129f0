"""A resumed run goes on where it stood; what cannot be continued is refused, and stays as it is."""

import shutil
from typing import Any

import pytest
import torch
import yaml
from resumed import Runs, content, damage, rows
from timm import create_model
from timm.models import load_checkpoint, resume_checkpoint

from vit_ls.run import read_checkpoint
from vit_ls.run.folder import STARTS, read_starts


def _refused(train: Runs, *more: str, **kwargs: Any) -> str:
    """The line that refuses a run, after which its folders are as they were."""
    before = content(train.output)
    lines = train.ends(2, *more, **kwargs).splitlines()
    train.log.unlink()
    before.pop("log", None)
    assert content(train.output) == before
    assert lines[-1].startswith("train.py: ")
    return lines[-1]


# What cannot be continued


def test_another_model_is_refused_and_nothing_is_touched(train: Runs) -> None:
    line = _refused(train, "--epochs", "3", "--resume", "auto", "--model", "test_cvt_ls")
    for name in ("last", "model_best", "checkpoint-0", "checkpoint-1"):
        assert f"{name}.pth.tar is of another run: its model is 'test_vil_ls'" in line
    named = ("--resume", str(train.path("last.pth.tar")))
    flags = ("--epochs", "3", "--model", "test_cvt_ls", "--resume-changed")
    line = _refused(train, *flags, *named, name="new")
    assert "--model 'test_vil_ls' -> 'test_cvt_ls' cannot change in a run" in line


def test_a_folder_without_a_good_checkpoint_is_refused_and_nothing_is_touched(train: Runs) -> None:
    damage(train.path("last.pth.tar"))
    train.path("checkpoint-0.pth.tar").write_bytes(b"")
    torch.save({"weight": torch.zeros(2)}, train.path("other.pth.tar"))
    line = _refused(train, "--epochs", "3", "--resume", "auto")
    assert "last.pth.tar cannot be read: archive/" in line
    assert "checkpoint-0.pth.tar cannot be read" in line
    assert "other.pth.tar is not a training checkpoint" in line


def test_a_summary_without_checkpoints_is_not_started_over(train: Runs) -> None:
    for path in train.path("").glob("*.pth.tar"):
        path.unlink()
    assert "has a summary.csv and no checkpoint" in _refused(train, "--resume", "auto")


@pytest.mark.slow
def test_a_folder_without_any_checkpoint_starts_the_run(train: Runs) -> None:
    shutil.rmtree(train.path(""))
    train.path("").mkdir()
    text = train.ends(0, "--epochs", "1", "--resume", "auto")
    assert "continuing" not in text
    assert len(rows(train.path(""))) == 1


def test_a_damaged_newest_checkpoint_is_passed_over_and_the_run_goes_on_before_it(
    train: Runs,
) -> None:
    best = read_checkpoint(train.path("checkpoint-1.pth.tar"))["state_dict"]
    damage(train.path("last.pth.tar"))
    text = train.ends(0, "--epochs", "2", "--resume", "auto")
    assert f"passed over: {train.path('last.pth.tar')} cannot be read: archive/" in text
    assert f"continuing from {train.path('checkpoint-0.pth.tar')}: epoch 1, batch 0" in text
    again = read_checkpoint(train.path("last.pth.tar"))["state_dict"]
    assert all(torch.equal(again[name], best[name]) for name in best)
    for path in train.path("").glob("*.pth.tar"):
        read_checkpoint(path)


@pytest.mark.slow
def test_two_states_stand_whatever_the_history(train: Runs) -> None:
    train.ends(0, "--epochs", "4", "--checkpoint-hist", "1", name="short")
    files = train.path("", "short").glob("*.pth.tar")
    assert len({path.stat().st_ino for path in files if read_checkpoint(path)}) >= 2
    damage(train.path("last.pth.tar", "short"))
    flags = ["--epochs", "4", "--checkpoint-hist", "1", "--resume", "auto"]
    assert "epoch 3, batch 0" in train.ends(0, *flags, name="short")


def test_an_older_checkpoint_of_the_folder_does_not_take_the_newer_ones_away(train: Runs) -> None:
    older = ("--resume", str(train.path("checkpoint-0.pth.tar")))
    line = _refused(train, "--epochs", "3", *older)
    assert "is further in the same run and would be lost" in line
    newest = ("--resume", str(train.path("last.pth.tar")), "--epochs", "3")
    assert "--start-epoch 1 cannot change where" in _refused(train, *newest, "--start-epoch", "1")
    assert "epoch 2, batch 0" in train.ends(0, *newest)
    assert [row["epoch"] for row in rows(train.path(""))] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--resume", "no/file.pth.tar"), "--resume: no/file.pth.tar cannot be read"),
        (("--resume", "auto", "--start-epoch", "1"), "need --resume FILE"),
        (("--resume", "auto", "--no-resume-opt"), "need --resume FILE"),
        (("--no-resume-opt",), "--no-resume-opt needs --resume"),
        (("--resume-changed",), "--resume-changed needs --resume"),
        (("--experiment", ".."), "--experiment must be the plain name of a folder, got '..'"),
        (("--start-epoch", "2", "--epochs", "2"), "nothing is left to train"),
    ],
)
def test_unusable_flags_are_one_line_and_make_no_folder(
    train: Runs, flags: tuple[str, ...], message: str
) -> None:
    assert message in _refused(train, *flags, name="new")


def test_a_folder_that_cannot_be_written_to_is_one_line(train: Runs) -> None:
    # Not even root makes files there.
    text = train.ends(2, "--output", "/sys", name="kernel")
    assert "train.py: /sys/kernel cannot be written to: " in text.splitlines()[-1]


# What may change


def test_settings_that_may_change_take_effect_and_are_shown(train: Runs) -> None:
    flags = ["--resume", "auto", "--epochs", "3", "--weight-decay", "0.3", "--lr", "5e-4"]
    text = train.ends(0, *flags, "--sched", "none", "--log-interval", "1")
    for line in (
        "--epochs 2 -> 3",
        "--weight-decay 2e-05 -> 0.3",
        "--lr 0.001 -> 0.0005",
        "--sched 'cosine' -> 'none'",
        "--log-interval 50 -> 1",
    ):
        assert f"\n{line}\n" in f"\n{text}"
    groups = read_checkpoint(train.path("last.pth.tar"))["optimizer"]["param_groups"]
    assert sorted({group["weight_decay"] for group in groups}) == [0.0, 0.3]
    assert {group["lr"] for group in groups} == {5e-4}
    assert float(rows(train.path(""))[-1]["lr"]) == 5e-4
    stored = yaml.safe_load(train.path("args.yaml").read_text())
    assert (stored["epochs"], stored["weight_decay"], stored["sched"]) == (3, 0.3, "none")


def test_settings_of_another_run_are_refused_unless_that_is_allowed(train: Runs) -> None:
    flags = ["--resume", "auto", "--epochs", "3", "--opt-betas", "0.8", "0.9", "--seed", "7"]
    flags += ["--batch-size", "16", "--reprob", "0.5"]
    line = _refused(train, *flags)
    assert "--opt-betas None -> [0.8, 0.9]" in line
    assert "--batch-size 32 -> 16" in line
    assert "--reprob 0.0 -> 0.5" in line
    assert "--seed 42 -> 7" in line
    assert " would make it another run; --resume-changed allows that" in line
    assert "--seed 42 -> 7" in train.ends(0, *flags, "--resume-changed")
    content = read_checkpoint(train.path("last.pth.tar"))
    assert [*content["optimizer"]["param_groups"][0]["betas"]] == [0.8, 0.9]
    assert content["position"]["updates"] == 2 * 3 + 6
    # The next one is a run of these settings.
    train.ends(0, *flags, "--epochs", "4")


def test_each_start_of_a_run_is_written_down(train: Runs) -> None:
    train.ends(0, "--epochs", "3", "--resume", "auto")
    first, second = read_starts(train.path(STARTS))
    assert (first["epoch"], second["epoch"], second["processes"]) == (0, 2, 1)
    assert first["data"] == second["data"]
    assert first["data"]["images"] == 96
    assert first["versions"]["torch"] == torch.__version__
    assert first.keys() == second.keys() >= {"command", "git", "hardware", "time"}


def test_data_may_move_but_not_change(train: Runs) -> None:
    moved = train.output / "moved"
    shutil.copytree(train.images, moved)
    flags = ["--data-dir", str(moved), "--epochs", "3", "--resume", "auto"]
    train.images, one = moved, sorted((moved / "train" / "3").iterdir())[0]
    renamed = one.rename(one.with_name("other.png"))
    assert "the 96 training images have other names or sizes than" in _refused(train, *flags)
    renamed.unlink()
    assert "there are 95 training images, the run had 96" in _refused(train, *flags)
    assert f" -> {str(moved)!r}" in train.ends(0, *flags, "--resume-changed")


@pytest.mark.slow
def test_weight_decay_can_be_switched_on(train: Runs) -> None:
    train.ends(0, "--epochs", "1", "--weight-decay", "0", name="plain")
    before = read_checkpoint(train.path("last.pth.tar", "plain"))["optimizer"]
    assert len(before["param_groups"]) == 1
    flags = ["--resume", "auto", "--weight-decay", "0.1", "--epochs", "2"]
    train.ends(0, *flags, name="plain")
    after = read_checkpoint(train.path("last.pth.tar", "plain"))["optimizer"]
    assert sorted(group["weight_decay"] for group in after["param_groups"]) == [0.0, 0.1]
    assert {int(one["step"]) for one in after["state"].values()} == {6}


@pytest.mark.slow
def test_another_optimiser_is_refused_unless_it_starts_anew(train: Runs) -> None:
    flags = ["--epochs", "3", "--opt", "sgd"]
    for more in ((), ("--resume-changed",)):
        line = _refused(train, "--resume", "auto", *flags, *more)
        assert "--opt 'adamw' -> 'sgd' cannot change in a run: the optimiser's state is of" in line
    named = ["--resume", str(train.path("last.pth.tar")), "--no-resume-opt", "--resume-changed"]
    assert "epoch 2, batch 0" in train.ends(0, *flags, *named)
    assert len(rows(train.path(""))) == 3


# What is continued elsewhere


def test_a_file_of_another_folder_is_continued_in_a_new_one(train: Runs) -> None:
    before = content(train.path(""))
    named = ("--resume", str(train.path("checkpoint-0.pth.tar")), "--epochs", "2")
    train.ends(0, *named, name="branch")
    assert content(train.path("")) == before
    assert train.path("summary.csv", "branch").read_bytes() == before["summary.csv"][2]
    kept = {path.name for path in train.path("", "branch").glob("*-*.pth.tar")}
    assert kept == {"checkpoint-1.pth.tar"}
    wanted, found = (
        read_checkpoint(train.path("last.pth.tar", name)) for name in ("run", "branch")
    )
    weights = wanted["state_dict"]
    assert all(torch.equal(weights[name], found["state_dict"][name]) for name in weights)


@pytest.mark.slow
def test_weights_alone_start_at_the_epoch_that_is_asked_for(train: Runs) -> None:
    named = ("--resume", str(train.path("last.pth.tar")), "--no-resume-opt", "--epochs", "2")
    train.ends(0, *named, "--start-epoch", "0", name="again")
    assert [row["epoch"] for row in rows(train.path("", "again"))] == ["0", "1"]
    state = read_checkpoint(train.path("last.pth.tar", "again"))["optimizer"]["state"]
    assert {int(one["step"]) for one in state.values()} == {6}
    assert "nothing is left to train" in _refused(train, *named, name="none")


def test_a_run_can_start_at_a_later_epoch_of_its_schedule(train: Runs) -> None:
    train.ends(0, "--start-epoch", "1", "--epochs", "2", name="late")
    late, whole = rows(train.path("", "late")), rows(train.path(""))
    assert [row["epoch"] for row in late] == ["1"]
    assert late[0]["lr"] == whole[1]["lr"]


def test_timms_script_could_go_on_with_our_checkpoint(train: Runs) -> None:
    path = str(train.path("last.pth.tar"))
    model = create_model("test_vil_ls", num_classes=10, img_size=16)
    assert resume_checkpoint(model, path) == 2
    load_checkpoint(model, path)


@pytest.mark.slow
def test_a_checkpoint_of_timms_script_is_continued(train: Runs) -> None:
    import argparse

    content = read_checkpoint(train.path("last.pth.tar"))
    names = ("state_dict", "optimizer", "epoch", "arch", "version")
    timms = {name: content[name] for name in names}
    timms |= {"args": argparse.Namespace(model="test_vil_ls", batch_size=64)}
    torch.save(timms, train.output / "timm.pth.tar")
    flags = ["--resume", str(train.output / "timm.pth.tar"), "--epochs", "3"]
    text = train.ends(0, *flags, name="new")
    assert "its settings are not compared" in text
    assert [row["epoch"] for row in rows(train.path("", "new"))] == ["2"]
