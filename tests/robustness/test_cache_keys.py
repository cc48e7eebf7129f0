"""What decides a number decides whether it is taken from the cache."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from colour_trees import Bench, ReadsColour, paint, subject_of
from PIL import Image
from torch import nn
from torchvision.transforms import functional as TF

import robustness
from robustness import corrupt
from robustness.data.images import Generator
from robustness.running.subject import build_subject

PLAIN = TF.to_tensor
ASK = {"imagenet-v2-top-images": 2}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    for index in range(2):
        paint(bench.root / f"imagenetv2-top-images-format-val/{index}/{index}.png", index)
    return bench


def top1(bench: Bench, **how: bool) -> int:
    report = bench.run(ASK, **how)
    return report.results[0].cells["all"].counts["top1"]


class Shifted(ReadsColour):
    """The same state and, for the cache, the same name: another answer."""

    shift = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).roll(self.shift, dims=1)


def test_a_model_that_answers_otherwise_is_another_model(bench: Bench) -> None:
    bench.subject = subject_of(Shifted())
    assert top1(bench) == 0
    model = Shifted()
    model.shift = 0
    bench.subject = subject_of(model)
    assert top1(bench) == 2


def test_another_class_with_the_same_state_and_answer_is_another_model() -> None:
    class Other(ReadsColour):
        pass

    mine, other = subject_of(ReadsColour()), subject_of(Other())
    assert mine.weights == other.weights
    protocol = mine.protocol("model", None)
    assert mine.answer_to(protocol) == other.answer_to(protocol)
    assert mine.identity != other.identity


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("test_vil_ls", {"window": 4}, {"window": 2}),
        ("test_cst_vit", {"aggregation": "mean"}, {"aggregation": "max"}),
    ],
)
def test_arguments_that_leave_the_state_alone_are_told_apart(
    name: str, one: dict[str, object], other: dict[str, object]
) -> None:
    subjects = []
    for arguments in (one, other):
        torch.manual_seed(0)
        subjects.append(build_subject(name, img_size=32, **arguments))
    assert subjects[0].identity != subjects[1].identity


def test_the_same_names_with_other_contents_are_other_images(bench: Bench) -> None:
    assert top1(bench) == 2
    paint(bench.root / "imagenetv2-top-images-format-val/0/0.png", 5)
    assert top1(bench) == 1


def test_the_same_names_under_another_root_are_other_images(bench: Bench, tmp_path: Path) -> None:
    assert top1(bench) == 2
    bench.root = tmp_path / "elsewhere"
    for index in range(2):
        paint(bench.root / f"imagenetv2-top-images-format-val/{index}/{index}.png", 7)
    assert top1(bench) == 0


def test_verify_sees_what_size_and_time_hide(bench: Bench) -> None:
    file = bench.root / "imagenetv2-top-images-format-val/0/0.png"
    paint(file, 0)
    file.write_bytes(file.read_bytes().ljust(1000, b"\0"))
    before = file.stat()
    assert top1(bench) == top1(bench, verify=True) == 2
    paint(file, 1)
    file.write_bytes(file.read_bytes().ljust(before.st_size, b"\0"))
    assert file.stat().st_size == before.st_size
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert top1(bench) == 2  # Nothing but the bytes tells it apart.
    assert top1(bench, verify=True) == 1


def test_verify_knows_images_that_were_only_moved(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.run(ASK, verify=True).to_dict()
    moved = bench.root.with_name("moved")
    shutil.copytree(bench.root, moved, copy_function=shutil.copyfile)
    bench.root = moved
    monkeypatch.setattr("robustness.running.run.run_cell", lambda *_: pytest.fail("evaluated"))
    assert bench.run(ASK, verify=True).to_dict() == first


def test_images_made_with_another_seed_are_other_images(tmp_path: Path) -> None:
    paint(tmp_path / "src/a/x.png", 3, 64)
    for seed in ("0", "1"):
        command = ["--src", str(tmp_path / "src"), "--dst", str(tmp_path / seed), "--seed", seed]
        assert corrupt.main([*command, "--corruptions", "contrast", "--severities", "1"]) == 0
    made = [json.loads((tmp_path / seed / "GENERATED.json").read_text()) for seed in ("0", "1")]
    assert [m["seed"] for m in made] == [0, 1]
    # Contrast draws no random number: only what the manifest says tells the files apart.
    files = [next((tmp_path / seed).rglob("*.JPEG")) for seed in ("0", "1")]
    assert files[0].stat().st_size == files[1].stat().st_size
    with Image.open(files[0]) as one, Image.open(files[1]) as other:
        assert one.tobytes() == other.tobytes()
    names = "imagenet-c-generated"
    keys = []
    (tmp_path / "bench").mkdir()
    bench = Bench(tmp_path / "bench")
    for seed in ("0", "1"):
        shutil.rmtree(bench.root / names, ignore_errors=True)
        shutil.copytree(tmp_path / seed, bench.root / names)
        result = bench.run({names: 1}).results[0]
        keys.append((result.label, result.identity["data"]))
    assert keys[0] != keys[1]


def test_the_generator_is_known_by_what_it_does() -> None:
    one, other = Generator(seed=0), Generator(seed=1)
    assert one.identity != other.identity
    assert one.fingerprint("fog/1") == Generator(seed=0).fingerprint("fog/1")
    assert one.fingerprint("fog/1") != other.fingerprint("fog/1")
    assert one.fingerprint("contrast/1") == other.fingerprint("contrast/1")


def test_a_report_names_the_arguments() -> None:
    subject = build_subject("test_vil_ls", img_size=32, num_classes=10, window=2)
    assert subject.arguments == {"img_size": "32", "num_classes": "10", "window": "2"}


class Brightest(nn.Module):
    """Answers with the place of the brightest channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


@dataclass
class RefusesUsualSizes:
    """A transform for pictures of another size than the usual ones."""

    turned: bool

    def __call__(self, picture: Image.Image) -> torch.Tensor:
        if picture.size in [(224, 224), (400, 300), (32, 32)]:
            raise ValueError("of no use here")
        found = TF.to_tensor(picture.resize((32, 32)))
        return found.flip(0) if self.turned else found


def own(folder: Path, *, side: int | None) -> dict[str, Any]:
    """Reds in a folder of one's own, and how to evaluate them."""
    for number in range(3):
        paint(folder / f"data/mine/red/{number}.png", 800, 48)
    text = "name: mine\nlayout: classes\nclasses: [red, green, blue]\nimages: 3\n"
    file = folder / "mine.yaml"
    file.write_text(text + ("" if side is None else f"image_size: {side}\n"))
    return {"data_root": folder / "data", "benchmarks": [file], "cache": folder / "cache"}


def right(model: nn.Module, transform: Any, asked: dict[str, Any]) -> int:
    return robustness.evaluate(model, transform, **asked).results[0].cells["all"].counts["top1"]


def kept(asked: dict[str, Any]) -> int:
    return len(list(asked["cache"].rglob("*.json")))


def test_transforms_are_told_apart_at_the_benchmarks_own_size(tmp_path: Path) -> None:
    asked = own(tmp_path, side=48)
    assert right(Brightest(), RefusesUsualSizes(turned=False), asked) == 3
    assert right(Brightest(), RefusesUsualSizes(turned=True), asked) == 0
    assert kept(asked) == 2


def test_a_transform_that_refuses_a_fixed_picture_is_never_known_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = own(tmp_path, side=None)
    for turned in (False, True):
        report = robustness.evaluate(Brightest(), RefusesUsualSizes(turned=turned), **asked)
        assert report.results[0].cells["all"].counts["top1"] == (0 if turned else 3)
        said = "not cached: the transform refuses a fixed picture (ValueError for a picture of"
        assert report.results[0].all_notes()[0].startswith(said)
        assert said in caplog.text
        caplog.clear()
    assert not asked["cache"].exists() or kept(asked) == 0


class DarkensDark(Brightest):
    """Turns what is darker than a threshold, which is no part of its state."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        means = super().forward(x)
        return torch.where(x.amax(dim=(1, 2, 3))[:, None] < self.threshold, means.flip(1), means)


def test_a_threshold_in_an_attribute_is_a_part_of_the_model(tmp_path: Path) -> None:
    # No fixed picture is that dark, so that the answers to them are the same.
    asked = own(tmp_path, side=None)
    for number in range(3):
        paint(tmp_path / f"data/mine/red/{number}.png", 0, 48)
    assert right(DarkensDark(0.001), PLAIN, asked) == right(DarkensDark(0.001), PLAIN, asked) == 3
    assert kept(asked) == 1  # a count of calls is no identity
    assert right(DarkensDark(0.05), PLAIN, asked) == 0
    assert kept(asked) == 2


def test_buffers_that_are_not_saved_are_a_part_of_the_model() -> None:
    class Masked(Brightest):
        def __init__(self, last: float) -> None:
            super().__init__()
            self.register_buffer("last", torch.tensor(last), persistent=False)

    one, same, other = (subject_of(Masked(last)) for last in (1.0, 1.0, 2.0))
    assert one.identity == same.identity
    assert one.identity != other.identity


def test_answers_at_the_benchmarks_size_tell_models_apart(tmp_path: Path) -> None:
    class TurnsSmall(Brightest):
        """What it does is held where nobody looks, and seen at one size alone."""

        def __init__(self, *, turned: bool) -> None:
            super().__init__()
            self.held = {"turned": turned}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = super().forward(x)
            return found.flip(1) if self.held["turned"] and x.shape[-1] == 48 else found

    asked = own(tmp_path, side=48)
    assert right(TurnsSmall(turned=False), PLAIN, asked) == 3
    assert right(TurnsSmall(turned=True), PLAIN, asked) == 0
