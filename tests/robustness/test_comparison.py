"""Reports side by side: what differs is marked, and the legend is off the bars."""

import copy
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from robustness.data.benchmarks import IN_MCE, grid
from robustness.reporting import plots
from robustness.reporting.comparison import comparison_markdown, distinct_names, side_by_side
from robustness.rules.results import CellResult, Report, Result

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


def test_the_legend_is_off_the_bars_with_ten_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "_save", lambda figure, _: drawn.append(figure))
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
        assert not box.overlaps(axes.title.get_window_extent())
        assert box.x1 <= figure.bbox.x1


def test_what_cannot_be_compared_is_drawn_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "_save", lambda figure, _: drawn.append(figure))
    plots.plot_comparison([report(), report("n", data="x")], ["m", "n"], tmp_path / "x.png")
    plots.plot_comparison([report(), report("n")], ["m", "n"], tmp_path / "x.png")
    odd, even = (
        [bar.get_hatch() for axes in figure.axes for bar in axes.patches] for figure in drawn
    )
    assert odd
    assert set(odd) == {"///"}
    assert set(even) == {None}
    assert "not comparable: other data" in drawn[0].axes[1].get_title()
