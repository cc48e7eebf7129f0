"""A checkpoint knows what attention its run replaced: every program builds its model again."""

from pathlib import Path
from typing import Any

import pytest
import torch

import train
import validate
import vit_ls
from robustness.running.subject import build_subject
from vit_ls.config import ConfigError, TrainConfig
from vit_ls.export import main as export
from vit_ls.predict import main as predict
from vit_ls.replace import new_parameters
from vit_ls.run import create, prepared
from vit_ls.visualize.__main__ import main as visualize

MODEL = ["--model", "test_vit", "--img-size", "64"]
REPLACED = ["--replace-attention", "long_short", "--attention-kwargs", "window=2", "rank=3"]
SHORT = ["--epochs", "1", "--warmup-epochs", "0", "--workers", "0", "--device", "cpu", "-b", "32"]


def trained(folder: Path, images: Path, name: str, *flags: str) -> Path:
    argv = [str(images), *MODEL, *SHORT, "--output", str(folder), "--experiment", name, *flags]
    train.main(argv)
    return folder / name / "last.pth.tar"


@pytest.fixture(scope="module")
def original(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("original"), digit_folder, "run")


@pytest.fixture(scope="module")
def checkpoint(
    digit_folder: Path, original: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Distilled from its original, with the new parameters alone to train and a block kept."""
    flags = [*REPLACED, "--keep-attention", "2", "--freeze", "original"]
    flags += ["--pretrained-path", str(original)]
    flags += ["--kd-model-name", "test_vit", "--kd-model-path", str(original)]
    flags += ["--kd-distill-type", "feature"]
    return trained(tmp_path_factory.mktemp("replaced"), digit_folder, "run", *flags)


def answers(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model.eval()(torch.ones(1, 3, 64, 64).tril())
    return found


def test_distillation_from_the_original_trains_the_new_parameters_alone(
    checkpoint: Path, original: Path
) -> None:
    model, teacher = vit_ls.load(checkpoint), vit_ls.load(original)
    new = set(new_parameters(model))
    depth = len(model.blocks)
    assert {name.partition(".attn")[0] for name in new} == {
        f"blocks.{i}" for i in range(depth) if i != 2
    }
    old = teacher.state_dict()
    for name, value in model.state_dict().items():
        assert name in new or torch.equal(value, old[name]), name
    assert not torch.allclose(answers(model), answers(teacher), atol=1e-4)


def test_programs_build_the_replaced_model_again(
    checkpoint: Path, digit_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = answers(vit_ls.load(checkpoint))
    subject = build_subject("test_vit", checkpoint=checkpoint)
    assert torch.equal(answers(subject.model), expected)
    validate.main(["--checkpoint", str(checkpoint), "--data-dir", str(digit_folder)])
    assert "top1=" in capsys.readouterr().out
    image = next((digit_folder / "validation").rglob("*.png"))
    predict([str(image), "--checkpoint", str(checkpoint)])


@pytest.mark.landing
def test_pictures_and_exports_are_of_the_replaced_model(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = answers(vit_ls.load(checkpoint))
    out = tmp_path / "maps"
    argv = ["--model", "test_vit", "--checkpoint", str(checkpoint), "--out", str(out)]
    visualize(argv)
    assert "leaves out blocks that kept their attention: [2]" in capsys.readouterr().err
    assert (out / "rollout.png").exists()
    argv = ["--model", "test_vit", "--checkpoint", str(checkpoint), "--static-size"]
    export([*argv, "--out", str(tmp_path / "model.pt2")])
    program = torch.export.load(tmp_path / "model.pt2").module()
    image = torch.ones(1, 3, 64, 64).tril()
    torch.testing.assert_close(program(image), expected, rtol=1e-4, atol=1e-4)


def test_a_run_that_is_continued_keeps_its_attention(
    checkpoint: Path, digit_folder: Path, tmp_path: Path
) -> None:
    flags = ["--resume", str(checkpoint), "--epochs", "2"]
    with pytest.raises(ConfigError, match="attention"):
        trained(tmp_path, digit_folder, "other", *flags, *REPLACED[:-1], "rank=4")


def test_options_that_the_attention_has_not_are_an_error() -> None:
    import timm

    wanted = {"kind": "long_short", "options": {"window": 2, "ranks": 1}, "keep": ()}
    with pytest.raises(ValueError, match=r"options of long_short: .*'ranks'"):
        create(timm.create_model, "test_vit", replace_attention=wanted)


def test_freezing_the_original_needs_new_parameters() -> None:
    import timm

    model = timm.create_model("test_vit")
    config = TrainConfig(model="test_vit", freeze="original")
    with pytest.raises(ConfigError, match="--freeze original needs parameters"):
        prepared(model, config, torch.device("cpu"))
