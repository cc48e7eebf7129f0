"""The page of some runs: what it shows of each, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vit_ls.config import ConfigError, TrainConfig, dump
from vit_ls.job.machine import provenance
from vit_ls.report import main, read_runs
from vit_ls.run.folder import STARTS, read_starts, write_rows

pytest.importorskip("matplotlib", reason="needs the extra 'train'")

CONFIG = TrainConfig(model="test_vil_ls", epochs=3)


def _run(folder: Path, epochs: int = 3, start: dict[str, Any] | None = None, **more: Any) -> Path:
    """A folder as a run leaves it."""
    folder.mkdir(parents=True)
    (folder / "args.yaml").write_text(dump(replace(CONFIG, **more)))
    rows = [{"epoch": n, "train_loss": 2.0 / (n + 1), "eval_top1": 50.0 + n} for n in range(epochs)]
    if rows:
        rows[0]["eval_top1"] = 99.5
        write_rows(folder / "summary.csv", rows)
        write_rows(folder / "timing.csv", [{"epoch": 0, "images_s": 120.0}])
    if start is not None:
        (folder / STARTS).write_text(json.dumps([start]))
    return folder


def _page(tmp_path: Path, *folders: Path) -> str:
    page = tmp_path / "page.html"
    main([*map(str, folders), "--output", str(page)])
    return page.read_text()


def test_runs_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = _run(tmp_path / "one"), _run(tmp_path / "other", epochs=2, lr=0.25)
    page = _page(tmp_path, one, other)
    for words in ("<td>3</td>", "2 of 3, unfinished", "<td>99.50</td><td>1</td>", "<td>120</td>"):
        assert words in page
    assert "<tr><td>lr</td><td>None</td><td>0.25</td></tr>" in page
    assert page.count("<img") == 3  # loss, accuracy, images per second
    assert "http" not in page
    assert capsys.readouterr().out == f"wrote {tmp_path / 'page.html'}: one, other\n"


def test_a_run_says_what_each_start_was_made_with(tmp_path: Path) -> None:
    start = provenance(torch.device("cpu")) | {"processes": 2, "epoch": 1, "batch": 4}
    start["git"], start["command"] = {"commit": "0123456789abcdef", "changed": True}, ["a", "<b>"]
    page = _page(tmp_path, _run(tmp_path / "one", start=start))
    for words in (
        f"torch {torch.__version__}",
        "2 x ",
        "commit 0123456789ab with changes",
        "epoch 1, batch 4",
        "<code>a &lt;b&gt;</code>",
        "streamed images",
    ):
        assert words in page


def test_runs_of_one_name_are_told_apart_by_the_folders_above(tmp_path: Path) -> None:
    runs = [_run(tmp_path / seed / "vil" / "run") for seed in ("a", "b")]
    assert [run.name for run in read_runs(runs)] == ["a/vil/run", "b/vil/run"]
    with pytest.raises(ConfigError, match="run must be named once"):
        read_runs([runs[0], runs[0].parent / "." / "run"])


def test_a_run_without_an_epoch_stands_beside_others_but_not_alone(tmp_path: Path) -> None:
    empty, full = _run(tmp_path / "empty", epochs=0), _run(tmp_path / "full")
    assert "0 of 3, unfinished" in _page(tmp_path, empty, full)
    with pytest.raises(ConfigError, match=r"nothing to draw: no epoch is finished of empty\.$"):
        main([str(empty), "--output", str(tmp_path / "none.html")])
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda run: run / "absent", "absent: no such folder."),
        (lambda run: run.parent, "holds no run: it has no args.yaml."),
        (lambda run: _with(run, "args.yaml", "lr: [1"), "args.yaml:1: not valid YAML"),
        (
            lambda run: _with(run, "summary.csv", "epoch,lr\n0\n"),
            "summary.csv line 2 must have a v",
        ),
        (lambda run: _with(run, "summary.csv", "lr\n0\n"), "summary.csv line 2 must have an epoch"),
        (lambda run: _with(run, "timing.csv", "epoch,s\n0,x\n"), "timing.csv must hold numbers: "),
        (lambda run: _with(run, "summary.csv", b"epoch\n\xff\n"), "summary.csv cannot be read: "),
    ],
)
def test_what_is_no_run_is_one_line(tmp_path: Path, harm: Any, message: str) -> None:
    folder = harm(_run(tmp_path / "one"))
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")) as error:
        read_runs([folder])
    assert "\n" not in str(error.value)


def _with(run: Path, name: str, content: str | bytes) -> Path:
    (run / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return run


@pytest.mark.parametrize("content", ["", "[", '{"no": "list"}', "[1]"])
def test_starts_that_cannot_be_read_are_not_known(tmp_path: Path, content: str) -> None:
    run = _run(tmp_path / "one")
    (run / STARTS).write_text(content)
    assert read_starts(run / STARTS) == []
    assert "<td>not known</td>" in _page(tmp_path, run)


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    run = _run(tmp_path / "one")
    with pytest.raises(ConfigError, match=r"--output .* cannot be written: "):
        main([str(run), "--output", str(tmp_path / "absent" / "page.html")])
