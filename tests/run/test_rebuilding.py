"""Programs that use a run's checkpoint make its model as the run did: weights do not tell all."""

from pathlib import Path
from typing import Any

import pytest
import torch
from timm import create_model
from timm.data import resolve_model_data_config

import train
from robustness.running.subject import build_subject
from vit_ls import export
from vit_ls.config import ConfigError
from vit_ls.run import as_trained, load_weights
from vit_ls.visualize.__main__ import main as visualize


@pytest.fixture(scope="module")
def checkpoint(digit_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run whose window, mean and crop are not the model's own; none of them is a weight."""
    folder = tmp_path_factory.mktemp("runs")
    argv = [str(digit_folder), "--model", "test_cvt_ls", "--model-kwargs", "window=4"]
    argv += ["--mean", "0.3", "--std", "0.2", "--crop-pct", "1.0", "--img-size", "48"]
    argv += [
        "--epochs",
        "1",
        "--warmup-epochs",
        "0",
        "--workers",
        "0",
        "--device",
        "cpu",
        "-b",
        "16",
    ]
    train.main([*argv, "--output", str(folder), "--experiment", "run"])
    return folder / "run" / "last.pth.tar"


def _answers(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        answers: torch.Tensor = model.eval()(torch.ones(1, 3, 48, 48).tril())
    return answers


def test_a_model_is_made_as_its_run_made_it(checkpoint: Path) -> None:
    model = create_model("test_cvt_ls", **as_trained(checkpoint, "test_cvt_ls"))
    load_weights(model, checkpoint)
    plain = create_model("test_cvt_ls", num_classes=10)
    load_weights(plain, checkpoint)
    assert not torch.allclose(_answers(model), _answers(plain), atol=1e-3)

    asked = create_model("test_cvt_ls", num_classes=10, window=4, img_size=48)
    load_weights(asked, checkpoint)
    assert torch.equal(_answers(model), _answers(asked))
    images = resolve_model_data_config(model, use_test_size=True)
    assert images["mean"] == (0.3, 0.3, 0.3)
    assert (images["std"], images["crop_pct"]) == ((0.2, 0.2, 0.2), 1.0)
    assert images["input_size"] == (3, 48, 48)

    subject = build_subject("test_cvt_ls", checkpoint=checkpoint)
    assert torch.equal(_answers(subject.model), _answers(asked))
    assert subject.arguments["window"] == "4"
    assert subject.model.pretrained_cfg["mean"] == (0.3, 0.3, 0.3)  # type: ignore[index]
    other = build_subject("test_cvt_ls", checkpoint=checkpoint, window=8)
    assert other.arguments["window"] == "8"


def test_the_model_of_another_run_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    argv = ["--model", "test_vil_ls", "--checkpoint", str(checkpoint)]
    for use in (
        lambda: export.main([*argv, "--out", str(tmp_path / "model.pt2")]),
        lambda: visualize([*argv, "--out", str(tmp_path)]),
    ):
        with pytest.raises(ConfigError, match="is of a run of test_cvt_ls; --model must be that"):
            use()
    with pytest.raises(ConfigError, match="is of a run of test_cvt_ls; --model must be that"):
        build_subject("test_vil_ls", checkpoint=checkpoint)
    assert not list(tmp_path.iterdir())


def test_weights_of_no_run_say_nothing_of_their_model(tmp_path: Path) -> None:
    torch.save(create_model("test_cvt_ls").state_dict(), tmp_path / "plain.pth")
    assert as_trained(tmp_path / "plain.pth", "test_cvt_ls") == {}
    assert as_trained(None, "test_cvt_ls") == {}


def test_a_run_that_numbered_imagenet_s_classes_otherwise_is_not_evaluated(
    checkpoint: Path, tmp_path: Path
) -> None:
    from robustness.data.labels import wnid_to_index

    content = torch.load(checkpoint, weights_only=True)
    names = list(wnid_to_index())
    names[3], names[4] = names[4], names[3]
    content["classes"] = {name: index for index, name in enumerate(names)}
    torch.save(content, tmp_path / "turned.pth.tar")
    with pytest.raises(ConfigError, match=r"had class n0149\d+ at 3, and ImageNet has it at 4"):
        build_subject("test_cvt_ls", checkpoint=tmp_path / "turned.pth.tar")
