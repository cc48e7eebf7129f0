import csv

import pytest
import torch

from examples.long_range import ARMS, CELL, CELLS, DEPTH, WINDOW, Canvases, Marker, main, reach


def test_canvases_mark_the_digits_of_the_corner_class():
    images, same = Canvases(held_out=True, seed=3, classes=4).draw(2)
    again, same_again = Canvases(held_out=True, seed=3, classes=4).draw(2)
    assert torch.equal(images, again)
    assert torch.equal(same, same_again)
    assert images.shape == (2, 1, CELL * CELLS, CELL * CELLS)
    assert same[:, 0, 0].all()
    assert 0.3 < same.float().mean() < 0.7


@pytest.mark.parametrize("name", ARMS)
def test_the_window_alone_cannot_see_the_corner_from_afar(name):
    torch.manual_seed(0)
    model = Marker(ARMS[name]).eval()
    image = torch.randn(1, 1, CELL * CELLS, CELL * CELLS, requires_grad=True)
    near = reach(WINDOW, DEPTH)
    seen = []
    for cell in ((0, 3), (0, 4), (7, 7)):  # the last that is near, and two that are not
        (gradient,) = torch.autograd.grad(model(image)[0, *cell], image, retain_graph=True)
        seen.append(bool(gradient[0, 0, :CELL, :CELL].abs().max() > 0))
        assert near[cell] == (cell == (0, 3))
    if name == "window alone":
        assert seen == [True, False, False]
    elif name == "slices alone":
        assert seen == [False, False, False]
    else:
        assert seen == [True, True, True]


@pytest.mark.slow
def test_a_short_run_reports_and_draws(tmp_path, capsys):
    picture = tmp_path / "long_range.png"
    main(["--steps", "20", "--seeds", "1", "--canvases", "16", "--picture", str(picture)])
    assert capsys.readouterr().out.count("seed 0, ") == len(ARMS)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with picture.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["attention"] for row in rows] == list(ARMS)
