import csv
import json

import pytest
import runs
import torch

SMALL = [
    *("--samples", "96", "--formula-depth", "3", "--formula-length", "3", "30", "--length", "32"),
    *("--dim", "8", "--hidden", "8", "--batch-size", "16", "--epochs", "2"),
]


def run(tmp_path, *argv, status=0):
    log = tmp_path / "log"
    log.unlink(missing_ok=True)
    argv = [*argv, "--output", str(tmp_path)]
    assert runs.finish(argv, log, script="sequence.cli") == status, log.read_text()
    return log.read_text()


def weights(folder):
    return torch.load(folder / "last.pth.tar", weights_only=True)["state_dict"]


@pytest.mark.parametrize("attention", ["ls", "cst", "full"])
def test_listops_trains_and_reports_its_floor_and_its_depths(tmp_path, attention):
    out = run(tmp_path, "--task", "listops", *SMALL, "--attention", attention, "--experiment", "a")
    report = json.loads((tmp_path / "a" / "report.json").read_text())
    assert f"test accuracy={report['accuracy']:.3f} floor={report['floor']:.3f}" in out
    with (tmp_path / "a" / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    text = (tmp_path / "a" / "report.md").read_text()
    assert "| levels of the formula | accuracy (%) | samples |" in text
    assert "| LS | Transformer-LS, best | 38.36 |" in text
    assert (tmp_path / "a" / "report.png").stat().st_size > 1000


def test_a_run_in_two_halves_ends_as_a_whole_one(tmp_path):
    common = ["--task", "listops", *SMALL]
    run(tmp_path, *common, "--experiment", "whole")
    run(tmp_path, *common, "--experiment", "half", "--stop-epoch", "1")
    run(tmp_path, *common, "--experiment", "half", "--resume", "auto")
    whole, half = (weights(tmp_path / name) for name in ("whole", "half"))
    assert whole.keys() == half.keys()
    assert all(torch.equal(whole[k], half[k]) for k in whole)


def test_bytes_reports_bits_and_writes_text(tmp_path):
    out = run(
        tmp_path,
        *("--task", "bytes", "--length", "32", "--samples", "64", "--dim", "8", "--depth", "1"),
        *("--num-heads", "2", "--hidden", "8", "--window", "8", "--segment", "4", "--epochs", "1"),
        *("--epoch-updates", "2", "--warmup-epochs", "0", "--experiment", "b"),
        *("--generate", "20", "--prompt", "def "),
    )
    report = json.loads((tmp_path / "b" / "report.json").read_text())
    assert 6 < report["bits_per_byte"] < 9
    assert f"test bits_per_byte={report['bits_per_byte']:.3f}" in out
    sample = (tmp_path / "b" / "sample.txt").read_text()
    assert sample.startswith("def ")
    assert "PSF License" in report["data"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "listops", "--hflip", "0.5"], "sequence tasks have no use for --hflip."),
        (["--task", "chess"], "--task must be one of"),
        (["--task", "listops", "--attention", "window"], "--attention window is for --task bytes"),
        (["--task", "text"], "--data-dir must hold the IMDb reviews"),
        (["--task", "digits", "--length", "63"], "--length must be at least 64"),
        (["--task", "digits", "--batch-size", "2000"], "--batch-size must be at most the 1433"),
        (["--task", "digits", "--num-heads", "3"], "--dim must be even and divisible"),
        (["--task", "digits", "--attention", "cst", "--pooling", "cls"], "--pooling cls"),
        (["--task", "digits", "--generate", "9"], "--generate is for --task bytes"),
        (["--task", "listops", "--resume", "auto"], "--resume auto needs --experiment NAME"),
    ],
)
def test_unusable_settings_are_one_line_and_status_2(tmp_path, argv, message):
    out = run(tmp_path, *argv, status=2)
    assert message in out
    assert "Traceback" not in out


def test_a_run_is_not_continued_on_another_task(tmp_path):
    run(tmp_path, "--task", "listops", *SMALL, "--experiment", "a")
    last = str(tmp_path / "a" / "last.pth.tar")
    out = run(tmp_path, "--task", "digits", "--dim", "8", "--resume", last, status=2)
    assert "--model 'listops_ls' -> 'digits_ls' cannot change in a run" in out
    out = run(tmp_path, "--task", "listops", *SMALL, "--rank", "1", "--resume", last, status=2)
    assert "--rank 2 -> 1 would make it another run" in out
