"""The gallery and the pictures of architectures say what the models do."""

import pytest
import timm
import torch
from matplotlib.figure import Figure
from PIL import Image

from papers.pictures import gallery
from papers.pictures.architecture import Drawn, finding, lines, stages
from vit_ls import job
from vit_ls.visualize.pictures import lay


def darkness(values, image=None):
    """Of each place of a map as it is drawn, from 0 to 1."""
    axes = Figure().subplots()
    lay(axes, image or Image.new("RGB", (4, 4), "white"), torch.tensor(values))
    drawn = axes.images[0].get_array()
    step = len(drawn) // len(values)
    return 1 - drawn.mean(-1)[step // 2 :: step, step // 2 :: step]


def test_a_map_is_darker_where_it_is_larger():
    shown = darkness([[0.0, 0.1], [0.5, 1.0]])
    assert shown[0, 0] < shown[0, 1] < shown[1, 0] < shown[1, 1]
    assert shown[0, 0] == pytest.approx(0, abs=0.01)


def test_a_map_of_equal_numbers_is_not_dark():
    equal, most = darkness([[1.0, 1.0], [1.0, 1.0]]).max(), darkness([[0.0, 0.0], [0.0, 1.0]]).max()
    assert equal < 0.7 * most


def test_behind_a_map_a_dark_image_is_light():
    empty = [[0.0, 0.0], [0.0, 0.0]]
    assert darkness(empty, Image.new("RGB", (4, 4), "black")).max() == pytest.approx(0, abs=0.01)


def test_the_stages_are_those_of_a_forward_pass():
    drawn = stages(timm.create_model("test_cvt_ls").eval())
    assert [stage.grid for stage in drawn] == [(8, 8), (4, 4), (2, 2)]
    assert [stage.stride for stage in drawn] == [4, 8, 16]
    assert drawn[-1].tokens == 1


LONG = Drawn("long-short attention", (56, 56), (7, 7), (3, 3), 8, 1, 1, 3, 96, 4)
FULL = Drawn("full attention", (14, 14), (0, 0), (0, 0), 0, 0, 8, 6, 384, 16)


def test_the_words_of_a_stage_and_of_a_model():
    assert lines(LONG)[-3:] == [
        *("7 x 7 see 13 x 13 tokens", "and 8 projected tokens", "and 1 global token")
    ]
    assert lines(FULL)[-1] == "full attention"
    assert finding([LONG, FULL]) == "long-short attention in 1 stages, full from 14 x 14 tokens on"
    assert finding([LONG]) == "long-short attention in 1 blocks"
    slices = Drawn("composite slices", (14, 14), (7, 7), (0, 0), 0, 0, 12, 6, 384, 16)
    assert lines(slices)[-1] == "2 x 2 slices of 7 x 7"


@pytest.mark.landing
def test_the_gallery_looks_from_the_same_place_at_each_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "SIZE", (64, 64))
    layers = gallery.first_layers("cvt_ls_13", Image.new("RGB", (64, 64)))
    assert [layer.grid for layer in layers] == [(16, 16), (8, 8), (4, 4)]
    for layer in layers:
        row, column = gallery.place(layer)
        y, x = row / layer.grid[0], column / layer.grid[1]
        assert gallery.AT[0] - 1 / layer.grid[0] < y <= gallery.AT[0]
        assert gallery.AT[1] - 1 / layer.grid[1] < x <= gallery.AT[1]
    gallery.main(["--picture", str(tmp_path / "gallery.png")])
    with Image.open(tmp_path / "gallery.png") as drawn:
        assert drawn.width == 960


def test_a_photo_that_is_none_is_one_line_and_status_2(tmp_path, capsys):
    argv = ["--image", __file__, "--picture", str(tmp_path / "x.png")]
    assert job.command_line("papers.pictures.gallery", lambda: gallery.main(argv)) == 2
    assert "--image must be an image that Pillow reads" in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()
