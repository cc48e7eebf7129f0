"""An evaluation's labels are those of the weights, and weights are never random in silence."""

import csv
import re
import shutil
import time
from pathlib import Path

import pytest
import runs
import torch
from timm import create_model

MODEL = ["--model", "test_vil_ls", "--img-size", "32", "--workers", "0", "-b", "16"]
RECIPE = ["--opt", "adamw", "--lr", "3e-3", "--warmup-epochs", "0", "--no-aug", "--epochs", "4"]


@pytest.fixture(scope="module")
def run(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on ten classes that has learnt something."""
    root = tmp_path_factory.mktemp("runs")
    argv = [str(digit_folder), *MODEL, *RECIPE, "--output", str(root), "--experiment", "ten"]
    log = root / "log"
    assert runs.finish(argv, log) == 0, log.read_text()
    return root / "ten"


def _without(digit_folder: Path, root: Path, label: str) -> Path:
    shutil.copytree(digit_folder, root)
    for split in ("train", "validation"):
        shutil.rmtree(root / split / label)
    return root


def _validated(tmp_path: Path, *argv: str) -> tuple[int, str]:
    log = tmp_path / f"validate-{time.monotonic_ns()}.log"
    status = runs.finish([*argv, "--workers", "0"], log, script="validate")
    return status, log.read_text()


def _refused(tmp_path: Path, *argv: str) -> str:
    status, text = _validated(tmp_path, *argv)
    assert status == 2, text
    # What was taken from the weights may stand before the one line of the error.
    assert text.count("validate.py: ") == 1, text
    assert text.splitlines()[-1].startswith("validate.py: "), text
    return text


def test_held_out_images_without_the_first_class_keep_the_labels_of_the_run(
    run: Path, digit_folder: Path, tmp_path: Path
) -> None:
    checkpoint, table = str(run / "model_best.pth.tar"), tmp_path / "classes.csv"
    status, _ = _validated(tmp_path, "--checkpoint", checkpoint, "--per-class", str(table))
    assert status == 0
    with table.open() as file:
        rest = [row for row in csv.DictReader(file) if row["name"] != "0"]
    hits = sum(int(row["images"]) * float(row["top1"]) / 100 for row in rest)
    wanted = 100 * hits / sum(int(row["images"]) for row in rest)
    assert wanted > 20, "the run has learnt nothing, so labels do not matter"

    nine = _without(digit_folder, tmp_path / "nine", "0")
    status, text = _validated(tmp_path, str(nine), "--checkpoint", checkpoint)
    assert status == 0, text
    assert "the labels are those of the weights, which have 10 classes." in text
    found = re.search(r"val_top1=(\S+)", text)
    assert found is not None
    assert float(found[1]) == pytest.approx(wanted, abs=1e-2)


def test_a_class_that_the_weights_do_not_know_is_refused(
    run: Path, digit_folder: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(digit_folder, odd)
    (odd / "validation" / "0").rename(odd / "validation" / "zero")
    checkpoint = str(run / "model_best.pth.tar")
    text = _refused(tmp_path, str(odd), "--checkpoint", checkpoint)
    assert "the data's classes are not those of the weights" in text
    assert "the data has 'zero'; --class-map FILE says which is which." in text
    names = tmp_path / "names.txt"
    names.write_text("\n".join(["zero", *map(str, range(1, 10))]))
    numbers = []
    for argv in (["--class-map", str(names), str(odd)], [str(digit_folder)]):
        status, text = _validated(tmp_path, *argv, "--checkpoint", checkpoint)
        assert status == 0, text
        numbers.append(re.findall(r"val_\w+=(\S+)", text))
    assert numbers[0] == numbers[1]


def test_weights_without_names_need_as_many_classes_as_the_data(
    run: Path, digit_folder: Path, tmp_path: Path
) -> None:
    weights = torch.load(run / "last.pth.tar", weights_only=True)["state_dict"]
    torch.save(weights, tmp_path / "plain.pth")
    nine = _without(digit_folder, tmp_path / "nine", "0")
    argv = [*MODEL, "--num-classes", "10", "--checkpoint", str(tmp_path / "plain.pth")]
    text = _refused(tmp_path, str(nine), *argv)
    assert "the data has 9 classes and the weights 10" in text
    status, text = _validated(tmp_path, str(digit_folder), *argv)
    assert status == 0, text


def test_a_pretrained_classifier_is_never_replaced_by_a_random_one(
    digit_folder: Path, tmp_path: Path
) -> None:
    torch.save(create_model("test_resnet").state_dict(), tmp_path / "plain.pth")
    argv = [str(digit_folder), "--model", "test_resnet", "--img-size", "32"]
    argv += ["--pretrained-path", str(tmp_path / "plain.pth")]
    assert "the classifier would be random" in _refused(tmp_path, *argv, "--num-classes", "10")
    assert "the data has 10 classes and the weights 1000" in _refused(tmp_path, *argv)


def test_random_weights_are_evaluated_only_when_asked_for(tmp_path: Path) -> None:
    assert "must say which weights to evaluate" in _refused(tmp_path, *MODEL)
    status, text = _validated(tmp_path, *MODEL, "--random-weights")
    assert status == 0
    assert "images=364" in text
    same = _validated(tmp_path, *MODEL, "--random-weights", "--seed", "42")[1]
    other = _validated(tmp_path, *MODEL, "--random-weights", "--seed", "43")[1]
    loss = re.compile(r"val_loss=(\S+)").findall
    assert loss(text) == loss(same) != loss(other)


def test_an_average_that_is_not_there_is_an_error(run: Path, tmp_path: Path) -> None:
    text = _refused(tmp_path, "--use-ema", "--checkpoint", str(run / "last.pth.tar"))
    assert "last.pth.tar holds no averaged weights." in text


def test_a_recovery_file_of_the_first_epoch_of_a_run_with_an_average_is_evaluated(
    digit_folder: Path, tmp_path: Path
) -> None:
    argv = [str(digit_folder), *MODEL, *RECIPE, "--model-ema", "--no-model-ema-warmup"]
    argv += ["--recovery-interval", "1", "--epochs", "99"]
    log = tmp_path / "log"
    process = runs.start([*argv, "--output", str(tmp_path), "--experiment", "run"], log)
    found: list[Path] = []
    while not found:
        assert process.is_alive(), log.read_text()
        time.sleep(0.02)
        found = list((tmp_path / "run").glob("recovery-0-3*.pth.tar"))
    kept = tmp_path / "kept.pth.tar"
    shutil.copy(found[0], kept)
    process.kill()
    process.join()
    # Whatever the average is after one update, it lags behind after three.
    assert torch.load(kept, weights_only=True)["summary"] == []
    numbers = {}
    for flags in ((), ("--no-use-ema",), ("--use-ema",)):
        status, text = _validated(tmp_path, "--checkpoint", str(kept), *flags)
        assert status == 0, text
        numbers[flags] = re.findall(r"val_\w+=(\S+)", text)
    assert numbers[()] == numbers[("--no-use-ema",)] != numbers[("--use-ema",)]


def test_rows_of_other_settings_keep_the_columns_of_a_results_file(
    run: Path, tmp_path: Path
) -> None:
    log = tmp_path / "results.csv"
    argv = ["--checkpoint", str(run / "last.pth.tar"), "--results-file", str(log)]
    assert _validated(tmp_path, *argv)[0] == 0
    first = log.read_text()
    lines = first.splitlines()
    log.write_text(f"{lines[0]},extra\n{lines[1]},7\n")
    assert _validated(tmp_path, *argv, "--img-size", "48")[0] == 0
    with log.open(newline="") as file:
        known, new = csv.DictReader(file)
    assert (known["extra"], new["extra"]) == ("7", "")
    log.write_text("model,val_top1\nold,12.5\n")
    assert _validated(tmp_path, *argv)[0] == 0
    with log.open(newline="") as file:
        old, new = csv.DictReader(file)
    assert (old["model"], old["val_top1"], old["images"]) == ("old", "12.5", "")
    assert {**new, "images_s": ""} == {**next(csv.DictReader(first.splitlines())), "images_s": ""}


def test_a_file_that_holds_no_results_is_left_alone(run: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("do not lose me\n")
    argv = ["--checkpoint", str(run / "last.pth.tar"), "--results-file", str(notes)]
    assert "is no file of results" in _refused(tmp_path, *argv)
    assert notes.read_text() == "do not lose me\n"


def test_a_run_is_not_continued_on_other_classes(
    run: Path, digit_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(digit_folder, other)
    for split in ("train", "validation"):
        (other / split / "0").rename(other / split / "zero")
    argv = [str(other), *MODEL, *RECIPE, "--resume", str(run / "last.pth.tar")]
    log = tmp_path / "log"
    assert runs.finish([*argv, "--output", str(tmp_path / "o")], log) == 2
    assert "--resume: " in log.read_text()


def test_fine_tuning_on_other_classes_starts_the_classifier_anew(
    run: Path, digit_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(digit_folder, other)
    for split in ("train", "validation"):
        (other / split / "0").rename(other / split / "zero")
    argv = [*MODEL, *RECIPE[:-2], "--epochs", "1", "--pretrained-path", str(run / "last.pth.tar")]
    for root, anew in ((other, True), (digit_folder, False)):
        log = tmp_path / f"{anew}.log"
        assert runs.finish([str(root), *argv, "--output", str(tmp_path / "o")], log) == 0
        assert ("the classifier starts anew" in log.read_text()) is anew
