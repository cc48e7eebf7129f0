"""ImageNet-P: the released script's numbers on small trees in its layout."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from colour_trees import Bench, film, wnid
from scipy.stats import rankdata

from robustness import page
from robustness.cli import main
from robustness.data import videos
from robustness.data.benchmarks import PERTURBATIONS
from robustness.reporting.analysis import Run, analyse
from robustness.reporting.report import write_report
from robustness.rules.judging import judge
from robustness.rules.metrics import alexnet_flips, metrics
from robustness.rules.results import Report
from robustness.running import predictions

pytest.importorskip("av", reason="needs the extra videos")

FRAMES = 4
LENGTHS = {"frames": (FRAMES,) * 14}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos in each perturbation: one that goes back and forth, one that changes once."""
    root = tmp_path_factory.mktemp("imagenet-p")
    film(root / "one" / wnid(0) / "a.mp4", [0, 1, 1, 1])
    film(root / "one" / wnid(5) / "b.mp4", [5, 5, 6, 6])
    for place, name in enumerate(PERTURBATIONS):
        group = ("noise", "") if place == 0 else ("",)
        shutil.copytree(root / "one", root / "imagenet-p" / Path(*group) / name)
    return root / "imagenet-p"


@pytest.fixture
def bench(tmp_path: Path, released: Path) -> Bench:
    bench = Bench(tmp_path)
    shutil.copytree(released, bench.root / "imagenet-p")
    return bench


def numbers(report: Report) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in metrics(report)}


def test_noise_is_compared_with_the_first_frame_and_the_rest_with_the_one_before(
    bench: Bench,
) -> None:
    report = bench.run({"imagenet-p": 2}, **LENGTHS)
    found = numbers(report)
    # 0 1 1 1 differs from its first three times and changes once; 5 5 6 6 twice and once
    share = {name: (5 if "noise" in name else 2) / 6 for name in PERTURBATIONS}
    for name in PERTURBATIONS:
        assert found[f"flip probability {name}"] == pytest.approx(100 * share[name])
    tables = {
        name: predictions.read(bench.output, "imagenet-p", name) for name in ("shot_noise", "tilt")
    }
    assert {name: list(t.flips) for name, t in tables.items() if t.flips is not None} == {
        "shot_noise": [3, 2],
        "tilt": [1, 1],
    }
    rates = [100 * share[name] / alexnet_flips()[name] for name in PERTURBATIONS]
    assert found["mFR"] == pytest.approx(sum(rates) / 10)
    assert not report.incomplete


def script(logits: np.ndarray, *, noise: bool) -> tuple[float, float]:
    """What the released test.py prints, in its own order of steps: flips and top-5 distance."""
    flips, distances = [], []
    in_top = np.cumsum([0] + [1] * 5 + [0] * (logits.shape[2] - 6))
    for video in logits:
        order = [rankdata(-frame, method="ordinal").astype(int) for frame in video]
        earlier, own, moved = 0, [], []
        for frame in range(1, len(video)):
            own.append(video[earlier].argmax() != video[frame].argmax())
            sigma = order[frame][np.argsort(order[earlier])]
            moved.append(np.abs(in_top[:5] - in_top[sigma - 1][:5]).sum())
            earlier = 0 if noise else frame
        flips.append(np.mean(own))
        distances.append(np.mean(moved))
    return float(np.mean(flips)), float(np.mean(distances))


@pytest.mark.parametrize(("rule", "noise"), [("flips", False), ("flips_from_first", True)])
def test_flips_and_top_5_distance_are_those_of_the_released_script(rule: str, noise: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    # few levels, so that there are ties; few classes, so that the top five move
    logits = torch.randint(0, 6, (7, 9, 12), generator=generator).float()
    verdict = judge(rule, logits, torch.zeros(7, dtype=torch.long), ["x"] * 7)
    flips, distance = script(logits.numpy(), noise=noise)
    steps = verdict.counts["comparisons"]
    assert verdict.counts["flips"] / steps == pytest.approx(flips)
    assert verdict.counts["top5_distance"] / steps == pytest.approx(distance)
    assert 0 < flips < 1


def test_flip_rates_that_others_measured_give_the_mfr_that_was_published() -> None:
    """ResNeXt-101 32x48d WSL: probabilities from its own repository, mFR from arXiv:1911.04252."""
    measured = (5.8465, 6.9914, 2.8425, 2.3230, 3.6669, 1.5357, 2.4161, 3.4686, 2.1485, 4.6195)
    rates = [p / alexnet_flips()[n] for n, p in zip(PERTURBATIONS, measured, strict=True)]
    assert sum(rates) / 10 == pytest.approx(27.8, abs=0.05)


def test_a_video_that_is_short_or_damaged_withholds_the_number(bench: Bench) -> None:
    film(bench.root / "imagenet-p/tilt" / wnid(0) / "a.mp4", [0, 1, 0])
    whole = bench.root / "imagenet-p/scale" / wnid(5) / "b.mp4"
    whole.write_bytes(whole.read_bytes()[:300])
    (bench.root / "imagenet-p/snow" / wnid(5) / "b.png").write_bytes(b"")
    report = bench.run({"imagenet-p": 2}, **LENGTHS)
    gaps = "\n".join(report.results[0].all_gaps())
    assert "tilt: 1 images of another number of frames: n01440764/a.mp4" in gaps
    assert "scale: 1 images unreadable" in gaps
    assert "snow: 1 files that no rule takes" in gaps
    found = numbers(report)
    assert found["mFR"] is None
    assert found["flip rate tilt"] is None
    assert found["flip rate rotate"] is not None


def test_a_second_run_takes_the_cells_from_the_cache(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.run({"imagenet-p": 2}, **LENGTHS).to_dict()
    monkeypatch.setattr("robustness.running.run.run_cell", lambda *_: pytest.fail("evaluated"))
    assert bench.run({"imagenet-p": 2}, **LENGTHS).to_dict() == first


def test_the_analysis_has_an_interval_for_the_mfr(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    film(bench.root / "imagenet-p/tilt" / wnid(5) / "b.mp4", [5, 5, 5, 5])
    report = bench.run({"imagenet-p": 2}, **LENGTHS)
    write_report(report, bench.output)
    lines = {(line.cell, line.name): line for line in analyse(Run(bench.output))}
    mean = lines["", "mFR"]
    assert mean.value == pytest.approx(numbers(report)["mFR"])
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < mean.value < mean.high
    tilt = lines["tilt", "flip probability"]
    assert (tilt.low, tilt.high) == pytest.approx((0, 100 / 3))
    ask = ["--worst", "imagenet-p:tilt", "--data-root", str(bench.root)]
    assert page.main([str(bench.output), *ask]) == 2
    assert "--worst shows images, and imagenet-p holds videos" in capsys.readouterr().err


def test_videos_without_the_library_are_one_line_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "imagenet-p").mkdir()
    monkeypatch.setitem(sys.modules, "av", None)
    ask = ["--model", "test_resnet", "--random-weights", "--workers", "0"]
    assert main([*ask, "--data-root", str(tmp_path), "--suites", "imagenet-p"]) == 2
    error = capsys.readouterr().err.strip()
    assert error == "python -m robustness: videos need PyAV: pip install -e '.[videos]'."


def test_the_doctor_opens_videos(released: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(released.parent)
    ask = ["--doctor", "--data-root", root, "--suites", "imagenet-p", "--workers", "0"]
    assert main(ask) == 1
    printed = capsys.readouterr().out
    assert "2 images, not 50000" in printed
    assert "unreadable" not in printed
    assert "224x224" not in printed


def test_a_file_without_a_video_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "y.mp4").write_bytes(b"nothing")
    with pytest.raises(OSError, match="Invalid data"):
        videos.read_frames(tmp_path / "y.mp4")
