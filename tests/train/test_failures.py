"""What goes wrong in a run is named, in one line, and leaves the last good checkpoint."""

import csv
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import runs
import torch
from torch import Tensor

import train
from vit_ls.config import ConfigError
from vit_ls.errors import CheckpointError, RunFailedError
from vit_ls.run import read_checkpoint
from vit_ls.train.update import Updater

FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--workers", "0", "--opt", "adamw"),
    *("--lr", "1e-3", "--batch-size", "32", "--experiment", "run"),
]


def _main(images: Path, output: Path, *more: str) -> Path:
    train.main([str(images), "--output", str(output), *FLAGS, *more])
    return output / "run"


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "summary.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def _bad_losses(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The calls of the loss that give NaN, counted from 0."""
    bad: set[int] = set()
    calls = iter(range(10**6))
    compute = Updater._loss

    def loss(self: Updater, inputs: Tensor, targets: Tensor) -> Tensor:
        value = compute(self, inputs, targets)
        return value * float("nan") if next(calls) in bad else value

    monkeypatch.setattr(Updater, "_loss", loss)
    yield bad


def test_a_nonfinite_loss_stops_the_run_and_names_the_place(
    digit_folder: Path, tmp_path: Path, _bad_losses: set[int]
) -> None:
    _bad_losses.add(4)
    with pytest.raises(
        RunFailedError, match=r"not finite .* update 5 \(epoch 1, batch 2\), lr "
    ) as e:
        _main(digit_folder, tmp_path, "--epochs", "3")
    last = tmp_path / "run" / "last.pth.tar"
    assert str(last) in str(e.value)
    assert "\n" not in str(e.value)
    weights = read_checkpoint(last)["state_dict"].values()
    assert all(torch.isfinite(weight).all() for weight in weights)


def test_skipped_updates_change_nothing_and_are_counted(
    digit_folder: Path, tmp_path: Path, _bad_losses: set[int]
) -> None:
    _bad_losses.update({1, 4})
    folder = _main(digit_folder, tmp_path, "--epochs", "2", "--skip-nonfinite", "2")
    assert [row["skipped"] for row in _rows(folder)] == ["1", "2"]
    position = read_checkpoint(folder / "last.pth.tar")["position"]
    assert position["updates"] == 2 * 3 - 2


def test_unreadable_images_are_named_replaced_and_counted(
    digit_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = tmp_path / "images"
    shutil.copytree(digit_folder, images)
    broken = [sorted((images / split / "3").iterdir())[0] for split in ("train", "validation")]
    broken[0].write_bytes(broken[0].read_bytes()[:60])
    broken[1].write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        folder = _main(images, tmp_path, "--epochs", "1")
    assert all(str(path) in caplog.text for path in broken)
    row = _rows(folder)[0]
    assert (row["unreadable"], row["eval_unreadable"]) == ("1", "1")
    assert read_checkpoint(folder / "last.pth.tar")["unreadable"]
    hits = float(row["eval_top1"]) * 0.37
    assert hits == pytest.approx(round(hits))  # still over all 37 held-out images


@pytest.mark.parametrize(("broken", "limit"), [(1, 0), (3, 2)])
def test_too_many_unreadable_images_stop_the_run(
    digit_folder: Path, tmp_path: Path, broken: int, limit: int
) -> None:
    images = tmp_path / "images"
    shutil.copytree(digit_folder, images)
    for label in range(broken):
        sorted((images / "train" / str(label)).iterdir())[0].write_bytes(b"")
    expected = (RunFailedError, ConfigError)
    with pytest.raises(expected, match=f"--max-unreadable {limit} is exceeded: .*png"):
        _main(images, tmp_path, "--max-unreadable", str(limit))


def test_a_full_disk_keeps_the_last_good_checkpoint(digit_folder: Path, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    argv = [str(digit_folder), "--output", str(tmp_path), *FLAGS]
    assert runs.finish([*argv, "--epochs", "1"], log) == 0, log.read_text()
    size = (folder / "last.pth.tar").stat().st_size
    before = read_checkpoint(folder / "last.pth.tar")
    more = [*argv, "--epochs", "2", "--resume", "auto"]
    assert runs.finish(more, log, file_limit=size // 2) == 1
    assert "cannot be written" in log.read_text().splitlines()[-1]
    assert read_checkpoint(folder / "last.pth.tar")["position"] == before["position"]
    assert not list(folder.glob(".*.part"))
    assert runs.finish(more, log) == 0, log.read_text()
    assert read_checkpoint(folder / "last.pth.tar")["epoch"] == 1


def test_damaged_and_foreign_checkpoints_are_named_and_passed_over(
    digit_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _main(digit_folder, tmp_path, "--epochs", "2")
    for name in ("last", "model_best", "checkpoint-1"):
        path = folder / f"{name}.pth.tar"
        content = path.read_bytes()
        path.unlink()  # the names may be links to one file
        path.write_bytes(content[: len(content) * 2 // 3])
    torch.save({"weight": torch.zeros(2)}, folder / "other.pth.tar")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        _main(digit_folder, tmp_path, "--epochs", "2", "--resume", "auto")
    for name in ("last", "checkpoint-1", "other"):
        assert f"passed over: {folder / name}.pth.tar" in caplog.text
    assert f"continuing from {folder / 'checkpoint-0.pth.tar'}: epoch 1, batch 0" in caplog.text
    assert [row["epoch"] for row in _rows(folder)] == ["0", "1"]


def test_damage_inside_a_checkpoint_is_found(digit_folder: Path, tmp_path: Path) -> None:
    path = _main(digit_folder, tmp_path, "--epochs", "1") / "last.pth.tar"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64 * [255])
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"last.pth.tar cannot be read"):
        read_checkpoint(path)


def test_a_checkpoint_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    torch.save({"state_dict": {}, "epoch": 0, "trap": Trap()}, tmp_path / "trap.pth.tar")
    with pytest.raises(CheckpointError, match=r"trap.pth.tar cannot be read"):
        read_checkpoint(tmp_path / "trap.pth.tar")
    assert not (tmp_path / "sprung").exists()


def test_runs_do_not_share_a_folder(digit_folder: Path, tmp_path: Path) -> None:
    folder = _main(digit_folder, tmp_path, "--epochs", "1")
    before = (folder / "summary.csv").read_bytes()
    with pytest.raises(ConfigError, match="holds a run: continue it with --resume auto"):
        _main(digit_folder, tmp_path, "--epochs", "1")
    assert (folder / "summary.csv").read_bytes() == before


def test_a_folder_in_use_is_refused(digit_folder: Path, tmp_path: Path) -> None:
    argv = [str(digit_folder), "--output", str(tmp_path), *FLAGS, "--resume", "auto"]
    log = tmp_path / "log"
    process = runs.start([*argv, "--epochs", "500"], log)
    while not (tmp_path / "run" / "last.pth.tar").exists():
        process.join(0.05)
        assert process.exitcode is None, log.read_text()
    try:
        with pytest.raises(ConfigError, match="is in use by another run"):
            _main(digit_folder, tmp_path, "--epochs", "1", "--resume", "auto")
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--num-classes", "5"],
            "must be at least the 10 classes of the data, got 5",
        ),
        (["--val-split", "train/1"], "the splits must have the same classes, got 10 and 1"),
        (["--class-map", "no/file"], "--class-map no/file: no such file"),
        (["--batch-size", "97"], "the training split must fill an update"),
    ],
)
def test_data_that_does_not_fit_is_refused_before_the_model_is_built(
    digit_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    message: str,
) -> None:
    if "--batch-size" not in flags:
        monkeypatch.setattr(train, "create_model", None)
    with pytest.raises(ConfigError, match=message):
        _main(digit_folder, tmp_path, *flags)
