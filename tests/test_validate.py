"""validate.py: what it reports, in one process and two, and at other resolutions."""

import csv
import json
import re
from pathlib import Path

import pytest
import runs
import torch
from timm import create_model

import validate
from vit_ls.config import ConfigError
from vit_ls.evaluate import results
from vit_ls.evaluate.counting import PerImage


def _validated(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, str]:
    validate.main(["--workers", "0", *argv])
    line = capsys.readouterr().out.splitlines()[-1]
    return dict(part.split("=", 1) for part in line.split(" "))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Plain weights, as timm saves them."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "plain.pth"
    torch.save(create_model("test_vil_ls", num_classes=10).state_dict(), path)
    return str(path)


def test_any_timm_model_is_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    row = _validated(capsys, "--model", "test_resnet", "--img-size", "32", "--random-weights")
    assert row["images"] == "364"
    assert 0 <= float(row["val_top1"]) <= float(row["val_top5"]) <= 100
    assert float(row["images_s"]) > 0


@pytest.mark.landing
def test_batch_size_and_processes_do_not_change_the_result(
    capsys: pytest.CaptureFixture[str], checkpoint: str, tmp_path: Path
) -> None:
    argv = ["--model", "test_vil_ls", "--checkpoint", checkpoint]
    rows = [_validated(capsys, *argv, "-b", batch) for batch in ("364", "25")]
    log = tmp_path / "two.log"
    processes = runs.start_two("validate", [*argv, "--workers", "0", "-b", "50"], log)
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0], log.read_text()
    found = re.search(r"images=(\S+) val_loss=(\S+) val_top1=(\S+) val_top5=(\S+)", log.read_text())
    assert found is not None
    for row in rows:
        assert found.groups() == tuple(
            row[name] for name in ("images", "val_loss", "val_top1", "val_top5")
        )


@pytest.mark.landing
@pytest.mark.parametrize("size", ["384", "448"])
def test_models_are_evaluated_at_higher_resolutions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, size: str
) -> None:
    from vit_ls.data.digits import Digits

    for label in range(2):
        folder = tmp_path / "validation" / str(label)
        folder.mkdir(parents=True)
        Digits(held_out=True)[label][0].save(folder / "0.png")
    argv = ["--model", "vil_ls_tiny", "--img-size", size, "--random-weights"]
    row = _validated(capsys, str(tmp_path), *argv)
    assert (row["img_size"], row["images"]) == (size, "2")


@pytest.mark.landing
def test_a_checkpoint_is_evaluated_at_another_resolution(
    capsys: pytest.CaptureFixture[str], checkpoint: str, tmp_path: Path
) -> None:
    argv = ["--model", "test_vil_ls", "--img-size", "64", "--checkpoint"]
    found = _validated(capsys, *argv, checkpoint)
    larger = create_model("test_vil_ls", num_classes=10, img_size=64)
    weights = torch.load(checkpoint, weights_only=True)
    assert any(weights[name].shape != value.shape for name, value in larger.state_dict().items())
    torch.save(larger.fit_state_dict(weights), tmp_path / "larger.pth")
    wanted = _validated(capsys, *argv, str(tmp_path / "larger.pth"))
    assert found | {"images_s": ""} == wanted | {"images_s": ""}


def test_accuracy_per_class_adds_up(
    capsys: pytest.CaptureFixture[str], checkpoint: str, tmp_path: Path
) -> None:
    table, log = tmp_path / "classes.csv", tmp_path / "results.csv"
    argv = ["--model", "test_vil_ls", "--checkpoint", checkpoint, "--per-class", str(table)]
    row = _validated(capsys, *argv, "--results-file", str(log))
    with table.open() as file:
        classes = list(csv.DictReader(file))
    assert [one["name"] for one in classes] == [str(label) for label in range(10)]
    images = sum(int(one["images"]) for one in classes)
    hits = sum(int(one["images"]) * float(one["top1"]) / 100 for one in classes)
    assert images == 364
    assert 100 * hits / images == pytest.approx(float(row["val_top1"]), abs=1e-2)
    assert log.read_text().count("\n") == 2


def test_rows_of_results_say_what_was_evaluated_and_how(
    capsys: pytest.CaptureFixture[str], checkpoint: str, tmp_path: Path
) -> None:
    file = tmp_path / "results.csv"
    argv = ["--model", "test_vil_ls", "--checkpoint", checkpoint, "--results-file", str(file)]
    for more in (["--img-size", "16"], ["--amp"], ["--amp", "--amp-dtype", "float16"]):
        row = _validated(capsys, *argv, *more)
        with file.open() as opened:
            written = list(csv.DictReader(opened))[-1]
        assert written == {"checkpoint": checkpoint, **row}
    with file.open() as opened:
        rows = list(csv.DictReader(opened))
    assert [(row["img_size"], row["amp"]) for row in rows] == [
        ("16", "off"),
        ("32", "bfloat16"),
        ("32", "float16"),
    ]


def test_real_labels_accept_any_of_an_images_labels(tmp_path: Path) -> None:
    labels = tmp_path / "real.json"
    labels.write_text(json.dumps([[1, 2], [], [3], [4]]))
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in (3, 1, 2, 4)]
    predictions = torch.tensor([[3, 0], [2, 0], [9, 0], [0, 4]])
    evaluation = PerImage(predictions, torch.zeros(4, dtype=torch.long))
    wanted = results.real_labels_of(lambda: names, str(labels))
    top1, top5 = results.real_accuracy(evaluation, wanted)
    assert top1 == pytest.approx(200 / 3)  # of three images with labels, two are right
    assert top5 == 100
    for other in ("a.png", "ILSVRC2012_val_00000000.JPEG", "ILSVRC2012_val_00000005.JPEG"):
        with pytest.raises(ConfigError, match="needs ImageNet's validation images"):
            results.real_labels_of(lambda other=other: [*names[:3], other], str(labels))


@pytest.mark.parametrize(
    ("text", "message"),
    [("no labels", "not JSON"), ("[1, 2]", "must hold a list of labels for each image")],
)
def test_real_labels_that_are_none_are_refused_before_the_evaluation(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "real.json").write_text(text)
    argv = ["--model", "test_vil_ls", "--random-weights", "--real-labels"]
    log = tmp_path / "log"
    assert runs.finish([*argv, str(tmp_path / "real.json")], log, script="validate") == 2
    assert log.read_text().count("\n") == 1
    assert f"real.json: {message}" in log.read_text()


def test_real_labels_need_file_names_before_the_evaluation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labels = tmp_path / "real.json"
    labels.write_text("[[1]]")
    monkeypatch.setattr(validate, "build", lambda *_: pytest.fail("the model was built"))
    argv = ["--model", "test_vil_ls", "--random-weights", "--dataset", "digits", "--device", "cpu"]
    with pytest.raises(ConfigError, match=r"^--real-labels .*no file names"):
        validate.main([*argv, "--real-labels", str(labels)])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--checkpoint", "nowhere.pth"], "nowhere.pth cannot be read: no such file"),
        (["--model", "test_vil_lz"], "got 'test_vil_lz'; did you mean 'test_vil_ls'?"),
        (
            ["--dataset", "torch/cifar10", "--data-dir", "DIR", "--random-weights"],
            "cannot be opened",
        ),
        (["--torchcompile", "fast"], "--torchcompile fast cannot be used: Invalid backend"),
        (["/no/folder", "--random-weights"], "--data-dir /no/folder: no such folder or file."),
    ],
)
def test_a_mistake_is_one_line_with_status_2(tmp_path: Path, argv: list[str], message: str) -> None:
    log = tmp_path / "log"
    argv = [str(tmp_path) if word == "DIR" else word for word in argv]
    assert runs.finish(argv, log, script="validate") == 2
    assert message in log.read_text()
    assert "Traceback" not in log.read_text()
