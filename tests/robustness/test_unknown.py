"""Suites of unknown images: where they lie, what is wrong with them, and what is told of them."""

import json
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from colour_trees import paint, wnid
from PIL import Image, ImageDraw, ImageFont

import train
from robustness import analyse
from robustness.cli import main
from robustness.data import benchmarks, labels
from robustness.data.benchmarks import choose
from robustness.data.own import read_benchmark
from robustness.data.sources import Places
from robustness.reporting.report import read_report
from robustness.rules import detection
from robustness.rules.confidence import confidences
from robustness.rules.metrics import metrics
from robustness.scores.files import file_of, read
from vit_ls.config import ConfigError


def openood(root: Path, name: str, lines: list[str], there: list[str]) -> None:
    lists = root / "openood/benchmark_imglist/imagenet"
    lists.mkdir(parents=True, exist_ok=True)
    (lists / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    for path in there:
        paint(root / "openood" / path, 3)


def listing(root: Path, suite: str) -> list[tuple[str, int]]:
    (row,) = choose([suite])
    source = Places(root).source(row)
    assert source is not None
    samples = source.listing("all").samples
    assert source.images == len(samples)
    return [(sample.key, sample.target) for sample in samples]


def test_openoods_lists_are_read_as_they_are_published(tmp_path: Path) -> None:
    name = "ninco/amphiuma means/a_000.jpeg"  # a space in a name is one of the name
    openood(tmp_path, "test_ninco", ["ninco/b/b_000.jpeg -1", f"{name} -1"],
            [f"images_largescale/{name}", "images_largescale/ninco/b/b_000.jpeg"])  # fmt: skip
    openood(tmp_path, "test_textures", ["texture/banded/x.jpg -1"],
            ["images_classic/texture/banded/x.jpg"])  # fmt: skip
    openood(tmp_path, "test_imagenet", ["imagenet_1k/val/ILSVRC2012_val_00000001.JPEG 65"],
            ["images_largescale/imagenet_1k/val/ILSVRC2012_val_00000001.JPEG"])  # fmt: skip
    assert listing(tmp_path, "openood-ninco") == [(name, -1), ("ninco/b/b_000.jpeg", -1)]
    assert listing(tmp_path, "openood-textures") == [("texture/banded/x.jpg", -1)]
    (clean,) = listing(tmp_path, "openood-imagenet")
    assert clean == ("imagenet_1k/val/ILSVRC2012_val_00000001.JPEG", 65)
    assert [row.name for row in choose(["openood"])][:2] == ["openood-imagenet", "openood-ssb-hard"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["ninco/a.jpeg -1", "ninco/gone.jpeg -1"], "names 1 images that are not in images_large"),
        (["ninco/a.jpeg 5"], "line 1 must be a path and -1, got 'ninco/a.jpeg 5'"),
        (["ninco/a.jpeg"], "line 1 must be a path and -1"),
        (["ninco/a.jpeg -1", "ninco/a.jpeg -1"], "line 2: ninco/a.jpeg is there twice"),
        ([], "names no image"),
    ],
)
def test_a_list_that_is_wrong_is_one_line(
    lines: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    openood(tmp_path, "test_ninco", lines, ["images_largescale/ninco/a.jpeg"])
    command = ["--model", "test_resnet", "--random-weights", "--data-root", str(tmp_path),
               "--suites", "openood-ninco", "--workers", "0",
               "--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]  # fmt: skip
    assert main(command) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1


def test_a_tree_of_unknown_images_is_read_deep_and_may_not_hold_known_classes(
    tmp_path: Path,
) -> None:
    (tmp_path / "o.yaml").write_text("name: odd\nlayout: unknown\nimages: 2\nnum_classes: 1000\n")
    row = read_benchmark(tmp_path / "o.yaml")
    paint(tmp_path / "data/odd/a/b/1.png", 1)
    paint(tmp_path / "data/odd/2.png", 1)
    (tmp_path / "data/odd/README.txt").write_text("words")
    (tmp_path / "data/odd/a/.hidden.png").write_text("x")
    source = Places(tmp_path / "data").source(row)
    assert source is not None
    found = source.listing("all")
    assert [sample.key for sample in found.samples] == ["2.png", "a/b/1.png"]
    assert not found.problems
    (tmp_path / "data/odd/a/x.gif").write_text("x")
    (gap,) = source.listing("all").problems
    assert gap.text == "1 files of an unknown type: a/x.gif"
    paint(tmp_path / "data/odd" / wnid(7) / "1.png", 1)
    with pytest.raises(ConfigError, match=f"must be of no class of ImageNet, got {wnid(7)}"):
        source.problems()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nlayout: unknown\nimages: 2\n", "lacks num_classes"),
        ("name: x\nlayout: unknown\nimages: 2\nnum_classes: 3\nclasses: 3\n", "takes no classes"),
        ("name: x\nlayout: unknown\nimages: 2\nnum_classes: 3\nrule: a\n", "takes no rule"),
    ],
)
def test_a_benchmark_of_unknown_images_has_no_classes(
    text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_benchmark(tmp_path / "x.yaml")


def test_the_200_classes_of_imagenet_o() -> None:
    kept = labels.subset_indices("o")
    assert len(set(kept)) == 200
    assert list(kept) == sorted(kept)
    assert kept[:3] == (1, 51, 70)  # goldfish, triceratops, harvestman


@pytest.mark.landing
def test_imagenet_o_is_judged_as_its_authors_script_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {name: benchmarks.BENCHMARKS[name] for name in ("imagenet-val", "imagenet-o")}
    for name, row in rows.items():
        monkeypatch.setitem(benchmarks.BENCHMARKS, name, replace(row, images=4))
    inside = [*labels.subset_indices("o")[:3], 0]  # class 0 is none of the 200
    for place, index in enumerate(inside):
        name = f"ILSVRC2012_val_{place + 1:08d}.png"
        paint(tmp_path / "data/imagenet/val" / wnid(index) / name, index)
    for place in range(4):
        paint(tmp_path / "data/imagenet-o" / wnid(1) / f"{place}.png", 40 * place)
    out = tmp_path / "out"
    command = ["--model", "test_resnet", "--random-weights", "--data-root", str(tmp_path / "data"),
               "--suites", *rows, "--workers", "0", "--keep", "both", "--img-size", "64",
               "--output", str(out), "--cache", str(tmp_path / "cache")]  # fmt: skip
    assert main(command) == 0
    assert analyse.main([str(out)]) == 0
    capsys.readouterr()
    lines = json.loads((out / "analysis.json").read_text())
    found = {line["name"]: line for line in lines if line["benchmark"] == "imagenet-o"}
    kept = list(labels.subset_indices("o"))
    known, other = (
        confidences(read(file_of(out, name, "all")).arrays["logits"].astype(float)[:, kept])
        for name in rows
    )
    # The images lie in the order of their names; the one of class 0 comes first.
    expected = 100 * detection.average_precision(known[1:], other)
    number = found["AUPR over its 200 classes"]
    assert number["value"] == pytest.approx(expected)
    assert "3 clean images of these classes" in number["note"]
    assert "needs two of each class" in found["AUROC, KNN"]["note"]
    assert found["AUROC, KNN"]["value"] is None


def draw_letters(folder: Path) -> int:
    """Drawn letters, none of which is a digit, light on dark as the digits are."""
    folder.mkdir(parents=True)
    font = ImageFont.load_default(size=26)
    letters = [x for x in string.ascii_letters if x not in "OoIlZzSsBbqg"]
    for place, letter in enumerate(letters):
        image = Image.new("RGB", (32, 32))
        ImageDraw.Draw(image).text((16, 16), letter, fill="white", font=font, anchor="mm")
        image.save(folder / f"{place:02d}.png")
    return len(letters)


def draw_noise(folder: Path, count: int) -> int:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for place in range(count):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(folder / f"{place}.png")
    return count


@pytest.mark.landing
def test_digits_are_told_from_letters_and_noise_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train.main(["--epochs", "6", "--output", str(run), "--workers", "0"])
    (checkpoint,) = run.rglob("model_best.pth.tar")
    for name, count in (
        ("letters", draw_letters(tmp_path / "data/letters")),
        ("noise", draw_noise(tmp_path / "data/noise", 60)),
    ):
        text = f"layout: unknown\nimages: {count}\nnum_classes: 10\nimage_size: 32\n"
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{text}")
    yaml = [str(tmp_path / f"{name}.yaml") for name in ("letters", "noise")]
    out = tmp_path / "out"
    command = ["--model", "test_vil_ls", "--checkpoint", str(checkpoint), "--img-size", "32",
               "--data-root", str(tmp_path / "data"), "--suites", "digits", "letters", "noise",
               "--benchmark", *yaml, "--keep", "both", "--workers", "0",
               "--output", str(out), "--cache", str(tmp_path / "cache"),
               "--fail-if", "digits:clean < 90", "letters:answered > 0"]  # fmt: skip
    assert main(command) == 3
    assert "gate failed: letters:answered > 0" in capsys.readouterr().err
    gates = read_report(out / "report.json").gates
    assert [gate.failed for gate in gates] == [False, True]
    assert analyse.main([str(out)]) == 0
    lines = json.loads((out / "analysis.json").read_text())
    found = {(x["benchmark"], x["cell"], x["name"]): x["value"] for x in lines}
    for suite in ("letters", "noise"):
        for method in ("maximum softmax", "energy", "KNN", "ViM"):
            assert found[suite, "all", f"AUROC, {method}"] > 60, (suite, method)
    temperature = found["digits", "all", "temperature"]
    assert 0.1 < temperature < 10
    assert found["digits", "all", "AURC"] < found["digits", "corruptions", "AURC"]
    clean = [m for m in metrics(read_report(out / "report.json")) if m.name == "top-1 clean"]
    assert found["digits", "all", "accuracy at 80 % coverage"] >= clean[0].value
