"""Reports side by side: what differs is marked, and the legend is off the bars."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from colour_trees import Bench, paint
from matplotlib.figure import Figure

from robustness.data.benchmarks import IN_MCE, grid
from robustness.reporting import plots
from robustness.reporting.analysis import Run, compare_pairs
from robustness.reporting.comparison import comparison_markdown, distinct_names, side_by_side
from robustness.reporting.page import to_html
from robustness.reporting.report import to_markdown, write_report
from robustness.rules.results import CellResult, Report, Result
from vit_ls import style

IDENTITY = {"transform": "t", "images": "5000", "data": "d"}


def report(name: str = "m", right: int = 2500, **identity: str) -> Report:
    cells = {cell: CellResult({"top1": right, "images": 5000}) for cell in grid(IN_MCE)}
    result = Result(
        "imagenet-c", "mce", "c", "official files", "fed", IDENTITY | identity, 5000, list(cells)
    )
    result.cells = cells
    weights = f"{right:08d}"
    model = {"name": name, "arguments": {}, "weights": weights, "dtype": "float32", "class": "M"}
    return Report(model, [result])


@pytest.mark.parametrize(
    ("part", "word"), [("transform", "transform"), ("images", "subset"), ("data", "data")]
)
def test_what_differs_is_not_comparable(part: str, word: str) -> None:
    one, other = report(), report(**{part: "another"})
    shown = [row for row in side_by_side([one, other]) if row.value(0) is not None]
    assert len(shown) > 15
    assert all(row.differs == (word,) for row in shown)
    text = comparison_markdown([one, other], ["a", "b"])
    assert f"**not comparable**: other {word}" in text
    assert "not comparable" not in comparison_markdown([one, report("n")], ["a", "b"])


def test_a_withheld_number_of_other_data_marks_nothing() -> None:
    one, other = report(), report(data="another")
    other.results[0].cells = {}
    (first, *_) = side_by_side([one, other])
    assert first.differs == ()


def test_names_are_told_apart_by_what_differs() -> None:
    window = report("m", 1)
    window.model["arguments"] = {"window": "2"}
    assert distinct_names([report("a"), report("b")]) == ["a", "b"]
    assert distinct_names([report("m"), window]) == ["m", "m window=2"]
    assert distinct_names([report("m", 1), report("m", 2)]) == ["m 00000001", "m 00000002"]
    half = report("m", 1)
    half.model["dtype"] = "float16"
    assert distinct_names([report("m", 1), half]) == ["m 00000001 float32", "m 00000001 float16"]
    few = report("m", 1, images="100")
    assert len(set(distinct_names([report("m", 1), few]))) == 2
    same = report("m", 1)
    assert len(set(distinct_names([same, copy.deepcopy(same)]))) == 2


def kept_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures of the pictures that are drawn from now on."""
    drawn: list[Figure] = []

    @contextmanager
    def kept(*args: Any, **how: Any) -> Iterator[list[Any]]:
        with style.picture(*args, **how) as panels:
            drawn.append(panels[0].figure)
            yield panels

    monkeypatch.setattr(plots, "picture", kept)
    return drawn


def test_the_title_says_who_is_best_of_what_can_be_compared() -> None:
    rows = [row for row in side_by_side([report("a", 1), report("b", 3)]) if row.value(0)]
    assert plots.finding(rows, ["a", "b"]) == f"b is best in {len(rows)} of {len(rows)} numbers"
    assert plots.finding(rows[:0], ["a", "b"]) == "No number of these models can be compared"
    apart = side_by_side([report("a", 1), report("b", 3, data="x")])
    assert plots.finding(apart, ["a", "b"]) == "No number of these models can be compared"


def test_the_legend_is_off_the_bars_with_ten_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = kept_figures(monkeypatch)
    reports = [report(f"a_model_with_a_long_name_{n}", 100 * n) for n in range(10)]
    plots.plot_comparison(reports, distinct_names(reports), tmp_path / "x.png")
    (figure,) = drawn
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is not None
        box = legend.get_window_extent()
        assert len(legend.get_texts()) == 10
        assert not any(box.overlaps(bar.get_window_extent()) for bar in axes.patches)
        assert not box.overlaps(axes._left_title.get_window_extent())
        assert box.x1 <= figure.bbox.x1


def test_what_cannot_be_compared_is_drawn_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = kept_figures(monkeypatch)
    plots.plot_comparison([report(), report("n", data="x")], ["m", "n"], tmp_path / "x.png")
    plots.plot_comparison([report(), report("n")], ["m", "n"], tmp_path / "x.png")
    odd, even = (
        [bar.get_hatch() for axes in figure.axes for bar in axes.patches] for figure in drawn
    )
    assert odd
    assert set(odd) == {"///"}
    assert set(even) == {None}
    assert "not comparable: other data" in drawn[0].axes[1].get_title(loc="left")


def planted(folder: Path, answer: int, *, verify: bool) -> Bench:
    """A run on one image; images of every answer have the same name and size."""
    folder.mkdir()
    bench = Bench(folder)
    file = bench.root / "imagenetv2-top-images-format-val/0/0.png"
    paint(file, answer)
    file.write_bytes(file.read_bytes().ljust(1000, b"\0"))
    write_report(bench.run({"imagenet-v2-top-images": 1}, verify=verify), bench.output)
    return bench


@pytest.mark.parametrize("verify", [True, False])
def test_images_of_one_name_and_size_are_the_same_only_where_their_bytes_are(
    verify: bool, tmp_path: Path
) -> None:
    runs = [
        Run(planted(tmp_path / str(number), answer, verify=verify).output)
        for number, answer in enumerate((0, 0, 5))
    ]
    same, other = ([runs[0].report, runs[place].report] for place in (1, 2))
    text, odd = (comparison_markdown(reports, ["a", "b"]) for reports in (same, other))
    lines, apart = (compare_pairs(runs[0], runs[place]) for place in (1, 2))
    known = "by their bytes" if verify else "by name and size"
    assert f"images known {known}" in to_markdown(runs[0].report)
    assert ("by name and size" in text) != verify
    assert all(("by name and size" in line.note) != verify for line in lines)
    if verify:
        assert "**not comparable**: other contents" in odd
        assert [(line.value, line.note) for line in apart] == [(None, "withheld: other contents")]
    else:
        assert "by name and size" in odd
        assert all("by name and size" in line.note for line in apart)
    page = to_html(other, ["a", "b"])
    assert ("other contents" in page) == verify
    assert ("by name and size" in page) != verify


def test_who_did_not_look_at_the_bytes_is_no_difference(tmp_path: Path) -> None:
    looked, trusted = (
        Run(planted(tmp_path / str(verify), 0, verify=verify).output) for verify in (True, False)
    )
    text = comparison_markdown([looked.report, trusted.report], ["a", "b"])
    assert "not comparable" not in text
    assert "by name and size" in text


def test_transforms_that_nobody_can_tell_apart_are_not_comparable() -> None:
    one, other = report(transform=""), report(transform="")
    assert "**not comparable**: other transform" in comparison_markdown([one, other], ["a", "b"])
    assert "not comparable" not in comparison_markdown([one], ["a"])
