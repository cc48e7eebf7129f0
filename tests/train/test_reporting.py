"""What a run tells of itself while it trains: log lines, tables, events, a trace."""

import csv
import gzip
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import runs

import train
from vit_ls.data.loaders import TrainBatches
from vit_ls.style import picture
from vit_ls.train import reporting

FLAGS = [
    *("--model", "test_vil_ls", "--img-size", "16", "--workers", "0", "--opt", "adamw"),
    *("--lr", "1e-3", "--batch-size", "8", "--experiment", "run"),
]


def _run(images: Path, folder: Path, *flags: str) -> str:
    log = folder / "log"
    argv = [str(images), "--output", str(folder), *FLAGS, *flags]
    assert runs.finish(argv, log) == 0, log.read_text()
    return log.read_text()


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open() as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def _shown(log: str, name: str) -> list[float]:
    """The values of a name in the log lines, epochs' aside."""
    lines = [line for line in log.splitlines() if re.match(r"epoch \d", line)]
    return [float(value) for line in lines for value in re.findall(rf"{name}=(\S+)", line)]


def test_the_log_interval_counts_updates(digit_folder: Path, tmp_path: Path) -> None:
    # 12 batches, 5 of them in an update: updates of 5, 5 and 2.
    flags = ["--epochs", "2", "--grad-accum-steps", "5", "--log-interval", "2"]
    log = _run(digit_folder, tmp_path, *flags)
    assert re.findall(r"epoch (\d) update (\d)/6", log) == [
        ("0", "2"),
        ("0", "3"),
        ("1", "5"),
        ("1", "6"),
    ]


@pytest.mark.parametrize("flags", [["--clip-grad", "0.5"], ["--log-grad-norm"], []])
def test_the_gradient_norm_is_in_log_summary_and_events(
    digit_folder: Path, tmp_path: Path, flags: list[str]
) -> None:
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs the extra 'log'"
    )
    log = _run(digit_folder, tmp_path, "--epochs", "1", "--log-tensorboard", *flags)
    accumulator = events.EventAccumulator(str(tmp_path / "run"))
    accumulator.Reload()
    names = {"step/grad_norm", "epoch/grad_norm"}
    row = _rows(tmp_path / "run" / "summary.csv")[0]
    if not flags:
        assert not names & set(accumulator.Tags()["scalars"])
        assert "grad_norm" not in log
        assert "grad_norm" not in row
        return
    # One interval is the whole epoch: the same mean everywhere, before clipping.
    shown = _shown(log, "grad_norm")
    assert shown == [pytest.approx(row["grad_norm"], rel=1e-3)]
    assert row["grad_norm"] > 0.5
    for name in names:
        (event,) = accumulator.Scalars(name)
        assert event.value == pytest.approx(row["grad_norm"], rel=1e-6)


def test_a_service_that_refuses_ends_no_run(
    digit_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("no run 'gone' in\nthis project")

    wandb = SimpleNamespace(login=lambda: True, init=refuse)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    flags = ["--epochs", "1", "--log-wandb", "--wandb-resume-id", "gone", "--device", "cpu"]
    with caplog.at_level("WARNING", "vit_ls"):
        train.main([str(digit_folder), "--output", str(tmp_path), *FLAGS, *flags])
    assert "best val_top1=" in capsys.readouterr().out
    (said,) = [record.message for record in caplog.records if "Weights & Biases" in record.message]
    assert said.endswith("goes on without: no run 'gone' in this project")
    assert not (tmp_path / "run" / "wandb-run").exists()


def test_a_stream_shorter_than_it_said_has_its_whole_loss(
    digit_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(name: str) -> float:
        train.main([str(digit_folder), "--output", str(tmp_path / name), *FLAGS, "--epochs", "1"])
        return float(_rows(tmp_path / name / "run" / "summary.csv")[0]["train_loss"])

    wanted = loss("whole")
    length = TrainBatches.__len__
    monkeypatch.setattr(TrainBatches, "__len__", lambda self: length(self) + 2)
    assert loss("short") == wanted


def test_times_have_a_table_of_their_own(digit_folder: Path, tmp_path: Path) -> None:
    log = _run(digit_folder, tmp_path, "--epochs", "2", "--stop-epoch", "1")
    before = (tmp_path / "run" / "timing.csv").read_text()
    log = _run(digit_folder, tmp_path, "--epochs", "2", "--resume", "auto")
    table = tmp_path / "run" / "timing.csv"
    assert table.read_text().startswith(before)
    rows = _rows(table)
    assert [row["epoch"] for row in rows] == [0, 1]
    assert all(0 <= row["data_wait"] <= 1 for row in rows)
    assert all(0 < 96 / row["images_s"] < row["seconds"] for row in rows)
    assert "data_wait=" in log.splitlines()[-2]
    assert not {"data_wait", "seconds"} & _rows(tmp_path / "run" / "summary.csv")[0].keys()


def test_a_profile_is_a_trace_in_the_runs_folder(digit_folder: Path, tmp_path: Path) -> None:
    log = _run(digit_folder, tmp_path, "--epochs", "2", "--profile", "3")
    path = tmp_path / "run" / "trace.json.gz"
    assert f"{path} holds the trace" in log
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    steps = {event["name"] for event in events if "ProfilerStep#" in event.get("name", "")}
    assert steps == {"ProfilerStep#10", "ProfilerStep#11", "ProfilerStep#12"}
    assert any(event.get("name") == "aten::addmm" for event in events)


def test_a_run_too_short_for_its_profile_says_so(digit_folder: Path, tmp_path: Path) -> None:
    log = _run(digit_folder, tmp_path, "--epochs", "1", "--profile", "7")
    assert "--profile: the run ended 5 updates before its trace." in log


def test_two_processes_log_the_loss_of_both_and_pass_few_numbers(
    digit_folder: Path, tmp_path: Path
) -> None:
    """The log shows the mean over both; what goes around for it does not grow with the images."""
    log = tmp_path / "log"
    argv = [str(digit_folder), "--output", str(tmp_path), *FLAGS, "--epochs", "1"]
    processes = runs.start_two("rank_cases", ["training", *argv], log)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0], log.read_text()
    row = _rows(tmp_path / "run" / "summary.csv")[0]
    assert _shown(log.read_text(), "loss") == [pytest.approx(row["train_loss"], rel=1e-3)]
    largest = int(re.findall(r"largest control message: (\d+)", log.read_text())[0])
    assert largest <= 5


def test_unreadable_images_of_two_processes_are_counted_once(
    digit_folder: Path, tmp_path: Path
) -> None:
    images, log = tmp_path / "images", tmp_path / "log"
    shutil.copytree(digit_folder, images)
    for label in "27":
        sorted((images / "train" / label).iterdir())[0].write_bytes(b"")
    argv = [str(images), "--output", str(tmp_path), *FLAGS, "--epochs", "3"]
    processes = runs.start_two("train", argv, log)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0], log.read_text()
    # Each process meets both images in some epoch.
    assert _rows(tmp_path / "run" / "summary.csv")[-1]["unreadable"] == 2


def test_curves_say_what_was_reached_and_name_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, list[Any]]] = []

    @contextmanager
    def kept(content: io.BytesIO, title: str, **how: Any) -> Iterator[list[Any]]:
        with picture(content, title, **how) as panels:
            drawn.append((title, panels))
            yield panels

    monkeypatch.setattr(reporting, "picture", kept)
    rows = [
        {"epoch": 0, "train_loss": 2.0, "eval_loss": 1.5, "eval_top1": 60.0},
        {"epoch": 1, "train_loss": 1.0, "eval_loss": 1.4, "eval_top1": 55.0},
    ]
    for some in (rows, [{"epoch": 0, "train_loss": 2.0}]):
        content = io.BytesIO()
        reporting._curves(some, content)
        assert content.getvalue().startswith(b"\x89PNG")
    (title, (loss, top1)), (alone, (_, empty)) = drawn
    assert title == "After 2 epochs: held-out top-1 55.00 %, 60.00 % at best"
    assert [text.get_text() for text in loss.texts] == ["train", "eval"]
    assert [text.get_text() for text in top1.texts] == ["eval"]
    assert loss.lines[1].get_color() == top1.lines[0].get_color()
    assert alone == "Training loss 2 after 1 epoch"
    assert not empty.lines
