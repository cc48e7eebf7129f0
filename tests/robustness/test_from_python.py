"""Any model, any transform and benchmarks of one's own: from Python and from YAML."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from colour_trees import ReadsColour, paint
from torch import nn
from torchvision import transforms
from torchvision.transforms import functional as TF

import robustness
from robustness.cli import main
from robustness.rules.metrics import metrics
from robustness.rules.results import Report
from vit_ls.config import ConfigError

PLAIN = transforms.ToTensor()


def numbers(report: Report) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in metrics(report)}


class FourColours(nn.Module):
    """Answers with the place of the brightest channel, or 3."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.mean(dim=(2, 3))
        return torch.cat([means, means.new_full((len(x), 1), 0.2)], dim=1)


class Ten(FourColours):
    """Of as many classes as there are digits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(super().forward(x), (0, 6))


@pytest.mark.landing
def test_a_module_gives_what_the_command_writes(tmp_path: Path) -> None:
    out = ["--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    ask = ["--model", "test_resnet", "--random-weights", "--img-size", "32", "--suites", "digits"]
    assert main([*ask, *out, "--max-images", "2", "--workers", "0"]) == 0
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=10).train()
    config = timm.data.resolve_model_data_config(model)
    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize(config["mean"], config["std"])]
    )
    report = robustness.evaluate(model, transform, suites=["digits"], max_images=2)
    written = json.loads((tmp_path / "out/report.json").read_text())["results"][0]
    assert report.to_dict()["results"][0]["cells"] == json.loads(json.dumps(written["cells"]))
    assert model.training
    assert not report.incomplete


def test_a_transform_that_crops_what_is_cropped_is_named(tmp_path: Path) -> None:
    paint(tmp_path / "imagenet-c-bar/sparkles/1/n01440764/x.png", 0)
    crop = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), PLAIN])
    for transform, odd in (
        (crop, True),
        (PLAIN, False),
        ({"model": crop, "unchanged": PLAIN}, False),
    ):
        report = robustness.evaluate(ReadsColour(), transform, tmp_path, suites=["imagenet-c-bar"])
        said = report.results[0].transform
        assert ("does not feed the 224x224 images unchanged" in said) == odd


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (lambda _: torch.rand(3, 32, 32), "must give the same for the same image"),
        ({"model": PLAIN}, "transform has none for the protocol unchanged"),
        ({}, "transform has none"),
    ],
)
def test_a_transform_that_will_not_do_is_refused(transform: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        robustness.evaluate(Ten(), transform, suites=["digits"], workers=0)


def test_a_model_that_does_not_answer_with_scores_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"must answer with scores \[B, classes\], got \(1, 3,"):
        robustness.evaluate(nn.Identity(), PLAIN, suites=["digits"])


def yaml(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_factorys_own_corrupted_set_runs_without_code(tmp_path: Path) -> None:
    for severity, answer in ((1, "red"), (2, "green")):
        for name in ("red", "green", "blue", "none"):
            pixels = {"red": 224 * 32 // 8, "green": 31, "blue": 0, "none": 0}
            paint(tmp_path / f"scratches/dust/{severity}/{name}/x.png", pixels[answer], 32)
    file = yaml(
        tmp_path / "own.yaml",
        "name: scratches\nlayout: corruptions\nclasses: [red, green, blue, none]\n"
        "corruptions: [dust]\nseverities: 2\nimages: 4\nimage_size: 32\n",
    )
    report = robustness.evaluate(FourColours(), PLAIN, tmp_path, benchmarks=[file])
    found = numbers(report)
    assert not report.incomplete
    assert found == {"mean error": 75, "error dust": 75}
    assert list(report.results[0].cells) == ["dust/1", "dust/2"]


def test_cifar_10_c_is_read_as_it_is_released(tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    labels = np.array([0, 1, 2, 3] * 5)
    pictures = np.zeros((20, 8, 8, 3), np.uint8)
    for row, label in enumerate(labels):
        # From the third severity on the answer is 3 whatever the label is.
        if label < 3 and row < 8:
            pictures[row, ..., label] = 255
    np.save(folder / "fog.npy", pictures)
    np.save(folder / "labels.npy", labels)
    file = yaml(
        tmp_path / "cifar.yaml",
        "name: cifar-10-c\nfolder: CIFAR-10-C\nlayout: arrays\nclasses: 4\n"
        "corruptions: [fog]\nimages: 4\nimage_size: 8\n",
    )
    report = robustness.evaluate(FourColours(), PLAIN, tmp_path, benchmarks=[file])
    assert numbers(report)["mean error"] == pytest.approx(100 * (0 + 0 + 0.75 * 3) / 5)
    np.save(folder / "labels.npy", labels + 1)
    report = robustness.evaluate(FourColours(), PLAIN, tmp_path, benchmarks=[file])
    assert "labels must lie in 0 to 3, got 1 to 4" in report.results[0].all_gaps()[0]
    (folder / "fog.npy").unlink()
    report = robustness.evaluate(FourColours(), PLAIN, tmp_path, benchmarks=[file])
    assert "no file fog.npy" in report.results[0].all_gaps()[0]


def test_sorted_folders_name_classes_only_where_all_are_there(tmp_path: Path) -> None:
    for name in ("b", "a", "d", "c"):
        paint(tmp_path / "tiny" / name / "x.png", 0, 32)
    text = "name: tiny\nlayout: classes\nclasses: sorted\nnum_classes: 4\nimages: 4\n"
    file = yaml(tmp_path / "tiny.yaml", text)
    report = robustness.evaluate(FourColours(), PLAIN, tmp_path, benchmarks=[file])
    assert not report.incomplete
    (tmp_path / "tiny/e").mkdir()
    report = robustness.evaluate(FourColours(), PLAIN, tmp_path, benchmarks=[file])
    assert "not 4 class folders" in report.results[0].all_gaps()[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: x\nlayuot: classes\n", "unknown key layuot; did you mean 'layout'?"),
        ("name: x\n", "lacks layout, classes, images"),
        ("name: x\nlayout: tree\nclasses: 3\nimages: 1\n", "layout must be one of classes,"),
        ("name: x\nlayout: classes\nclasses: 3\nimages: 0\n", "images must be at least 1, got 0"),
        ("name: x\nlayout: arrays\nclasses: 3\nimages: 1\n", "need the key corruptions"),
        ("name: x\nlayout: classes\nclasses: sorted\nimages: 1\n", "lacks num_classes"),
        ("name: x\nlayout: classes\nclasses: [a, a]\nimages: 1\n", "classes has a name twice"),
        ("name: imagenet-a\nlayout: classes\nclasses: 3\nimages: 1\n", "a known benchmark"),
        ("name: [x\n", "own.yaml:2: not valid YAML"),
        ("- x\n", "own.yaml:1: must hold 'key: value' lines."),
        ("name: x\nname: y\n", "own.yaml:2: name is set twice."),
    ],
)
def test_mistakes_in_the_yaml_are_one_line(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = yaml(tmp_path / "own.yaml", text)
    ask = ["--model", "test_resnet", "--random-weights", "--benchmark", str(file)]
    assert main(ask) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert len(error.splitlines()) == 1


def test_a_benchmark_that_lies_elsewhere_is_found(tmp_path: Path) -> None:
    paint(tmp_path / "far/n01440764/x.png", 0)
    folders = {"imagenet-sketch": tmp_path / "far"}
    report = robustness.evaluate(
        ReadsColour(), resized, suites=["imagenet-sketch"], folders=folders
    )
    assert report.results[0].folder == "far"
    assert report.results[0].cells["all"].counts["top1"] == 1
    with pytest.raises(ConfigError, match="--folder has no suite named imagenet-x"):
        robustness.evaluate(ReadsColour(), resized, folders={"imagenet-x": tmp_path})


def resized(image: Any) -> torch.Tensor:
    return TF.to_tensor(TF.resize(image, [64, 64]))


def test_the_doctor_looks_at_ones_own_and_at_other_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "far"
    folder.mkdir()
    np.save(folder / "fog.npy", np.zeros((10, 8, 8, 3), np.uint8))
    np.save(folder / "labels.npy", np.zeros(10, int))
    file = yaml(
        tmp_path / "c.yaml",
        "name: mine\nlayout: arrays\nclasses: 2\ncorruptions: [fog]\nimages: 2\nseverities: 5\n",
    )
    ask = ["--doctor", "--data-root", str(tmp_path), "--benchmark", str(file), "--workers", "0"]
    assert main([*ask, "--folder", f"mine={folder}"]) == 0
    assert "ok     mine: 2 images in each of 5 cells" in capsys.readouterr().out
    (folder / "labels.npy").write_bytes(b"no array")
    assert main([*ask, "--folder", f"mine={folder}"]) == 1
    assert "no array" in capsys.readouterr().out
