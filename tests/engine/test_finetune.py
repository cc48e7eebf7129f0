"""Fine-tuning is one command: other classes or resolution, frozen backbone, layer-wise rates."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from timm import create_model
from torch import Tensor

import train
from vit_ls import engine
from vit_ls.config import ConfigError, TrainConfig, read
from vit_ls.engine import read_checkpoint

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
    model = engine.make_model(create_model, config)
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
    optimizer = engine.make_optimizer(model, config, 1)
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
    flags: list[str], three_classes: Path, pretrained: Path, tmp_path: Path
) -> None:
    if "--kd-model-name" in flags:
        flags = [*flags, "--kd-model-path", str(pretrained)]
    weights = _trained(three_classes, tmp_path / "run", "--img-size", "32", *flags)
    assert all(weight.isfinite().all() for weight in weights.values())


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
    engine.load_weights(model, tmp_path / "run" / "last.pth.tar", use_ema=False)
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
