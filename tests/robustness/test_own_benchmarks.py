"""Benchmarks of one's own: their rows, their labels, and names and rules that cannot be."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from colour_trees import paint
from torch import nn
from torchvision import transforms

import robustness
from robustness.cli import main
from robustness.data.own import read_benchmark
from robustness.data.sources import Places
from robustness.reporting.report import to_markdown
from robustness.rules.metrics import metrics
from robustness.rules.results import Report
from vit_ls.config import ConfigError

PLAIN = transforms.ToTensor()
ARRAYS = "layout: arrays\nclasses: 4\ncorruptions: [fog]\nimage_size: 8\n"


class FourColours(nn.Module):
    """Answers with the place of the brightest channel, or 3."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.mean(dim=(2, 3))
        return torch.cat([means, means.new_full((len(x), 1), 0.2)], dim=1)


def described(folder: Path, text: str) -> Path:
    file = folder / "own.yaml"
    file.write_text(text)
    return file


def arrays(folder: Path, labels: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = np.zeros((len(labels), 8, 8, 3), np.uint8)
    for row, label in enumerate(labels):
        pictures[row, ..., label] = 255
    np.save(folder / "fog.npy", pictures)
    np.save(folder / "labels.npy", np.array(labels))


def evaluated(root: Path, text: str) -> Report:
    return robustness.evaluate(FourColours(), PLAIN, root, benchmarks=[described(root, text)])


@pytest.mark.parametrize(("images", "severities"), [(2, 5), (4, 4), (3, 5), (4, 5)])
def test_rows_are_severities_times_images_or_nothing_is_counted(
    images: int, severities: int, tmp_path: Path
) -> None:
    arrays(tmp_path / "x", [0, 1, 2, 0] * 5)
    text = f"name: x\n{ARRAYS}images: {images}\nseverities: {severities}\n"
    report = evaluated(tmp_path, text)
    (mean, *_) = metrics(report)
    if (images, severities) == (4, 5):
        assert (mean.value, report.results[0].all_gaps()) == (0, [])
        return
    assert mean.value is None
    assert report.incomplete
    (gap,) = report.results[0].all_gaps()
    rows = f"{severities} x {images} = {severities * images}"
    assert f"rows must be severities x images = {rows}, got 20" in gap


def test_labels_of_another_order_are_not_taken_for_the_official_one(tmp_path: Path) -> None:
    # image after image, each with its five severities
    arrays(tmp_path / "x", [label for label in (0, 1, 2, 0) for _ in range(5)])
    report = evaluated(tmp_path, f"name: x\n{ARRAYS}images: 4\n")
    (gap,) = report.results[0].all_gaps()
    assert "labels must be the same at each severity" in gap


def test_a_folder_of_ones_own_is_its_owners(tmp_path: Path) -> None:
    for name in ("red", "green"):
        paint(tmp_path / "tiny" / name / "x.png", 0, 32)
    text = "name: tiny\nlayout: classes\nclasses: [red, green, c, d]\nimages: 2\n"
    report = evaluated(tmp_path, text)
    assert report.results[0].label == "the owner's files"
    assert all("the owner's files" in metric.note for metric in metrics(report))
    assert "official" not in to_markdown(report)
    arrays(tmp_path / "x", [0, 1, 2, 0] * 5)
    report = evaluated(tmp_path, f"name: x\n{ARRAYS}images: 4\n")
    assert report.results[0].label == "the owner's files"


def test_a_generated_folder_of_ones_own_says_how_it_was_made(tmp_path: Path) -> None:
    from robustness import corrupt

    paint(tmp_path / "src/red/x.png", 1016, 32)
    command = ["--src", str(tmp_path / "src"), "--dst", str(tmp_path / "mine"), "--keep-size"]
    assert corrupt.main([*command, "--corruptions", "contrast"]) == 0
    text = (
        "name: mine\nlayout: corruptions\nclasses: [red, b, c, d]\ncorruptions: [contrast]\n"
        "images: 1\n"
    )
    report = evaluated(tmp_path, text)
    assert "generated, seed 0" in report.results[0].label
    assert report.results[0].all_gaps() == []


def test_images_without_a_size_are_not_said_to_be_fed_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        paint(tmp_path / "tiny" / name / "x.png", 0, 48)
    text = "name: tiny\nlayout: classes\nclasses: [a, b]\nimages: 2\n"
    file = described(tmp_path, text)
    ask = ["--model", "test_resnet", "--random-weights", "--dry-run", "--benchmark", str(file)]
    assert main([*ask, "--data-root", str(tmp_path), "--cache", str(tmp_path / "cache")]) == 0
    printed = capsys.readouterr().out
    model = timm.create_model("test_resnet")
    side = timm.data.resolve_model_data_config(model, use_test_size=True)["input_size"][-1]
    assert "unchanged" not in printed
    assert f"transform: shorter side resized to {side} bilinear, the centre" in printed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "name: ../../../evil\nlayout: classes\nclasses: 3\nimages: 1\n",
            "name must be of letters",
        ),
        ("name: .hidden\nlayout: classes\nclasses: 3\nimages: 1\n", "name must be of letters"),
        (
            "name: x\nlayout: corruptions\nclasses: 3\ncorruptions: [noise/fog]\nimages: 1\n",
            "corruptions must be of letters, digits, spaces and . _ + -",
        ),
        (
            "name: x\nlayout: corruptions\nclasses: 3\ncorruptions: [fog, fog]\nimages: 1\n",
            "corruptions has a name twice",
        ),
        (
            "name: x\nlayout: cells\nclasses: 3\ncells: ['..']\nimages: 1\n",
            "cells must be of letters",
        ),
        ("name: x\nlayout: classes\nclasses: 10\nrule: a\nimages: 1\n", "needs classes: wnid"),
        (
            "name: x\nlayout: classes\nclasses: wnid\nnum_classes: 10\nimages: 1\n",
            "num_classes must be at least the 1000 classes, got 10",
        ),
        ("name: x\nlayout: classes\nclasses: wnid\nrule: in9\nimages: 1\n", "needs nine classes"),
        (
            "name: x\nlayout: classes\nclasses: [a, b]\nnum_classes: 1\nimages: 1\n",
            "num_classes must be at least the 2 classes, got 1",
        ),
        (f"name: x\n{ARRAYS}images: 1\nrule: r\n", "layout arrays goes with rule plain"),
    ],
)
def test_what_cannot_be_is_refused_by_rule(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_benchmark(described(tmp_path, text))
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_class_outside_the_rule_is_named(tmp_path: Path) -> None:
    paint(tmp_path / "x/n01440764/x.png", 0, 32)  # the first class, which A leaves out
    text = "name: x\nlayout: classes\nclasses: wnid\nrule: a\nimages: 1\n"
    row = read_benchmark(described(tmp_path, text))
    source = Places(tmp_path).source(row)
    assert source is not None
    (problem,) = source.listing("all").problems
    assert problem.text == "n01440764 is no class folder of x"


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    file = described(tmp_path, "name: x\nlayout: classes\nclasses: 3\nimages: 1\n")
    with pytest.raises(ConfigError, match="two files of one name"):
        robustness.evaluate(FourColours(), PLAIN, tmp_path, benchmarks=[file, file])
