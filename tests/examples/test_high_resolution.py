import re

import pytest
import timm
import torch
from PIL import Image

from examples.high_resolution import (
    COLUMNS,
    MODELS,
    beside_seams,
    differences,
    main,
    predicted,
    read_rows,
    table,
    whole_and_tiled,
)
from vit_ls import job
from vit_ls.config import ConfigError


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return timm.create_model("test_cvt_ls").eval()


def test_one_tile_is_the_whole_image_and_four_differ_by_their_seams(model):
    x = torch.randn(1, 3, 64, 64)
    whole, tiled = whole_and_tiled(model, x, 64)
    assert torch.equal(whole, tiled)
    whole, tiled = whole_and_tiled(model, x, 32)
    assert tiled.shape == whole.shape == (128, 4, 4)
    with torch.inference_mode():
        tile = model.forward_features(x[:, :, :32, 32:])[0]
    assert torch.allclose(tiled[:, :2, 2:], tile, atol=1e-5)
    assert differences(whole, tiled).max() > 0.01


def test_tokens_beside_inner_borders_are_told_from_others():
    difference = torch.zeros(6, 6)
    difference[2:4] = difference[:, 2:4] = 1  # tiles of 3 tokens
    assert beside_seams(difference, 3) == (1, 0)


def test_the_next_size_is_foreseen_from_its_growth():
    assert predicted([1.0]) == 4
    assert predicted([1.0, 3.0]) == 12
    assert predicted([1.0, 10.0]) == 100


def test_the_table_says_what_was_not_run():
    row = {"model": "a", "size": "64", "cpu_s": "1.5", "peak_mib": "512", "note": ""}
    left = {"model": "a", "size": "128", "cpu_s": "", "peak_mib": "", "note": "not run: 70 s"}
    assert table([row, left]).splitlines()[2] == "| `a` | 1.5 s, 0.50 GiB | not run: 70 s |"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--tile", "100"], "--tile must be a multiple of 16 that divides --side, got 100 and 14"),
        (["--sizes", "64", "96"], r"--sizes must each be twice the one before, got \[64, 96\]"),
        (["--sizes", "33"], r"--sizes must be multiples of 32, got \[33\]"),
        (["--image", __file__], "--image must be an image that Pillow reads, got .*test_high"),
        (["--cost", "--csv", __file__], "--csv must be a file of examples/high_resolution.py"),
    ],
)
def test_what_cannot_be_is_one_line_and_status_2(flags, complaint, tmp_path, capsys):
    image = tmp_path / "image.png"
    Image.new("RGB", (8, 8)).save(image)
    argv = ["--image", str(image), "--picture", str(tmp_path / "drawn.png"), *flags]
    assert job.command_line("high_resolution.py", lambda: main(argv)) == 2
    assert re.fullmatch(rf"high_resolution.py: {complaint}.*\n", capsys.readouterr().err)
    assert not (tmp_path / "drawn.png").exists()


@pytest.mark.parametrize("content", [b"\x89PNG\xff", b"a,b\n\x00,1\n", b"a,b\n1,2\n"])
def test_a_file_of_something_else_is_not_continued(content, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"--csv must be a file of examples/high_resolution.py"):
        read_rows(file)


@pytest.mark.slow
def test_seams_are_drawn_and_costs_measured_and_continued(tmp_path, capsys):
    image, rows = tmp_path / "image.png", tmp_path / "rows.csv"
    Image.effect_noise((90, 80), 50).save(image)
    picture = ["--image", str(image), "--picture", str(tmp_path / "drawn.png")]
    main([*picture, "--side", "128", "--tile", "64"])
    assert "the maps differ by" in capsys.readouterr().out
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")
    cost = ["--image", str(image), "--cost", "--sizes", "64", "128", "--csv", str(rows)]
    main([*cost, "--models", *MODELS])
    found = read_rows(rows)
    assert [(row["model"], row["size"]) for row in found] == [
        (name, size) for name in MODELS for size in ("64", "128")
    ]
    assert all(float(row["cpu_s"]) > 0 and set(row) == set(COLUMNS) for row in found)
    assert all(float(row["peak_mib"]) >= 0 for row in found)
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:-1]))  # as if cut off
    main([*cost, "--models", *MODELS])
    again = read_rows(rows)
    assert again[:-2] == found[:-2]
    assert [row["size"] for row in again[-2:]] == ["64", "128"]
