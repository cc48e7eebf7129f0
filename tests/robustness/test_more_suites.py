"""ObjectNet, Stylized-ImageNet, ImageNet-3DCC and nine-class models, on small trees."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from colour_trees import Bench, paint, subject_of, wnid
from PIL import Image
from torch import nn

from robustness.data import labels
from robustness.data.benchmarks import IN9_VARIANTS, THREE_D
from robustness.rules.metrics import metrics
from robustness.rules.results import Report
from vit_ls.config import ConfigError


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def top1(report: Report, name: str = "top-1") -> tuple[int | None, int | None]:
    metric = next(m for m in metrics(report) if m.name == name)
    return metric.right, metric.images


def objectnet(bench: Bench, **names_of: str) -> Path:
    folder = bench.root / "objectnet-1.0"
    (folder / "mappings").mkdir(parents=True)
    labels_of = {"alarm_clock": "Alarm clock", "banana": "Banana", "air_freshener": "Air freshener"}
    names = {"Alarm clock": "analog clock; digital clock", "Banana": "banana"} | names_of
    for file, content in (
        ("folder_to_objectnet_label", labels_of),
        ("objectnet_to_imagenet_1k", names),
    ):
        (folder / f"mappings/{file}.json").write_text(json.dumps(content))
    return folder


def framed(path: Path, answer: int) -> None:
    """A picture with a frame of two pixels, as the authors cut off; it would change the answer."""
    paint(path, answer, 32)
    with Image.open(path) as inner:
        whole = Image.new("RGB", (36, 36), (255, 0, 0))
        whole.paste(inner, (2, 2))
    whole.save(path)


def test_objectnet_takes_any_of_a_classs_names_and_cuts_the_border(bench: Bench) -> None:
    folder = objectnet(bench)
    analog, digital, banana = 409, 530, 954
    for name, file, answer in (
        ("alarm_clock", "a", analog),
        ("alarm_clock", "b", digital),
        ("alarm_clock", "c", banana),
        ("banana", "d", banana),
        ("banana", "e", 0),  # Not a class of ObjectNet's: wrong, and counted.
        ("air_freshener", "f", analog),  # Not a class of ImageNet's: left out.
    ):
        framed(folder / "images" / name / f"{file}.png", answer)
    report = bench.run({"imagenet-objectnet": 5}, protocol="unchanged")
    assert top1(report) == (3, 5)
    assert report.results[0].all_notes() == [
        "passed over: 1 class folders outside the benchmark's rule"
    ]
    assert not report.incomplete


def test_objectnets_classes_are_the_published_ones() -> None:
    classes = labels.objectnet_classes()
    assert int((classes >= 0).sum()) == 125
    assert len(set(classes[classes >= 0].tolist())) == 113
    assert labels.objectnet_targets({"Alarm clock": "analog clock; digital clock"}) == {
        "Alarm clock": 1
    }


def test_a_mapping_that_is_not_objectnets_is_refused(bench: Bench) -> None:
    folder = objectnet(bench, Banana="banana; analog clock")
    framed(folder / "images/banana/d.png", 954)
    with pytest.raises(ConfigError, match="label Banana is no one class"):
        bench.run({"imagenet-objectnet": 1})


def test_objectnet_without_its_mappings_is_refused(bench: Bench) -> None:
    framed(bench.root / "objectnet/images/banana/d.png", 954)
    with pytest.raises(ConfigError, match="mappings as released"):
        bench.run({"imagenet-objectnet": 1})


def test_stylized_imagenet_is_read_as_it_is_made(bench: Bench) -> None:
    for index in (0, 3):
        paint(bench.root / f"stylized-imagenet/val/{wnid(index)}/ILSVRC2012_val_1.png", 3)
    assert top1(bench.run({"imagenet-stylized": 2})) == (1, 2)


def test_3dcc_is_read_in_its_layout(bench: Bench) -> None:
    for corruption in THREE_D:
        for severity in range(1, 6):
            answer = 0 if severity == 1 else 1
            paint(bench.root / f"3dcc/{corruption}/{severity}/{wnid(0)}/x.png", answer)
    report = bench.run({"imagenet-3dcc": 1})
    values = {m.name: m.value for m in metrics(report)}
    assert values["mean error"] == pytest.approx(80)
    assert values["error bit_error"] == pytest.approx(80)
    assert len(values) == 13


class NineClasses(nn.Module):
    """Answers with the red part of a colour, of nine."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer = (x.mean(dim=(2, 3))[:, 1] * 255 / 8).long().clamp(0, 8)
        return nn.functional.one_hot(answer, 9).float()


def test_nine_class_models_of_the_challenge_are_judged_by_their_own_classes(bench: Bench) -> None:
    bench.subject = subject_of(NineClasses())
    for variant in IN9_VARIANTS:
        for image, answer in enumerate((2, 2, 5)):
            folder = bench.root / "imagenet-9" / variant / "val" / "02_wheeled vehicle"
            paint(folder / f"{image}.png", answer)
    report = bench.run({"imagenet-9": 3})
    assert top1(report, "top-1 original") == (2, 3)
    assert replace(report.results[0].cells["original"]).counts["unmapped"] == 0


def test_a_model_of_other_classes_is_refused_on_imagenet9(bench: Bench) -> None:
    class Ten(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(x), 10)

    bench.subject = subject_of(Ten())
    (bench.root / "imagenet-9").mkdir()
    with pytest.raises(ConfigError, match="needs a model of 1000 or 9 classes"):
        bench.run({"imagenet-9": 3})
