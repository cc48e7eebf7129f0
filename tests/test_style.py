"""The look of pictures: told apart by all, named at the ends of lines, with plain ticks."""

import io
from itertools import combinations

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from vit_ls import style

# linear RGB as those without one kind of cones see it: Vienot, Brettel and Mollon, 1999
WITHOUT = {
    "red": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "green": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
}


def linear(colour):
    rgb = np.array(matplotlib.colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast_on_white(colour):
    return 1.05 / (linear(colour) @ (0.2126, 0.7152, 0.0722) + 0.05)


def test_a_table_sets_numbers_to_the_right():
    text = style.markdown_table(("of", "count"), [("a", "1"), ("b", "2")], numbers=(1,))
    assert text == "| of | count |\n| --- | ---: |\n| a | 1 |\n| b | 2 |"


@pytest.mark.parametrize("kind", WITHOUT)
def test_colours_stay_apart_for_the_colour_blind(kind):
    seen = {c: np.array(WITHOUT[kind]) @ linear(c) for c in style.COLOURS}
    for one, other in combinations(style.COLOURS, 2):
        apart = np.abs(np.cbrt(seen[one].clip(0)) - np.cbrt(seen[other].clip(0))).max()
        assert apart > 0.08, (one, other)


def test_each_colour_has_a_marker_of_its_own():
    assert len(set(style.MARKERS)) == len(style.COLOURS) == len(set(style.COLOURS))


def test_text_has_a_contrast_of_4_5_on_white():
    for colour in (style.INK, style.QUIET):
        assert contrast_on_white(colour) >= 4.5
    figure = Figure()
    axes = figure.subplots()
    for number in range(len(style.COLOURS)):
        axes.plot([0, 1], [0, number], label=str(number), **style.look(number))
    style.name_lines(axes)
    colours = [text.get_color() for text in axes.texts]
    assert len(colours) == len(style.COLOURS)
    assert min(map(contrast_on_white, colours)) >= 4.5


def test_more_lines_than_colours_differ_by_their_stroke():
    shown = [tuple(sorted(style.look(n).items())) for n in range(2 * len(style.COLOURS))]
    assert len(set(shown)) == len(shown)


def test_a_line_under_another_is_wider():
    widths = [style.look(number, 3)["linewidth"] for number in range(3)]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 3


@pytest.mark.parametrize(
    ("places", "gap", "expected"),
    [
        ([], 5, []),
        ([1.0, 20.0], 5, [1.0, 20.0]),
        ([10.0, 10.0], 4, [8.0, 12.0]),
        ([10.0, 9.0, 11.0], 4, [10.0, 6.0, 14.0]),
        ([0.0, 1.0, 50.0], 3, [-1.0, 2.0, 50.0]),
        ([0.0, 4.0, 4.0], 4, [-4 / 3, 8 / 3, 20 / 3]),
    ],
)
def test_labels_move_apart_and_no_further(places, gap, expected):
    assert style.apart(places, gap) == pytest.approx(expected)


def boxes(axes):
    axes.figure.draw_without_rendering()
    return {text.get_text(): text.get_window_extent() for text in axes.texts}


def test_lines_that_end_together_have_labels_that_do_not_overlap():
    axes = Figure(layout="constrained").subplots()
    for number, name in enumerate("abcd"):
        axes.plot([1, 2], [1, 5 + number / 100], label=name)
    axes.plot([1, 2], [3, 3], label="_hidden")
    style.name_lines(axes)
    found = boxes(axes)
    assert sorted(found) == list("abcd")
    assert [t.get_text() for t in sorted(axes.texts, key=lambda t: t.get_position()[1])] == [
        *"abcd"
    ]
    assert not any(one.overlaps(other) for one, other in combinations(found.values(), 2))


def test_a_line_that_ends_early_is_named_above_it_or_below_where_it_is_lowest():
    axes = Figure().subplots()
    axes.plot([1, 2, 3], [1, 2, 3], label="long")
    axes.plot([1, 2], [2, 4], label="above")
    axes.plot([1, 2], [0, 1], label="below")
    axes.plot([1, np.nan], [0.5, np.nan], label="point")
    style.name_lines(axes)
    found = boxes(axes)
    assert found["above"].y0 > axes.transData.transform((2, 4))[1]
    assert found["below"].y1 < axes.transData.transform((2, 1))[1]
    assert found["long"].x0 > axes.transData.transform((3, 3))[0]
    assert "point" in found


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.5, "0.5"), (224, "224"), (4096.0, "4096"), (16384, "16 384"), (2e6, "2 M"), (3e9, "3 G")],
)
def test_a_tick_is_a_number_that_people_read(value, words):
    assert style.plain(value) == words


def ticks(axis):
    axis.axes.figure.draw_without_rendering()
    low, high = axis.get_view_interval()
    return [t.get_text() for t in axis.get_ticklabels() if low <= t.get_position()[0] <= high]


def test_a_logarithmic_axis_has_plain_ticks_alone():
    axes = Figure().subplots()
    axes.plot([224, 448, 1024], [1, 30, 70])
    style.log_axis(axes.xaxis, [224, 448, 1024])
    style.log_axis(axes.yaxis)
    assert ticks(axes.xaxis) == ["224", "448", "1024"]
    shown = [text.get_text() for text in axes.yaxis.get_ticklabels()]
    assert shown[shown.index("1") :][:6] == ["1", "2", "5", "10", "20", "50"]
    assert not len(axes.yaxis.get_minorticklocs())


def test_a_picture_is_as_wide_as_a_page_on_white_and_the_same_each_time(tmp_path):
    for name in ("a", "b"):
        path = tmp_path / "new" / f"{name}.png"
        with style.picture(path, "What it shows " * 9, note="where", down=2) as (top, bottom):
            top.plot([1, 2], [1, 2], label="one", **style.look(0))
            bottom.plot([1, 2], [2, 1], label="two", **style.look(1))
        assert [text.get_text() for axes in (top, bottom) for text in axes.texts] == ["one", "two"]
    image = Image.open(tmp_path / "new" / "a.png").convert("RGB")
    assert image.width == 960
    assert image.getpixel((0, 0)) == image.getpixel((959, image.height - 1)) == (255, 255, 255)
    assert (tmp_path / "new" / "a.png").read_bytes() == (tmp_path / "new" / "b.png").read_bytes()


def test_a_picture_carries_what_it_says_and_few_colours(tmp_path):
    path, content = tmp_path / "a.png", io.BytesIO()
    for target in (path, content):
        with style.picture(target, "t", says={"weights": "abc"}, colours=32) as (axes,):
            axes.imshow(np.random.default_rng(0).random((64, 64, 3)))
            style.bare(axes, "noise")
    assert axes.get_title(loc="left") == "noise"
    assert list(axes.get_xticks()) == []
    assert path.read_bytes() == content.getvalue()
    with Image.open(path) as image:
        assert image.info["weights"] == "abc"
        assert len(image.convert("RGB").getcolors()) <= 32


def test_the_shades_of_a_map_darken_all_the_way():
    light = [
        linear(colour) @ (0.2126, 0.7152, 0.0722) for colour in style.shades()(range(256))[:, :3]
    ]
    assert light == sorted(light, reverse=True)
    assert light[0] > 0.99
    assert light[-1] < 0.05


def test_a_picture_that_fails_writes_nothing(tmp_path):
    path = tmp_path / "a.png"
    with pytest.raises(ZeroDivisionError), style.picture(path, "t") as (axes,):
        axes.plot([1 / 0])
    assert not path.exists()
