"""Fine-tuning is one command: other classes or resolution, frozen backbone, layer-wise rates."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from timm import create_model
from torch import Tensor, nn

import train
from vit_ls import job
from vit_ls.config import ConfigError, TrainConfig, read
from vit_ls.evaluate.counting import evaluate
from vit_ls.run import load_weights, make_model, read_checkpoint
from vit_ls.train import evaluating, make_optimizer, make_teacher

MODEL = ["--model", "test_vil_ls", "--workers", "0", "--opt", "adamw", "--lr", "1e-3", "-b", "16"]


def _trained(images: Path, folder: Path, *flags: str) -> dict[str, Tensor]:
    argv = [str(images), "--output", str(folder.parent), "--experiment", folder.name, *MODEL]
    train.main([*argv, "--epochs", "1", *flags])
    weights: dict[str, Tensor] = read_checkpoint(folder / "last.pth.tar")["state_dict"]
    return weights


@pytest.fixture(scope="module")
def pretrained(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    _trained(digit_folder, folder, "--img-size", "32")
    return folder / "last.pth.tar"


@pytest.fixture(scope="module")
def three_classes(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("three")
    for split in ("train", "validation"):
        for label in "012":
            shutil.copytree(digit_folder / split / label, root / split / label)
    return root


@pytest.fixture(scope="module")
def teacher(three_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher") / "run"
    flags = ["--img-size", "32", "--mean", "0.4", "--model-kwargs", "rank=2"]
    _trained(three_classes, folder, *flags)
    return folder / "last.pth.tar"


def test_a_frozen_backbone_keeps_its_weights_and_the_new_classifier_learns(
    three_classes: Path, pretrained: Path, tmp_path: Path
) -> None:
    flags = ["--pretrained-path", str(pretrained), "--freeze", "backbone", "--img-size", "32"]
    weights = _trained(three_classes, tmp_path / "run", *flags)
    before = read_checkpoint(pretrained)["state_dict"]
    changed = [name for name in weights if not torch.equal(weights[name], before[name])]
    assert changed == [name for name in weights if name.startswith("head.fc.")]
    assert weights["head.fc.weight"].shape[0] == 3


def test_a_classifier_that_fits_is_kept_and_tables_take_the_new_resolution(
    pretrained: Path,
) -> None:
    argv = ["--pretrained-path", str(pretrained), "--num-classes", "10", "--img-size", "64", *MODEL]
    config, _ = read(train.parser, TrainConfig, argv)
    model = make_model(create_model, config)
    before = read_checkpoint(pretrained)["state_dict"]
    after = model.state_dict()
    assert torch.equal(after["head.fc.weight"], before["head.fc.weight"])
    resized = [name for name in after if after[name].shape != before[name].shape]
    assert resized
    assert all("position_bias" in name for name in resized)
    assert model(torch.zeros(1, 3, 64, 64)).isfinite().all()


def test_layer_decay_lowers_the_rate_towards_the_stem() -> None:
    config, _ = read(train.parser, TrainConfig, ["--layer-decay", "0.5", *MODEL])
    model = create_model("test_vil_ls")
    optimizer = make_optimizer(model, config, 1)
    scales = {
        id(parameter): group["lr_scale"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    stem, head = model.stages[0].embed.proj.weight, model.get_classifier().weight
    assert scales[id(head)] == 1
    assert scales[id(stem)] == min(scales.values()) < 0.5
    assert len(set(scales.values())) > len(model.stages)


def test_a_file_of_another_architecture_is_refused_in_one_line(
    three_classes: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.pth"
    torch.save(create_model("test_resnet").state_dict(), path)
    with pytest.raises(ConfigError, match="model test_vil_ls cannot be built: ") as error:
        _trained(three_classes, tmp_path / "run", "--pretrained-path", str(path))
    assert "\n" not in str(error.value)


def _taught(teacher: Path, *more: str) -> tuple[TrainConfig, Any]:
    argv = [*MODEL, "--kd-model-name", "test_vil_ls", "--kd-model-path", str(teacher), *more]
    config, _ = read(train.parser, TrainConfig, argv)
    classes = {"0": 0, "1": 1, "2": 2}
    return config, make_teacher(
        create_model, replace(config, num_classes=config.num_classes or 3), classes=classes
    )


def test_a_teacher_is_as_its_run_built_it_and_keeps_its_classifier(teacher: Path) -> None:
    _, model = _taught(teacher)
    before = read_checkpoint(teacher)["state_dict"]
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert model.pretrained_cfg["mean"] == (0.4, 0.4, 0.4)


def test_a_teacher_sees_the_student_s_images_as_it_was_trained_to(
    three_classes: Path, teacher: Path, tmp_path: Path
) -> None:
    argv = [str(three_classes), "--output", str(tmp_path), *MODEL, "--std", "0.2", "--epochs", "1"]
    argv += ["--img-size", "32", "--kd-model-name", "test_vil_ls", "--kd-model-path", str(teacher)]
    trainer = train.build(read(train.parser, TrainConfig, argv)[0], job.join("cpu", 60))
    try:
        pixels, task = torch.rand(2, 3, 32, 32), cast("Any", trainer.task)
        mean = torch.tensor(create_model("test_vil_ls").pretrained_cfg["mean"]).view(3, 1, 1)
        seen = task.teacher.normalize_input(
            (pixels - mean) / 0.2, task.student_mean, task.student_std
        )
    finally:
        trainer.keeper.release()
    std = torch.tensor(create_model("test_vil_ls").pretrained_cfg["std"]).view(3, 1, 1)
    torch.testing.assert_close(seen, (pixels - 0.4) / std)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--num-classes", "4"], "the teacher has 3 classes and the student 4; only"),
        (["--kd-model-name", "test_cvt_ls"], "is of a run of test_vil_ls; --kd-model-name must be"),
        (["--in-chans", "1"], "the teacher takes images of 3 channels, and the student's have 1"),
    ],
)
def test_a_teacher_that_would_be_random_in_part_is_refused(
    teacher: Path, more: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _taught(teacher, *more)


def test_a_teacher_of_other_classes_teaches_features_alone(
    pretrained: Path, teacher: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="the teacher has 10 classes and the student 3"):
        _taught(pretrained)
    _taught(pretrained, "--kd-distill-type", "feature")
    content = torch.load(teacher, weights_only=True)
    content["classes"] = {"0": 0, "1": 2, "2": 1}
    torch.save(content, tmp_path / "turned.pth.tar")
    with pytest.raises(ConfigError, match=r"not those of the data: .* has '1' at 1 and not at 2"):
        _taught(tmp_path / "turned.pth.tar")
    with pytest.raises(ConfigError, match=r"not those of the data: .* has '1' at 1 and not at 2"):
        start = ["--initial-checkpoint", str(tmp_path / "turned.pth.tar"), "--num-classes", "3"]
        config, _ = read(train.parser, TrainConfig, [*MODEL, *start])
        make_model(create_model, config, classes={"0": 0, "1": 1, "2": 2})


def test_weights_without_a_run_teach_only_with_a_classifier_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "plain.pth"
    torch.save(create_model("test_vil_ls", num_classes=5).state_dict(), path)
    with pytest.raises(ConfigError, match=r"head\.fc\.weight \(5, 128\) instead"):
        _taught(path)
    _, model = _taught(path, "--num-classes", "5")
    expected = torch.load(path, weights_only=True)["head.fc.weight"]
    assert torch.equal(model.state_dict()["head.fc.weight"], expected)
    _taught(path, "--kd-distill-type", "feature")


@pytest.mark.parametrize(
    "flags",
    [
        ["--kd-model-name", "test_vil_ls", "--kd-temperature", "2"],
        ["--kd-model-name", "test_vil_ls", "--kd-distill-type", "feature"],
        ["--grad-checkpointing", "--channels-last", "--clip-grad", "1", "--clip-mode", "agc"],
        ["--amp", "--amp-dtype", "bfloat16", "--bce-loss", "--cutmix", "1", "--aug-repeats", "2"],
        ["--opt", "lamb", "--lr-base", "0.01", "--sched-on-updates", "--aa", "rand-m5-inc1"],
        ["--aug-splits", "3", "--aa", "rand-m9-mstd0.5-inc1", "--resplit", "--jsd-loss"],
        pytest.param(
            ["--fast-norm", "--save-images", "--torchcompile", "eager"],
            marks=pytest.mark.landing,  # tracing takes seconds
        ),
    ],
)
def test_options_of_timm_train(
    flags: list[str], three_classes: Path, teacher: Path, tmp_path: Path
) -> None:
    if "--kd-model-name" in flags:
        flags = [*flags, "--kd-model-path", str(teacher)]
    weights = _trained(three_classes, tmp_path / "run", "--img-size", "32", *flags)
    assert all(weight.isfinite().all() for weight in weights.values())


@pytest.mark.landing
@pytest.mark.parametrize("flags", [[], ["--model-ema-force-cpu"]])
def test_a_compiled_run_evaluates_its_average_compiled(
    flags: list[str], three_classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[bool] = []

    def recorded(model: nn.Module, *args: Any, **named: Any) -> Any:
        compiled.append(hasattr(model, "_orig_mod"))
        return evaluate(model, *args, **named)

    monkeypatch.setattr(evaluating, "evaluate", recorded)
    flags = ["--img-size", "32", "--torchcompile", "eager", "--model-ema", *flags]
    _trained(three_classes, tmp_path / "run", *flags)
    assert len(compiled) % (1 if "--model-ema-force-cpu" in flags else 2) == 0
    assert compiled
    assert all(compiled)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--torchcompile", "fast"], "--torchcompile fast cannot be used: Invalid backend"),
        (["--torchcompile", "--torchcompile-mode", "fast"], "inductor cannot be used: .*mode=fast"),
        (["--log-wandb"], "--log-wandb needs the package wandb."),
        (["--log-tensorboard"], "--log-tensorboard needs the package tensorboard."),
    ],
)
def test_a_compiler_or_a_logger_that_is_not_there_is_named(
    flags: list[str],
    message: str,
    three_classes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for package in ("wandb", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=message):
        _trained(three_classes, tmp_path / "run", "--img-size", "32", *flags)


def test_norms_of_augmentation_splits_are_for_training_alone(
    three_classes: Path, tmp_path: Path
) -> None:
    flags = ["--model", "test_cvt_ls", "--img-size", "32", "--aug-splits", "2", "--split-bn"]
    weights = _trained(three_classes, tmp_path / "run", *flags, "--jsd-loss")
    split = {name for name in weights if ".aux_bn." in name}
    assert split
    model = create_model("test_cvt_ls", num_classes=3)
    load_weights(model, tmp_path / "run" / "last.pth.tar", weights="raw")
    loaded = model.state_dict()
    assert loaded.keys() == weights.keys() - split
    assert all(torch.equal(loaded[name], weights[name]) for name in loaded)


@pytest.mark.landing
def test_a_resumed_plateau_schedule_is_that_of_the_undisturbed_run(
    three_classes: Path, tmp_path: Path
) -> None:
    flags = [
        *("--img-size", "32", "--sched", "plateau", "--patience-epochs", "0", "--lr-noise", "0.5"),
        *("--warmup-epochs", "1", "--decay-rate", "0.5", "--lr", "1e-5", "--epochs", "8"),
    ]
    with pytest.warns(FutureWarning, match="PlateauLRScheduler is deprecated"):
        wanted = _trained(three_classes, tmp_path / "whole", *flags)
        _trained(three_classes, tmp_path / "halved", *flags, "--stop-epoch", "5")
        found = _trained(three_classes, tmp_path / "halved", *flags, "--resume", "auto")
    summaries = [(tmp_path / name / "summary.csv").read_text() for name in ("whole", "halved")]
    assert summaries[0] == summaries[1]
    rates = {line.split(",")[-3] for line in summaries[0].splitlines()[1:]}
    assert len(rates) > 3, "the schedule did not decay"
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
