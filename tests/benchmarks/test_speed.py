import csv
import math

import pytest
import torch
from tolerances import TOLERANCE

from benchmarks.speed import table
from benchmarks.speed.__main__ import how_it_ran, main
from benchmarks.speed.floor import products_of
from benchmarks.speed.measure import in_turn
from benchmarks.speed.plain import plain
from benchmarks.speed.subjects import Subject, create, run
from vit_ls.count import count_flops, explicit_attention
from vit_ls.ops import rules
from vit_ls.ops.impl import IMPLEMENTATIONS


@pytest.mark.parametrize("name", ["test_vil_ls", "test_vil", "test_cvt_ls", "test_cst_vit"])
def test_the_plain_formulation_computes_the_same(name):
    model, x = create(Subject(name), 45, "cpu").eval(), torch.randn(2, 3, 45, 45)
    known, piece = set(IMPLEMENTATIONS), rules.PIECE
    expected = model(x)
    with plain():
        actual = model(x)
    torch.testing.assert_close(actual, expected, **TOLERANCE[torch.float32])
    assert (set(IMPLEMENTATIONS), rules.PIECE) == (known, piece)


@pytest.mark.parametrize("name", ["test_vil_ls", "vit_tiny_patch16_224"])
def test_the_products_of_the_floor_are_the_flops_but_for_norms(name):
    with explicit_attention():
        flops = count_flops(create(Subject(name), 64, "cpu").eval(), (64, 64))
    found = products_of(Subject(name), "forward", 3, 64)
    assert 0.93 * flops < sum(n * math.prod(p) for p, n in found.items()) / 3 <= flops
    trained = products_of(Subject(name), "step", 3, 64)
    both = [sum(n * math.prod(p) for p, n in x.items()) for x in (found, trained)]
    assert 2.8 < both[1] / both[0] <= 3


def row(**values):
    known = {"setting": "float32", "mode": "forward", "size": "224", "batch": "8", "threads": "2"}
    return dict.fromkeys(table.COLUMNS, "") | known | values


def test_a_ratio_is_of_one_run_alone():
    target = table.Target("a", "b", 1.0, ("float32",))
    a = row(model="a", run="1", median_s="3", least_s="2")
    b = row(model="b", run="2", median_s="2", least_s="2")
    assert table.ratio([a, b], target, "float32") is None
    assert table.ratio([a, b | {"run": "1"}], target, "float32") == (1.5, 1.0)
    assert table.ratio([a, b | {"run": "1"}], target, "bf16") is None


def test_an_exponent_is_of_one_image_and_the_number_of_pixels():
    sizes = [(448, 8), (896, 2)]
    rows = [row(size=str(s), batch=str(b), least_s=str(b * s**3)) for s, b in sizes]
    assert table.exponent(rows, "least_s") == pytest.approx(1.5)
    assert math.isnan(table.exponent(rows[:1], "least_s"))


def test_rows_measured_in_another_way_are_not_mixed(tmp_path):
    kept = "2, memory kept"
    rows = [
        row(model="cvt_ls_13", run="1", size=size, batch="1", threads=threads, least_s=least)
        for threads, times in (("2", ("1", "8")), (kept, ("1", "4")))
        for size, least in zip(("448", "896"), times, strict=True)
    ]
    for threads, times in (("2", ("2", "1")), (kept, ("3", "1"))):
        for model, least in zip(("vil_ls_medium", "swin_small"), times, strict=True):
            rows.append(row(model=model, run=threads, threads=threads, median_s=least, least_s="1"))
    text = table.markdown(rows)
    where = "| cvt_ls_13 | float32, forward, batch 1, threads:"
    assert f"{where} 2 | 448, 896 | 1.50 |" in text
    assert f"{where} {kept} | 448, 896 | 1.00 |" in text
    rows.append(row(model="cvt_ls_13", run="1", size="1792", batch="2", least_s="90"))
    assert table.markdown(rows).count(where) == 2, "another batch is another measurement"
    of_kept = text.index(f"### Targets, threads: {kept}")
    assert (
        "| vil_ls_medium | swin_small | float32, forward, 224 | 1.0 | 2.00 | 1.00 | no |"
        in (text[:of_kept])
    )
    assert "| 1.0 | 3.00 | 1.00 | no |" in text[of_kept:]
    table.plot(rows, "float32", "forward", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "speed_float32_forward_peak.png",
        "speed_float32_forward_time.png",
    ]


@pytest.mark.parametrize(
    ("times", "title"),
    [
        ({"a": ("1", "4"), "b": ("1", "8")}, "Twice the side: 8.0 times the time for b, 4.0 for a"),
        ({"a": ("1", "4")}, "Twice the side takes 4.0 times the time"),
        ({"a": ("1",)}, "Time against the side of the image"),
    ],
)
def test_a_plot_of_speed_says_what_twice_the_side_takes(times, title, tmp_path, monkeypatch):
    rows = [
        row(model=model, run="1", size=size, batch="1", least_s=least, peak_mb="")
        for model, values in times.items()
        for size, least in zip(("448", "896"), values, strict=False)
    ]
    titles = []
    real = table.picture
    monkeypatch.setattr(
        table,
        "picture",
        lambda path, words, **kwargs: (titles.append(words), real(path, words, **kwargs))[1],
    )
    table.plot(rows, "float32", "forward", tmp_path)
    assert titles[0] == title


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "2"),
        ({"MALLOC_MMAP_MAX_": "0"}, "2"),
        ({"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1"}, "2, memory kept"),
    ],
)
def test_a_row_says_whether_the_process_keeps_its_memory(environment, expected, monkeypatch):
    for name in ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert how_it_ran(2, processor_time=False) == expected
    assert how_it_ran(1, processor_time=True).startswith("1, processor time")


@pytest.mark.slow
def test_measured_rows_are_added_and_reported(tmp_path, capsys):
    out = tmp_path / "machine.csv"
    command = "--batch-size 1 --rounds 1 --models cvt_ls_13 --no-floor --out"
    for mode, size in (("forward", "32"), ("forward", "64"), ("step", "32")):
        assert main([*command.split(), str(out), "--mode", mode, "--size", size]) == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [r["mode"] for r in rows] == ["forward", "forward", "step"]
    assert all(float(r["median_s"]) >= float(r["least_s"]) > 0 for r in rows)
    assert main(["--report", str(out), "--plots", str(tmp_path)]) == 0
    assert "### float32, step, 32 x 32, batch 1" in capsys.readouterr().out
    assert len(list(tmp_path.glob("*.png"))) == 2


def test_what_cannot_be_measured_is_one_line_and_status_2(tmp_path, capsys):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert main(["--report", str(other)]) == 2
    assert main(["--report", str(tmp_path / "no.csv")]) == 2
    assert main(["--mode", "step", "--models", "cvt_21 fused"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "must have the columns" in errors[0]
    assert "must be a file with rows" in errors[1]
    assert "a step trains" in errors[2]
    with pytest.raises(ValueError, match="which onnx or a fused model does not"):
        run(Subject("test_cvt_ls"), "onnx", "step", torch.zeros(1, 3, 32, 32), tmp_path)


def test_each_round_starts_with_another_run_and_the_first_does_not_count():
    seen = []
    times = in_turn({name: lambda n=name: seen.append(n) for name in "abc"}, 2, "cpu")
    assert "".join(seen) == "abcbcacab"
    assert [len(t.rounds) for t in times.values()] == [2, 2, 2]
    assert all(t.least <= t.median <= max(t.rounds) for t in times.values())
