"""Images that are corrupted on the fly are decoded once for all their cells."""

import pickle
from pathlib import Path

import pytest
from colour_trees import Bench, paint, wnid
from PIL import Image

from robustness.data import sources
from robustness.data.decoded import Decoded
from robustness.data.images import read_file
from robustness.data.listing import Sample

NAME = "imagenet-c-generated"
CELLS = ("gaussian_noise/1", "pixelate/3", "contrast/5")


def picture(shade: int) -> Image.Image:
    return Image.new("RGB", (4, 4), (shade, 0, 255))


def test_each_image_is_decoded_once_for_all_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    for index in range(3):
        file = bench.root / "imagenet/val" / wnid(index) / f"ILSVRC2012_val_0000000{index + 1}.JPEG"
        paint(file, index, 256)
    read: list[str] = []

    def counted(sample: Sample) -> Image.Image:
        read.append(sample.key)
        return read_file(sample)

    monkeypatch.setattr(sources, "read_file", counted)
    report = bench.run({NAME: 3}, generate=True, cells=CELLS, extra_cells=())
    assert {name: cell.counts["images"] for name, cell in report.results[0].cells.items()} == (
        dict.fromkeys(CELLS, 3)
    )
    assert sorted(set(read)) == sorted(read)
    assert len(read) == 3


def test_images_come_back_as_they_were_prepared(tmp_path: Path) -> None:
    kept = Decoded(tmp_path / "new", 4)
    for place in (2, 0):
        assert kept.get(place, lambda place=place: picture(place)) == picture(place)
    for place in (0, 2):
        assert kept.get(place, lambda: pytest.fail("prepared again")) == picture(place)
    assert kept.get(1, lambda: picture(9)) == picture(9)
    assert not list((tmp_path / "new").iterdir())


def test_a_process_without_a_share_and_a_full_disk_decode_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Decoded(tmp_path, 4)
    alone = pickle.loads(pickle.dumps(kept))
    for shade in (1, 2):
        assert alone.get(0, lambda shade=shade: picture(shade)) == picture(shade)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    for shade in (1, 2):
        assert kept.get(0, lambda shade=shade: picture(shade)) == picture(shade)
    assert caplog.text.count("Decoded images are not kept: No space left on device") == 1
