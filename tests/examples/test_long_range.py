import pytest
import torch

from examples.long_range import (
    ARMS,
    CELL,
    CELLS,
    DEPTH,
    WINDOW,
    Canvases,
    Marker,
    Run,
    Score,
    loss_of,
    main,
    reach,
    read,
    read_marks,
    same_as_corner,
    table,
)
from vit_ls import job
from vit_ls.config import ConfigError


def test_canvases_mark_the_digits_of_the_corner_class():
    images, labels = Canvases(held_out=True, seed=3, classes=4).draw(2)
    again, labels_again = Canvases(held_out=True, seed=3, classes=4).draw(2)
    assert torch.equal(images, again)
    assert torch.equal(labels, labels_again)
    assert set(labels.flatten().tolist()) == {0, 1, 2, 3}
    same = same_as_corner(labels)
    assert images.shape == (2, 1, CELL * CELLS, CELL * CELLS)
    assert same[:, 0, 0].all()


def test_no_class_is_more_frequent_where_it_is_the_corner_s():
    """A window could count otherwise, and would mark without having seen the corner."""
    labels = Canvases(held_out=True, seed=3, classes=4).draw(32)[1]
    same = same_as_corner(labels).flatten(1)[:, 1:].float()
    assert 0.22 < same.mean() < 0.28


@pytest.mark.parametrize("name", ARMS)
def test_the_window_alone_cannot_see_the_corner_from_afar(name):
    torch.manual_seed(0)
    model = Marker(ARMS[name], classes=3).eval()
    image = torch.randn(1, 1, CELL * CELLS, CELL * CELLS, requires_grad=True)
    near = reach(WINDOW, DEPTH)
    seen = []
    for cell in ((0, 3), (0, 4), (7, 7)):  # the last that is near, and two that are not
        (gradient,) = torch.autograd.grad(model(image)[0, *cell, 0], image, retain_graph=True)
        seen.append(bool(gradient[0, 0, :CELL, :CELL].abs().max() > 0))
        assert near[cell] == (cell == (0, 3))
    if name == "window alone":
        assert seen == [True, False, False]
    elif name == "slices alone":
        assert seen == [False, False, False]
    else:
        assert seen == [True, True, True]


def test_logits_that_are_right_have_no_loss_and_a_wrong_part_has_its_own():
    labels = torch.tensor([[[1, 0], [2, 1]]])
    mark = 40.0 * (2 * same_as_corner(labels).float() - 1)[..., None]
    own = 40.0 * torch.nn.functional.one_hot(labels, 3)
    corner = 40.0 * torch.nn.functional.one_hot(torch.ones_like(labels), 3)
    assert loss_of(torch.cat((mark, own, corner), -1), labels) == pytest.approx(0, abs=1e-6)
    wrong = torch.cat((mark, own, own), -1)  # the corner's class is not the cell's in half of them
    assert loss_of(wrong, labels) == pytest.approx(20)


def test_the_table_has_mean_and_deviation_of_two_seeds_or_more():
    lines = table({"a": [Score(0.5, 0.25), Score(0.7, 0.25)], "b": [Score(1, 1)]}).splitlines()
    assert lines[2:] == ["| a | 2 | 0.600 ± 0.141 | 0.250 ± 0.000 |"]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--steps", "19"], "--steps must be from 20 to 1000000, got 19."),
        (["--classes", "11"], "--classes must be from 2 to 10, got 11."),
        (["--csv", __file__], f"--csv must be a file of examples/long_range.py, got {__file__}."),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(flags, complaint, tmp_path, capsys):
    argv = ["--csv", str(tmp_path / "rows.csv"), *flags]
    assert job.command_line("long_range.py", lambda: main(argv)) == 2
    assert capsys.readouterr().err == f"long_range.py: {complaint}\n"


@pytest.mark.parametrize("content", [b"\x89PNG\xff", b"a,b\n\x00,1\n", b"a,b\n1,2\n"])
def test_a_file_of_something_else_is_not_continued(content, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"--csv must be a file of examples/long_range.py"):
        read(file)


def test_marks_that_were_cut_off_are_named(tmp_path):
    (tmp_path / "rows.json").write_text('{"Run(')
    with pytest.raises(ConfigError, match=r"rows\.json must be what examples/long_range\.py wrote"):
        read_marks(tmp_path / "rows.csv", [])


@pytest.mark.slow
def test_a_short_run_reports_and_draws_and_is_continued(tmp_path, capsys):
    picture, rows = tmp_path / "long_range.png", tmp_path / "rows.csv"
    argv = ["--steps", "20", "--canvases", "16", "--picture", str(picture), "--csv", str(rows)]
    main([*argv, "--seeds", "1"])
    assert capsys.readouterr().out.count("seed 0, ") == len(ARMS)
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = read(rows)
    assert list(found) == [Run(name, 0, 20, 3, 16) for name in ARMS]
    main([*argv, "--seeds", "1"])
    assert "seed 0, " not in capsys.readouterr().out
    assert read(rows) == found
    assert set(read_marks(rows, list(found))) == set(ARMS)
    others = [run._replace(steps=21) for run in found]
    assert read_marks(rows, others) == {}  # what another run said is not drawn
