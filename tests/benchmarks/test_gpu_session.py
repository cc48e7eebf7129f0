"""A session on a GPU, rehearsed, and what it does where something fails."""

import csv
import sys
from dataclasses import replace

import pytest
import torch

from benchmarks.gpu import __main__ as session
from benchmarks.gpu import kernels, models, page, plan, worker
from benchmarks.speed.subjects import Subject


@pytest.fixture
def here(tmp_path):
    return plan.Plan(tmp_path, "cpu", (32,), ("float32",), rehearse=True)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "there is no GPU; --rehearse runs everything on the CPU, with tiny shapes.\n"),
        (["--rehearse", "--minutes", "0"], "--minutes must be positive, got 0.\n"),
        (["--rehearse"], "--out must be a folder that is new or empty, got "),
    ],
)
def test_what_cannot_begin_is_one_line(flags, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "of another session").touch()
    assert session.main(["--out", str(tmp_path), *flags]) == 2
    assert capsys.readouterr().err.startswith(f"benchmarks.gpu: {said}")
    assert [file.name for file in tmp_path.iterdir()] == ["of another session"]


def slice_of(*outcomes):
    """A slice whose cases give a row of a number, or raise."""

    def rows(outcome):
        if isinstance(outcome, Exception):
            raise outcome
        yield {"number": str(outcome)}

    def cases(_):
        for number, outcome in enumerate(outcomes):
            yield plan.Case(f"case {number}", lambda outcome=outcome: rows(outcome))

    return plan.Slice("numbers", 1.0, ("number",), cases)


def test_what_fails_is_named_and_the_others_go_on(here, tmp_path):
    slice_ = slice_of(1, RuntimeError("no\nmemory"), 3)
    assert plan.take("a", slice_, here, first=0, seconds=60) == plan.DONE
    assert rows(tmp_path / "a.csv") == [{"number": "1"}, {"number": "3"}]
    assert rows(tmp_path / "failed.csv") == [
        {"slice": "a", "case": "case 1", "error": "RuntimeError: no memory"}
    ]


def test_nothing_is_begun_after_the_time_and_what_is_left_is_named(here, tmp_path):
    assert plan.take("a", slice_of(1, 2), here, first=0, seconds=-1) == plan.DONE
    assert not (tmp_path / "a.csv").exists()
    assert rows(tmp_path / "failed.csv")[0]["case"] == "case 0 and what follows"


def test_a_device_that_is_lost_ends_the_process_after_its_name_is_noted(here, monkeypatch):
    monkeypatch.setattr(plan, "_answers", lambda _: False)
    slice_ = slice_of(1, RuntimeError("illegal memory access"), 3)
    assert plan.take("a", slice_, here, first=0, seconds=60) == plan.POISONED
    assert plan.at_hand(here).read_text() == "1 case 1"


def test_after_a_process_that_died_another_takes_the_next_case(here, tmp_path, monkeypatch):
    code = """
import os, pathlib, sys
folder, first = pathlib.Path(sys.argv[1]), int(sys.argv[2])
for number in range(first, 4):
    (folder / ".case").write_text(f"{number} case {number}")
    if number == 1:
        os.abort()
    with (folder / "taken").open("a") as file:
        file.write(f"{number} ")
"""
    monkeypatch.setattr(
        session,
        "command",
        lambda _, __, first, ___: [sys.executable, "-c", code, tmp_path, str(first)],
    )
    session.run_slice(here, "a", 60)
    assert (tmp_path / "taken").read_text() == "0 2 3 "
    assert rows(tmp_path / "failed.csv") == [
        {"slice": "a", "case": "case 1", "error": "the process ended with status -6."}
    ]


def test_a_case_that_hangs_is_ended_with_its_process(here, tmp_path, monkeypatch):
    code = """
import pathlib, sys, time
pathlib.Path(sys.argv[1], ".case").write_text("0 case 0")
time.sleep(60)
"""
    monkeypatch.setattr(session, "command", lambda *_: [sys.executable, "-c", code, tmp_path])
    monkeypatch.setattr(session, "GRACE", 2.0)
    session.run_slice(here, "a", 0)
    assert rows(tmp_path / "failed.csv")[0]["error"] == "the process took too long."


@pytest.mark.parametrize(
    ("dtype", "said"),
    [("half a byte", "a dtype must be one of torch's"), ("int8", "a dtype must be one of float32")],
)
def test_a_dtype_that_cannot_be_measured_is_one_line_a_case(here, dtype, said):
    (*_, case) = kernels.cases(replace(here, dtypes=("float32", dtype)))
    with pytest.raises(ValueError, match=said):
        list(case.rows())


def test_a_model_that_cannot_take_a_size_is_named_and_the_others_go_on(here, tmp_path, monkeypatch):
    small = {"vil_ls_small": Subject("test_vil_ls"), "deit_small": Subject("vit_tiny_patch16_224")}
    monkeypatch.setattr(models, "SUBJECTS", small)
    monkeypatch.setattr(models, "flops_of", lambda *_: 1e9)
    forward, *_ = models.cases(replace(here, sizes=(15,)))
    (row,) = forward.rows()
    assert (row["model"], row["size"], row["batch"]) == ("vil_ls_small", "15", "1")
    (failed,) = rows(tmp_path / "failed.csv")
    assert failed["case"] == "deit_small 15 forward"


def test_a_size_that_is_none_is_one_line(here):
    case, *_ = models.cases(replace(here, sizes=(0,)))
    with pytest.raises(ValueError, match="a size must be positive, got 0"):
        list(case.rows())


def test_a_share_of_an_unknown_peak_is_withheld(here, monkeypatch):
    assert models.mfu(here, 1e12) == ""
    names = iter(["NVIDIA H200", "Another GPU"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: next(names))
    on_gpu = replace(here, device="cuda")
    assert models.mfu(on_gpu, 494.5e12) == "0.500"
    assert models.mfu(on_gpu, 494.5e12) == ""


def test_the_kernel_stays_where_it_is_faster_and_goes_where_it_nowhere_is():
    slower, faster = {"triton": 2.0, "tiled": 1.0}, {"triton": 1.0, "tiled": 2.0}
    assert page.verdict([slower, faster]).endswith("in 1 of 2 cases: it stays, for those.")
    assert page.verdict([slower]).endswith("in 0 of 1 cases: it goes.")
    assert page.verdict([{"tiled": 1.0}]).endswith("nothing is decided.")


@pytest.mark.slow
def test_a_rehearsal_takes_every_slice_without_a_gpu(tmp_path):
    assert session.main(["--rehearse", "--out", str(tmp_path / "new"), "--minutes", "20"]) == 0
    failed = tmp_path / "new" / "failed.csv"
    assert not failed.exists(), failed.read_text()
    for letter, slice_ in worker.SLICES.items():
        found = rows(tmp_path / "new" / f"{letter}.csv")
        assert found, letter
        assert tuple(found[0]) == slice_.columns
        assert all(row.get("ok") != "no" for row in found), found
    text = (tmp_path / "new" / "page.md").read_text()
    assert text.startswith("# A rehearsal")
    assert "A rehearsal decides nothing." in text
    for name in ("models_forward.png", "models_step.png"):
        assert (tmp_path / "new" / name).stat().st_size > 0
        assert f"({name})" in text
