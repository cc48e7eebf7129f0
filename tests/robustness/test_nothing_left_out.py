"""What lies in a tree is taken, named as a gap, or passed over with a note."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from colour_trees import Bench, paint, wnid
from PIL import Image

from robustness.cli import main
from robustness.data.benchmarks import BENCHMARKS
from robustness.data.images import read_file
from robustness.data.listing import Sample
from robustness.data.sources import Places
from robustness.doctor import examine
from robustness.rules.metrics import metrics
from robustness.running import plan

NAME = "imagenet-sketch"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    paint(bench.root / NAME / wnid(0) / "a.JPEG", 0)
    return bench


def doctor(bench: Bench) -> list[str]:
    row = replace(BENCHMARKS[NAME], images=1)
    return [f"{verdict} {line}" for verdict, _, line in examine(Places(bench.root), [row])]


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("b.JPEG", "b.JPEG"),
        (f"{wnid(0)}/deeper/b.png", f"{wnid(0)}/deeper/b.png"),
        (f"{wnid(0)}/b.heic", f"{wnid(0)}/b.heic"),
    ],
)
def test_an_image_that_no_rule_takes_is_a_gap(bench: Bench, file: str, names: str) -> None:
    paint(bench.root / NAME / file, 0)
    report = bench.run({NAME: 1})
    (gap,) = report.results[0].all_gaps()
    assert "1 files that no rule takes" in gap
    assert names in gap
    assert report.incomplete
    assert any(line.startswith("bad 1 files that no rule takes") for line in doctor(bench))


def test_what_machines_leave_is_passed_over_with_a_note(bench: Bench) -> None:
    for junk in ("@eaDir", "__MACOSX", f"{wnid(0)}/@eaDir"):
        paint(bench.root / NAME / junk / "a.JPEG", 0)
    (bench.root / NAME / ".DS_Store").write_bytes(b"")
    (bench.root / NAME / "README.txt").write_text("words")
    report = bench.run({NAME: 1})
    assert not report.incomplete
    notes = report.results[0].all_notes()
    assert notes == [
        "passed over: 2 @eaDir",
        "passed over: 1 __MACOSX",
        "passed over: 1 hidden names",
    ]
    assert "note passed over: 2 @eaDir" in doctor(bench)


def test_a_flat_folder_gets_the_right_mend(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        paint(bench.root / NAME / f"ILSVRC2012_val_0000000{number}.JPEG", 0)
    (line, *_) = doctor(bench)
    assert "3 images lie flat, without class folders" in line
    assert line.endswith("mend: sort the images into class folders")
    assert "lie flat" in bench.run({NAME: 1}).results[0].all_gaps()[0]


@pytest.mark.parametrize("levels", [(0, 32768, 65535), (300, 700, 1000)])
def test_grey_of_16_bits_is_scaled(tmp_path: Path, levels: tuple[int, ...]) -> None:
    Image.fromarray(np.array([levels], np.uint16)).save(tmp_path / "x.png")
    pixels = np.asarray(read_file(Sample("x", 0, tmp_path / "x.png")))
    assert pixels[0, :, 0].tolist() == [round(level / 257) for level in levels]


def test_all_gaps_are_shown_grouped(bench: Bench) -> None:
    paint(bench.root / NAME / "loose.JPEG", 0)
    (bench.root / NAME / "strange").mkdir()
    report = bench.run({NAME: 2})
    note = metrics(report)[0].note
    for words in ("strange is no class folder", "loose.JPEG", "1 images of 2"):
        assert words in note


TRY = ["--model", "test_resnet", "--random-weights", "--workers", "0", "--img-size", "32"]
DIGITS = [*TRY, "--suites", "digits", "--max-images", "1"]


@pytest.mark.parametrize("flag", ["--output", "--cache"])
def test_a_folder_that_cannot_be_written_is_one_line_before_the_run(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    flags = {"--output": str(tmp_path / "out"), "--cache": str(tmp_path / "cache")}
    flags[flag] = str(file)
    assert main([*DIGITS, *(word for pair in flags.items() for word in pair)]) == 2
    error = capsys.readouterr().err.strip()
    assert error == f"python -m robustness: {flag}: {file} cannot be written to: File exists."


def test_an_entry_of_the_cache_that_is_a_folder_is_one_line(bench: Bench, tmp_path: Path) -> None:
    bench.run({NAME: 1})
    (entry,) = (tmp_path / "cache").rglob("*.json")
    entry.unlink()
    entry.mkdir()
    with pytest.raises(ValueError, match=r"--cache: .* cannot be read: Is a directory"):
        bench.run({NAME: 1})


def test_a_grey_model_is_fed_grey_and_other_channels_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main([*DIGITS, "--model-kwargs", "in_chans=1", "--dry-run", *out]) == 0
    assert main([*DIGITS, "--model-kwargs", "in_chans=2", *out]) == 2
    assert (
        capsys.readouterr().err.strip() == "python -m robustness: in_chans must be 1 or 3, got 2."
    )


def test_a_class_with_another_number_of_images_than_published_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_CLASSES", 2)
    bench = Bench(tmp_path)
    for place in range(4):
        paint(bench.root / "imagenet/val" / wnid(place // 3) / f"{place}.png", place // 3)
    (gap,) = bench.run({"imagenet-val": 4}).results[0].all_gaps()
    assert gap == f"2 classes have not 2 images: {wnid(0)} 3, {wnid(1)} 1"
    moved = bench.root / "imagenet/val" / wnid(0) / "2.png"
    moved.rename(bench.root / "imagenet/val" / wnid(1) / "2.png")
    assert not bench.run({"imagenet-val": 4}).results[0].all_gaps()
