"""One file, one reading: every program takes the same weights of it, and says which."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runs
import torch
from timm import create_model
from timm.data import create_transform

import papers.analysis
import publish
import validate
import vit_ls
import vit_ls.predict
import vit_ls.visualize.__main__ as visualize
from robustness.reporting.report import to_markdown
from robustness.rules.results import Report
from robustness.running.subject import build_subject
from vit_ls import data, export, weights
from vit_ls.config import ConfigError, TrainConfig
from vit_ls.run import load_weights, make_model, scores, which_weights
from vit_ls.train import make_teacher


def _validated(file: Path, asked: str, log: Path) -> tuple[float, str]:
    argv = ["--checkpoint", str(file), "--weights", asked, "--workers", "0"]
    assert runs.finish(argv, log, script="validate") == 0, log.read_text()
    found = re.search(r" weights=(\S+) .*val_top1=(\S+)", log.read_text())
    assert found is not None
    return float(found[2]), found[1]


def _robust(file: Path, asked: str, folder: Path, digits: Path) -> tuple[float, str, str]:
    """Top-1, which weights, and the report's text, of `python -m robustness`."""
    images = len(list((digits / "validation").rglob("*.png")))
    own = folder / "own.yaml"
    own.write_text(
        f"name: own\nfolder: validation\nlayout: classes\nclasses: 10\nimages: {images}\n"
        "protocol: model\n"
    )
    argv = ["--model", "test_vil_ls", "--checkpoint", str(file), "--weights", asked, "--suites"]
    argv += ["own", "--benchmark", str(own), "--data-root", str(digits), "--workers", "0"]
    argv += ["--output", str(folder / "out"), "--cache", str(folder / "cache")]
    assert runs.finish(argv, folder / "robust.log", script="robustness.cli") == 0
    report = Report.from_dict(
        {
            key: value
            for key, value in json.loads((folder / "out" / "report.json").read_text()).items()
            if key != "numbers"
        }
    )
    counts = report.results[0].cells["all"].counts
    accuracy = 100 * counts["top1"] / counts["images"]
    return accuracy, report.model["which"], to_markdown(report)


@pytest.mark.parametrize("asked", ["best", "ema", "raw"])
def test_validate_and_robustness_find_the_same_accuracy(
    asked: str, raw_best: Path, ema_best: Path, digit_folder: Path, tmp_path: Path
) -> None:
    files = {"raw": raw_best, "ema": ema_best} if asked == "best" else {asked: raw_best}
    for which, file in files.items():
        top1, said = _validated(file, asked, tmp_path / f"{which}.log")
        folder = tmp_path / which
        folder.mkdir()
        found, taken, text = _robust(file, asked, folder, digit_folder)
        assert found == pytest.approx(top1, abs=1e-3)
        assert said == taken == which
        assert f"checkpoint weights ({which}), sha256" in text
        recorded = {name: scores(raw_best, name)["top1"] for name in ("raw", "ema")}  # type: ignore[arg-type]
        assert recorded["raw"] > recorded["ema"] + 10, "which weights are taken does not matter"
        assert top1 == pytest.approx(recorded[which], abs=1e-3)


def test_the_key_of_the_cache_says_which_weights(raw_best: Path) -> None:
    subjects = {
        asked: build_subject("test_vil_ls", checkpoint=raw_best, weights=asked)
        for asked in ("best", "raw", "ema")
    }
    assert subjects["best"].identity == subjects["raw"].identity
    assert subjects["raw"].identity["which"] == "raw"
    assert subjects["ema"].identity["which"] == "ema"


TENSORS = {"weight": torch.ones(1)}
RUN = {"state_dict": TENSORS, "state_dict_ema": TENSORS, "epoch": 1}


@pytest.mark.parametrize(
    ("content", "best"),
    [
        (TENSORS, "raw"),
        ({"model": TENSORS, "model_ema": TENSORS}, "raw"),
        ({"model_ema": TENSORS}, "ema"),
        ({"state_dict": {"model": TENSORS, "model_ema": TENSORS}}, "raw"),
        (RUN | {"args": {"model_ema": True}, "summary": []}, "raw"),
        *(
            (
                RUN
                | {
                    "args": {"model_ema": True, "eval_metric": metric},
                    "summary": [{f"eval_{metric}": plain, f"eval_ema_{metric}": average}],
                },
                best,
            )
            for metric, plain, average, best in (
                ("top1", 50.0, 51.0, "ema"),
                ("top1", 51.0, 50.0, "raw"),
                ("top1", 50.0, 50.0, "raw"),
                ("loss", 0.5, 0.4, "ema"),
                ("loss", 0.4, 0.5, "raw"),
            )
        ),
    ],
)
def test_the_best_weights_are_those_that_the_run_scored_best_with(
    content: dict[str, Any], best: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.pth"
    torch.save(content, path)
    assert which_weights(path) == best


def test_weights_that_a_file_does_not_hold_are_refused(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "plain.pth")
    torch.save({"model_ema": TENSORS}, tmp_path / "average.pth")
    with pytest.raises(ConfigError, match=r"^--weights ema: .*plain.pth holds no averaged weights"):
        which_weights(tmp_path / "plain.pth", "ema")
    with pytest.raises(ConfigError, match=r"^--weights raw: .* holds nothing but averaged weights"):
        which_weights(tmp_path / "average.pth", "raw")
    with pytest.raises(ConfigError, match="--weights must be one of best, ema, raw, got 'mean'"):
        which_weights(tmp_path / "plain.pth", "mean")


@pytest.mark.parametrize(
    "start",
    [
        lambda c: make_model(create_model, TrainConfig(pretrained_path=c, **STUDENT)),
        lambda c: make_model(create_model, TrainConfig(initial_checkpoint=c, **STUDENT)),
        lambda c: make_teacher(
            create_model,
            TrainConfig(kd_model_name="test_vil_ls", kd_model_path=c, **STUDENT),
        ),
        lambda c: vit_ls.load(c),
        lambda c: build_subject("test_vil_ls", checkpoint=Path(c)).model,
    ],
    ids=["pretrained-path", "initial-checkpoint", "teacher", "load", "robustness"],
)
def test_every_program_takes_the_best_weights(
    start: Callable[[str], torch.nn.Module], raw_best: Path, ema_best: Path
) -> None:
    content = torch.load(raw_best, weights_only=True)
    for file, key in ((raw_best, "state_dict"), (ema_best, "state_dict_ema")):
        state = start(str(file)).state_dict()
        assert all(torch.equal(state[name], value) for name, value in content[key].items())
    assert not torch.equal(
        content["state_dict"]["head.fc.weight"], content["state_dict_ema"]["head.fc.weight"]
    )


STUDENT: dict[str, Any] = {"model": "test_vil_ls", "num_classes": 10, "img_size": 32}


@pytest.mark.landing
@pytest.mark.parametrize("asked", ["best", "ema"])
def test_programs_say_which_weights_they_took(
    asked: str, raw_best: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    which = {"best": "raw", "ema": "ema"}[asked]
    common = ["--checkpoint", str(raw_best), "--weights", asked]
    publish.main([*common, "--name", "digits", "--out", str(tmp_path / "hub")])
    assert f"weights: {which}\n" in capsys.readouterr().out
    card = (tmp_path / "hub" / "README.md").read_text()
    top1 = scores(raw_best, which)["top1"]  # type: ignore[arg-type]
    assert f"| top1 | {top1} |" in card
    (photo,) = (raw_best.parent).glob("curves.png")
    vit_ls.predict.main([str(photo), *common])
    assert capsys.readouterr().out.startswith(f"{photo} ({raw_best}, {which} weights)\n")
    visualize.main([*common, "--model", "test_vil_ls", "--out", str(tmp_path / "maps")])
    assert f"{which} weights)" in capsys.readouterr().out
    argv = [*common, "--models", "test_vil_ls", "--only", "shares", "--digits"]
    papers.analysis.main([*argv, "--out", str(tmp_path / "analysis")])
    assert f"{which} weights" in (tmp_path / "analysis" / "shares.csv").read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "candidates", lambda _: iter([FITS]))
        weights.main([str(raw_best), "--weights", asked])
    assert f", {which} weights, " in capsys.readouterr().out


FITS = weights.Candidate("x", weights.Fit("x", "x", {}))


@pytest.mark.landing
def test_an_export_says_which_weights_it_took(
    raw_best: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--model", "test_vil_ls", "--checkpoint", str(raw_best), "--weights", "ema"]
    export.main([*argv, "--static-size", "--out", str(tmp_path / "model.pt2")])
    assert ", ema weights\n" in capsys.readouterr().out
    images = torch.randn(1, 3, 32, 32)
    exported = torch.export.load(tmp_path / "model.pt2").module()
    with torch.inference_mode():
        wanted = vit_ls.load(raw_best, weights="ema")(images)
    torch.testing.assert_close(exported(images), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--use-ema", "--weights", "raw"], "--use-ema contradicts --weights raw."),
        (["--no-use-ema", "--weights", "best"], "--no-use-ema contradicts --weights best."),
        (["--num-classes", "12"], "--num-classes must be 10, as .* has, got 12."),
        (["--in-chans", "1"], "--in-chans must be 3, as .* has, got 1."),
        (["--pretrained"], "--checkpoint cannot go with --pretrained or --pretrained-path"),
        (["--weights", "mean"], "--weights must be one of 'best', 'ema', 'raw', got 'mean'"),
    ],
)
def test_what_contradicts_the_checkpoint_is_one_line_with_status_2(
    flags: list[str], message: str, raw_best: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    argv = ["--checkpoint", str(raw_best), "--workers", "0", *flags]
    assert runs.finish(argv, log, script="validate") == 2, log.read_text()
    assert re.search(message, log.read_text().splitlines()[-1])
    assert "Traceback" not in log.read_text()


@pytest.mark.landing
def test_timm_s_name_of_the_flag_means_the_same(raw_best: Path, tmp_path: Path) -> None:
    for flag, which in (("--use-ema", "ema"), ("--no-use-ema", "raw")):
        log = tmp_path / which
        argv = ["--checkpoint", str(raw_best), "--workers", "0", flag]
        assert runs.finish(argv, log, script="validate") == 0, log.read_text()
        assert f" weights={which} " in log.read_text()


def test_a_row_of_results_says_which_weights(raw_best: Path, tmp_path: Path) -> None:
    table, log = tmp_path / "results.csv", tmp_path / "log"
    argv = ["--checkpoint", str(raw_best), "--workers", "0", "--results-file", str(table)]
    assert runs.finish([*argv, "--weights", "ema"], log, script="validate") == 0
    head, row = (line.split(",") for line in table.read_text().splitlines())
    assert dict(zip(head, row, strict=True))["weights"] == "ema"


def test_a_loaded_model_is_that_of_its_run(raw_best: Path) -> None:
    model = vit_ls.load(str(raw_best))
    assert not model.training
    run = model.run
    assert (run.path, run.weights, run.config["model"]) == (raw_best, "raw", "test_vil_ls")
    assert run.classes == {str(label): label for label in range(10)}
    config = validate._parse_args(["--checkpoint", str(raw_best)])
    same = make_model(create_model, config)
    load_weights(same, raw_best)
    assert run.data_config == data.input_config(config, same, use_test_size=True)
    assert create_transform(**run.data_config).transforms
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(model(images), same.eval()(images))
    with pytest.raises(AttributeError):
        run.weights = "ema"


def test_what_is_of_no_run_is_refused(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "plain.pth")
    with pytest.raises(ValueError, match=r"is of no run of train\.py"):
        vit_ls.load(tmp_path / "plain.pth")
    with pytest.raises(RuntimeError, match="no such file"):
        vit_ls.load(tmp_path / "nowhere.pth")
    with pytest.raises(ConfigError, match=r"^--weights ema: .* holds no averaged weights"):
        model = create_model("test_vil_ls", num_classes=10)
        torch.save(model.state_dict(), tmp_path / "model.pth")
        build_subject(
            "test_vil_ls", checkpoint=tmp_path / "model.pth", num_classes=10, weights="ema"
        )


@pytest.mark.landing
def test_importing_the_package_does_not_import_runs_and_data() -> None:
    rooms = ("run", "data", "config", "train", "evaluate")
    code = f"import sys, vit_ls; print([m for m in {rooms} if f'vit_ls.{{m}}' in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_run_with_more_classes_than_its_data_is_validated(
    digit_folder: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few"
    for split in ("train", "validation"):
        for label in "0123":
            (few / split).mkdir(parents=True, exist_ok=True)
            (few / split / label).symlink_to(digit_folder / split / label)
    argv = [str(few), "--model", "test_vil_ls", "--img-size", "32", "--workers", "0", "-b", "16"]
    argv += ["--num-classes", "9", "--epochs", "1", "--warmup-epochs", "0", "--no-aug"]
    log = tmp_path / "log"
    assert runs.finish([*argv, "--output", str(tmp_path), "--experiment", "run"], log) == 0
    trained = re.search(r"best val_top1=(\S+)", log.read_text())
    assert trained is not None
    top1, _ = _validated(tmp_path / "run" / "last.pth.tar", "best", tmp_path / "validated")
    assert top1 == float(trained[1])


@pytest.mark.parametrize("other", ["--pretrained-path", "--pretrained"])
def test_two_starts_of_one_run_are_refused_by_name(
    other: str, raw_best: Path, tmp_path: Path
) -> None:
    argv = ["--dataset", "digits", "--model", "test_vil_ls", "--initial-checkpoint", str(raw_best)]
    argv += [other] if other == "--pretrained" else [other, str(raw_best)]
    log = tmp_path / "log"
    assert runs.finish([*argv, "--output", str(tmp_path / "runs")], log) == 2
    assert log.read_text().splitlines()[-1] == (
        f"train.py: --initial-checkpoint cannot go with {other}: a run has one start."
    )
    assert not (tmp_path / "runs").exists()


def test_token_distillation_without_a_token_is_one_line_and_leaves_nothing(
    digit_folder: Path, raw_best: Path, tmp_path: Path
) -> None:
    argv = [str(digit_folder), *("--model", "test_vil_ls", "--img-size", "32", "--workers", "0")]
    argv += ["--kd-model-name", "test_vil_ls", "--kd-model-path", str(raw_best)]
    argv += ["-b", "16", "--kd-distill-type", "token", "--output", str(tmp_path / "runs")]
    log = tmp_path / "log"
    assert runs.finish(argv, log) == 2, log.read_text()
    assert "needs a model with a distillation token" in log.read_text().splitlines()[-1]
    assert "Traceback" not in log.read_text()
    assert not (tmp_path / "runs").exists()
