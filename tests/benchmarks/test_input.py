import sys

import numpy as np
import pytest
from PIL import Image

from benchmarks import input as loading


def test_a_crop_is_decoded_at_a_lower_scale_only_where_it_keeps_its_pixels(tmp_path):
    (file,) = loading.make_images(tmp_path, 1, (400, 300))
    whole, small = (0, 0, 300, 400), (10, 20, 60, 60)
    for crop, size, less in ((whole, 64, True), (whole, 200, False), (small, 64, False)):
        full = loading.decode(file, crop, size)
        reduced = loading.decode(file, crop, size, reduced=True)
        assert full.size == reduced.size == (size, size)
        gap = np.abs(np.asarray(full, dtype=float) - np.asarray(reduced, dtype=float)).mean()
        assert 0 < gap < 6 if less else gap == 0
    with Image.open(file) as image:
        assert image.size == (400, 300)


@pytest.mark.slow
def test_the_benchmark_writes_its_table(tmp_path, monkeypatch, capsys):
    out = tmp_path / "input.csv"
    small = ["--images", "4", "--image-size", "80", "60", "--size", "16", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.input", *small, "--out", str(out)])
    loading.main()
    assert capsys.readouterr().out.count("\n") == 7
    rows = [line.split(",")[0] for line in out.read_text().splitlines()]
    assert rows[-6:] == ["vit_ls", '"vit_ls', "timm", "seeds", "decode", '"decode']
