"""The commands: exit status, one-line errors, resuming, several processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import runs
import torch
from colour_trees import paint, wnid
from timm import create_model

from robustness import compare, corrupt
from robustness.cli import main

ROOT = Path(__file__).parents[2]
TRY = ["--model", "test_resnet", "--random-weights", "--workers", "0"]
DIGITS = [*TRY, "--img-size", "32", "--suites", "digits", "--max-images", "1"]


def out_of(folder: Path) -> list[str]:
    return ["--output", str(folder / "out"), "--cache", str(folder / "cache")]


def tree(root: Path, images: int = 2) -> Path:
    for index in range(images):
        paint(root / "imagenet-v2/imagenetv2-top-images-format-val" / str(index) / "x.jpeg", index)
        paint(root / "imagenet/val" / wnid(index) / f"ILSVRC2012_val_{index + 1:08d}.JPEG", index)
    return root


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data-root", "/nowhere"], "--data-root: no folder /nowhere"),
        ([], "--data-root is needed"),
        (["--suites", "imagenet-cc"], "did you mean 'imagenet-c'?"),
        (["--suites", "digits", "--max-images", "0"], "--max-images must be at least 1, got 0"),
        (["--suites", "digits", "--batch-size", "-1"], "--batch-size must be at least 1, got -1"),
        (["--suites", "digits", "--checkpoint", "x.pth"], "give one of --checkpoint"),
        (["--suites", "digits", "--frost-dir", "/nowhere"], "--frost-dir must hold"),
        (["--suites", "digits", "--num-classes", "7"], "needs a model of 10 classes"),
        (["--suites", "digits", "--model-kwargs", "width"], "must be KEY=VALUE, got 'width'"),
        (["--suites", "digits", "--model-kwargs", "wdth=3"], "cannot be built"),
        (["--suites", "digits", "--model", "test_resnett"], "did you mean 'test_resnet'?"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRY, *out_of(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1


def test_a_model_without_1000_classes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tree(tmp_path / "data"))
    assert main([*TRY, "--data-root", root, "--num-classes", "10", *out_of(tmp_path)]) == 2
    assert "needs a model of 1000 classes, got test_resnet with 10" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["other model", "damaged", "absent"])
def test_a_checkpoint_that_does_not_fit_is_refused(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "best.pth"
    if kind == "other model":
        torch.save(create_model("test_vit").state_dict(), file)
    elif kind == "damaged":
        file.write_bytes(b"no checkpoint")
    arguments = ["--model", "test_resnet", "--checkpoint", str(file), "--suites", "digits"]
    assert main([*arguments, *out_of(tmp_path)]) == 2
    words = {
        "other model": "must fit test_resnet, got one with",
        "damaged": "is no file of weights",
        "absent": "no file",
    }
    error = capsys.readouterr().err.strip()
    assert words[kind] in error
    assert len(error.splitlines()) == 1


def test_a_partial_tree_is_labelled_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tree(tmp_path / "data"))
    assert main([*TRY, "--data-root", root, *out_of(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "withheld: 2 images of 10000" in printed
    assert "imagenet-sketch: not found; looked for imagenet-sketch" in printed
    numbers = json.loads((tmp_path / "out/report.json").read_text())["numbers"]
    assert numbers
    assert all(number["value"] is None for number in numbers)


def test_dry_run_says_what_would_be_run_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tree(tmp_path / "data"))
    assert main([*TRY, "--data-root", root, "--dry-run", *out_of(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for words in ("weights sha256", "2 images in 1 cells", "transform: ", "cost: 4 images"):
        assert words in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.landing
def test_generated_equals_written_and_is_named(tmp_path: Path) -> None:
    root = tree(tmp_path / "data", images=1)
    command = ["--src", str(root / "imagenet/val"), "--dst", str(root / "imagenet-c-generated")]
    assert corrupt.main(command) == 0
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*.JPEG")}
    assert corrupt.main(command) == 0
    assert before == {p: p.stat().st_mtime_ns for p in root.rglob("*.JPEG")}
    assert corrupt.main([*command, "--seed", "1"]) == 2
    ask = [*TRY, "--data-root", str(root), "--suites", "imagenet-c-generated"]
    found = {}
    for kind, more in (("written", []), ("made", ["--generate"])):
        assert main([*ask, *more, *out_of(tmp_path / kind)]) == 1
        found[kind] = json.loads((tmp_path / kind / "out/report.json").read_text())["results"][0]
    assert found["made"]["cells"] == found["written"]["cells"]
    assert len(found["made"]["cells"]) == 95
    assert all("generated, seed 0, procedural frost" in r["label"] for r in found.values())


def test_corrupt_reports_unreadable_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paint(tmp_path / "src/a/good.png", 1)
    (tmp_path / "src/a/bad.png").write_bytes(b"nothing")
    arguments = ["--src", str(tmp_path / "src"), "--dst", str(tmp_path / "dst")]
    assert corrupt.main([*arguments, "--corruptions", "contrast", "--severities", "2"]) == 1
    assert "unreadable, left out: a/bad.png" in capsys.readouterr().err
    assert (tmp_path / "dst/contrast/2/a/good.png.JPEG").exists()
    assert corrupt.main(["--src", str(tmp_path / "none"), "--dst", "x"]) == 2


def test_doctor_names_every_fault_with_its_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree(tmp_path, images=12)
    paint(root / f"imagenet-c/fog/1/{wnid(0)}/x.JPEG", 0, 256)
    broken = root / "imagenet/val" / wnid(3) / "ILSVRC2012_val_00000004.JPEG"
    broken.write_bytes(broken.read_bytes()[:150])
    assert main(["--doctor", "--data-root", str(root), "--workers", "0"]) == 1
    lines = capsys.readouterr().out.splitlines()
    for words in (
        "imagenet-val: 12 images, not 50000; mend:",
        "imagenet-val: 1 unreadable files (n01491361/ILSVRC2012_val_00000004.JPEG); mend:",
        "sorted as strings, as ImageFolder does, 10 of 12 classes would be mislabelled",
        "fog/1: 1 images are not 224x224 but e.g. 256x256: the tree was resized; mend:",
        "imagenet-r: not found; looked for imagenet-r, ImageNet-R under",
    ):
        assert any(words in line for line in lines), words


@pytest.mark.landing
def test_comparison_works_when_a_model_lacks_a_benchmark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*DIGITS, *out_of(tmp_path)]) == 0
    root = str(tree(tmp_path / "data"))
    main([*TRY, "--data-root", root, *out_of(tmp_path / "b")])
    reports = [str(tmp_path / "out/report.json"), str(tmp_path / "b/out/report.json")]
    capsys.readouterr()
    assert compare.main([*reports, "--output", str(tmp_path / "both")]) == 0
    assert "| digits | mean error | lower | " in capsys.readouterr().out
    assert (tmp_path / "both/comparison.png").stat().st_size > 1000
    assert compare.main([str(tmp_path / "nothing.json")]) == 2
    (tmp_path / "list.json").write_text("[]")
    assert compare.main([str(tmp_path / "list.json")]) == 2


def files_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.mark.landing
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([*DIGITS, *out_of(whole)]) == 0

    run = runs.start([*DIGITS, *out_of(killed)], tmp_path / "log", script="robustness.cli")
    while run.exitcode is None and len(list((killed / "cache").rglob("*.json"))) < 5:
        time.sleep(0.01)
    run.kill()
    run.join()
    assert run.exitcode == -signal.SIGKILL
    assert main([*DIGITS, *out_of(killed)]) == 0
    assert files_of(killed / "out") == files_of(whole / "out")


@pytest.mark.landing
@pytest.mark.parametrize("images", [7, 2])  # of two, one process has none
def test_two_processes_count_the_same_integers_as_one(images: int, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    ask = [*TRY, "--data-root", str(tree(tmp_path / "data", images)), "--batch-size", "2"]
    ask += ["--keep", "both"]
    assert main([*ask, *out_of(one)]) == 1
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", "-m", "robustness", *ask]
    pipes = {"capture_output": True, "text": True}
    done = subprocess.run(
        [*command, *out_of(two)], cwd=ROOT, env=ENVIRONMENT, timeout=200, check=False, **pipes
    )
    # Gaps: both processes leave with status 1, none is ended by torchrun, and one speaks.
    assert done.returncode == 1
    assert done.stdout.count("written: ") == 1
    assert len(re.findall(r"exitcode *: 1 ", done.stderr)) == 2, done.stderr
    assert "-15" not in done.stderr
    assert files_of(two / "out") == files_of(one / "out")
    assert len(list((two / "out/scores").rglob("*.safetensors"))) == 3
    counts = json.loads((two / "out/report.json").read_text())["results"][0]["cells"]["all"]
    assert counts["counts"]["images"] == images
