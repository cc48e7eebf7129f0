"""Each benchmark's rule on a small tree in its layout, against counts worked out by hand."""

import json
from pathlib import Path

import pytest
from colour_trees import Bench, paint, wnid

from robustness.data.benchmarks import C_BAR, IN9_VARIANTS, IN_MCE
from robustness.rules.metrics import Metric, metrics
from robustness.rules.results import Report
from robustness.running import run


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def number(report: Report, name: str) -> Metric:
    return next(m for m in metrics(report) if m.name == name)


def test_one_pass_over_val_gives_val_real_and_the_clean_200(bench: Bench) -> None:
    # ReaL's labels of these four: none, {795, 970}, {230, 231}, {809}.
    for image, target, answer in ((1, 65, 65), (2, 970, 795), (3, 230, 0), (4, 809, 809)):
        name = f"ILSVRC2012_val_{image:08d}.JPEG"
        paint(bench.root / "imagenet/val" / wnid(target) / name, answer, 256)
    report = bench.run({"imagenet-val": 4})
    top1, real = number(report, "top-1"), number(report, "ReaL top-1")
    assert (top1.right, top1.images) == (2, 4)
    assert (real.right, real.images) == (2, 3)
    assert not report.incomplete


def test_v2_folders_are_read_as_numbers(bench: Bench) -> None:
    folder = bench.root / "imagenetv2-matched-frequency-format-val"
    for index in (0, 2, 10, 100):
        paint(folder / str(index) / "a.jpeg", index)
    top1 = number(bench.run({"imagenet-v2-matched-frequency": 4}), "top-1")
    assert (top1.right, top1.images) == (4, 4)


@pytest.mark.parametrize("letter", ["a", "r"])
def test_subsets_are_masked_with_the_free_number_beside(bench: Bench, letter: str) -> None:
    folder = bench.root / f"imagenet-{letter}"
    paint(folder / wnid(6) / "right.jpg", 6)
    paint(folder / wnid(6) / "outside.jpg", 0)  # Masked, all 200 tie and the first of them wins.
    report = bench.run({f"imagenet-{letter}": 2})
    hits = {"a": 2, "r": 1}[letter]  # Class 6 is the first of A, not of R.
    assert (number(report, "top-1").right, number(report, "top-1").images) == (hits, 2)
    assert number(report, "top-1 without the mask").right == 1


def test_imagenet9_maps_answers_and_keeps_the_unmapped_in_the_denominator(bench: Bench) -> None:
    vehicle, dog, none = 407, 151, 999
    for variant in IN9_VARIANTS:
        answers = (vehicle, vehicle, dog, none) if variant == "mixed_rand" else (vehicle,) * 4
        for image, answer in enumerate(answers):
            folder = bench.root / "imagenet-9" / variant / "val" / "02_wheeled vehicle"
            paint(folder / f"same_name_{image}.JPEG", answer)
    report = bench.run({"imagenet-9": 4})
    rand = number(report, "top-1 mixed_rand")
    assert (rand.right, rand.images) == (2, 4)
    assert number(report, "BG-gap").value == pytest.approx(50)


@pytest.mark.parametrize("group", ["", "noise"])
def test_corruption_trees_are_read_with_and_without_group_folders(bench: Bench, group: str) -> None:
    for corruption in IN_MCE:
        place = bench.root / "imagenet-c" / (group if corruption == "shot_noise" else "")
        for severity in range(1, 6):
            answer = 0 if severity <= 2 else 1
            paint(place / corruption / str(severity) / wnid(0) / "x.JPEG", answer)
    report = bench.run({"imagenet-c": 1})
    assert number(report, "mean error").value == pytest.approx(60)
    assert number(report, "CE fog").value == pytest.approx(100 * 0.6 / 0.819324)
    assert not report.incomplete


def test_c_bar_severities_are_ordered_by_value(bench: Bench) -> None:
    for corruption in C_BAR:
        for place, step in enumerate(("2.35", "3.20", "4.90", "9.15", "10.00")):
            answer = 0 if place < 3 else 1
            paint(bench.root / "imagenet-c-bar" / corruption / step / wnid(0) / "x.JPEG", answer)
    report = bench.run({"imagenet-c-bar": 1})
    assert number(report, "mean error").value == pytest.approx(40)
    result = report.result("imagenet-c-bar")
    assert result is not None
    assert [result.cells[f"sparkles/{s}"].counts["top1"] for s in range(1, 6)] == [1, 1, 1, 0, 0]


def entries(bench: Bench) -> list[Path]:
    assert bench.cache.folder is not None
    return list(bench.cache.folder.rglob("*.json"))


def never(*_: object) -> None:
    pytest.fail("evaluated again")


def v2(bench: Bench, count: int) -> Path:
    folder = bench.root / "imagenetv2-top-images-format-val"
    for index in range(count):
        paint(folder / str(index) / f"{index}.jpeg", index)
    return folder


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_counts_do_not_depend_on_the_batch_size(bench: Bench, batch_size: int) -> None:
    v2(bench, 7)
    bench.batch_size = batch_size
    top1 = number(bench.run({"imagenet-v2-top-images": 7}), "top-1")
    assert (top1.right, top1.images) == (7, 7)


def test_a_missing_image_withholds_the_number(bench: Bench) -> None:
    v2(bench, 3)
    report = bench.run({"imagenet-v2-top-images": 4})
    assert number(report, "top-1").value is None
    assert number(report, "top-1").note == "withheld: 3 images of 4"
    assert report.incomplete


def test_a_truncated_image_withholds_the_number_until_it_is_mended(bench: Bench) -> None:
    whole = v2(bench, 3) / "1/1.jpeg"
    content = whole.read_bytes()
    whole.write_bytes(content[: len(content) // 2])
    report = bench.run({"imagenet-v2-top-images": 3})
    assert number(report, "top-1").note == "withheld: 1 images unreadable: 1/1.jpeg"
    assert report.incomplete
    whole.write_bytes(content)
    assert number(bench.run({"imagenet-v2-top-images": 3}), "top-1").right == 3


def test_an_empty_folder_is_a_gap(bench: Bench) -> None:
    (bench.root / "imagenet-a").mkdir()
    report = bench.run({"imagenet-a": 7500})
    assert number(report, "top-1").note == "withheld: 0 images of 7500"
    assert report.incomplete


def test_a_strange_class_folder_withholds_the_number(bench: Bench) -> None:
    folder = v2(bench, 2)
    (folder / "1000").mkdir()
    report = bench.run({"imagenet-v2-top-images": 2})
    assert "1000 is no class folder" in number(report, "top-1").note


def test_a_resized_tree_withholds_the_number(bench: Bench) -> None:
    for severity in range(1, 6):
        paint(bench.root / f"imagenet-c/fog/{severity}/{wnid(0)}/x.JPEG", 0, 256)
    report = bench.run({"imagenet-c": 1})
    assert "of another size" in number(report, "CE fog").note


def test_files_without_their_names_get_no_real_number(bench: Bench) -> None:
    paint(bench.root / "val" / wnid(0) / "renamed.JPEG", 0)
    report = bench.run({"imagenet-val": 1})
    assert number(report, "top-1").value == 100
    assert number(report, "ReaL top-1").value is None
    assert report.incomplete


def test_a_subset_is_fixed_nested_and_named_at_every_number(bench: Bench) -> None:
    v2(bench, 8)
    few = bench.run({"imagenet-v2-top-images": 8}, max_images=3)
    top1 = number(few, "top-1")
    assert top1.images == 3
    assert top1.note.endswith("subset of 3 images of 8 in each cell")
    assert number(bench.run({"imagenet-v2-top-images": 8}, max_images=99), "top-1").images == 8


def test_a_subset_of_an_incomplete_tree_gives_no_number(bench: Bench) -> None:
    v2(bench, 4)
    report = bench.run({"imagenet-v2-top-images": 8}, max_images=3)
    assert number(report, "top-1").value is None


def test_an_absent_benchmark_that_was_asked_for_makes_the_answer_incomplete(bench: Bench) -> None:
    report = bench.run({"imagenet-r": 1})
    assert report.incomplete
    assert "looked for imagenet-r" in report.absent["imagenet-r"]


def test_a_damaged_cache_entry_is_redone_and_a_good_one_is_used(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    v2(bench, 2)
    ask = {"imagenet-v2-top-images": 2}
    first = bench.run(ask)
    (entry,) = entries(bench)
    monkeypatch.setattr(run, "run_cell", never)
    assert bench.run(ask).to_dict() == first.to_dict()
    monkeypatch.undo()
    damages = {
        entry: [entry.read_bytes().replace(b'"top1": 2', b'"top1": 1'), b"\x00half a file"],
        entry.with_suffix(".parquet"): [b"PAR1"],
    }
    for file, contents in damages.items():
        for content in contents:
            caplog.clear()
            file.write_bytes(content)
            assert bench.run(ask).to_dict() == first.to_dict()
            assert "is damaged" in caplog.text


def test_other_weights_start_anew(bench: Bench) -> None:
    v2(bench, 2)
    ask = {"imagenet-v2-top-images": 2}
    bench.run(ask)
    object.__setattr__(bench.subject, "weights", "0" * 64)
    bench.run(ask)
    assert len(entries(bench)) == 2


def test_generated_files_under_the_official_name_are_refused(bench: Bench) -> None:
    (bench.root / "imagenet-c").mkdir()
    made = json.dumps({"seed": 0, "frost": "procedural", "crop": True, "quality": 85})
    (bench.root / "imagenet-c/GENERATED.json").write_text(made)
    report = bench.run({"imagenet-c": 1})
    assert "generated images, not the released ones" in number(report, "mCE").note
