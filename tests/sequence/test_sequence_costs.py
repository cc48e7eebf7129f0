import csv

import pytest
import torch

from benchmarks import sequence, sequence_report

TINY = ["--lengths", "64", "--places", "40", "--rounds", "1", "--threads", "1"]


def steps_of(**steps):
    return {
        (name, length, "step_ms"): value
        for name, values in steps.items()
        for length, value in zip((1, 2, 4, 8), values, strict=True)
    }


def test_the_exponent_is_the_slope_from_a_length_on():
    costs = steps_of(full=(9, 4, 16, 64), LS=(3, 3, 6, 12))
    assert sequence_report.exponent(costs, "full", "step_ms", 2) == pytest.approx(2)
    assert sequence_report.exponent(costs, "LS", "step_ms", 2) == pytest.approx(1)


def test_the_crossover_is_where_a_system_is_faster_from_then_on():
    costs = steps_of(full=(3, 5, 9, 40), LS=(2, 6, 8, 12), CST=(4, 6, 10, 41))
    assert sequence_report.crossover(costs, "LS") == 4
    assert sequence_report.crossover(costs, "CST") is None
    assert sequence_report.crossover(costs, "full") is None


def test_what_a_file_holds_is_not_measured_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    path = tmp_path / "costs.csv"
    sequence.main([*TINY, "--csv", str(path)])
    first = path.read_text()
    rows = {tuple(row[:3]) for row in csv.reader(first.splitlines())}
    assert rows > {(name, "64", "step_ms") for name in sequence.SYSTEMS}
    assert rows > {(name, "40", "token_ms") for name in sequence.GENERATORS}
    sequence.main([*TINY, "--csv", str(path), "--plot", str(tmp_path / "costs.png")])
    assert path.read_text() == first
    assert (tmp_path / "costs.png").stat().st_size > 1000
    with pytest.raises(SystemExit):
        sequence.main([*TINY, "--csv", str(path), "--cpu-time"])
    assert "must have been measured as now" in capsys.readouterr().err
