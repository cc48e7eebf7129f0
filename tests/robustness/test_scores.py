"""Scores are kept beside the predictions on request, and are known to be of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from colour_trees import Bench, paint, subject_of, wnid
from timm import create_model
from torch import nn

from robustness.cli import main
from robustness.data.benchmarks import BENCHMARKS
from robustness.data.sources import Places
from robustness.reporting.report import write_report
from robustness.reporting.runs import Run
from robustness.rules.results import Report
from robustness.running import run
from robustness.running.loop import Loop
from robustness.running.plan import Request
from robustness.scores.capture import check_features, classifier_of, parts
from robustness.scores.files import Owner, file_of, read_classifier, read_of
from vit_ls.config import ConfigError
from vit_ls.job import Ranks

SUITES = ("imagenet-sketch", "imagenet-val")


class Small(nn.Module):
    """Three numbers of a picture, and a linear layer on them."""

    def __init__(self, *, scaled: bool = False) -> None:
        super().__init__()
        self.num_classes = 1000
        self.scaled = scaled
        torch.manual_seed(0)
        self.head = nn.Linear(3, 1000)

    def get_classifier(self) -> nn.Module:
        return self.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.mean(dim=(2, 3))) * (2 if self.scaled else 1)


class Scored(Bench):
    def __init__(self, folder: Path, keep: str, *, cached: bool = True) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        self.keep = keep
        self.subject = subject_of(Small())
        if not cached:
            self.cache = type(self.cache)(None)
        for place in range(5):
            for name in ("imagenet-sketch", "imagenet/val"):
                paint(self.root / name / wnid(place) / f"ILSVRC2012_val_{place + 1:08d}.png", place)

    def go(self, *suites: str, batch_size: int = 2) -> Report:
        rows = [replace(BENCHMARKS[name], images=5) for name in suites]
        request = Request(rows, Places(self.root), True, keep=self.keep)
        cpu = Ranks(torch.device("cpu"))
        loop = Loop(self.subject.model, cpu, batch_size, keep=parts(self.keep))
        report = run.run(request, self.subject, loop, self.cache, self.output)
        write_report(report, self.output)
        return report

    def scores(self, report: Report, suite: str) -> dict[str, np.ndarray]:
        result = report.result(suite)
        assert result is not None
        table = Run(self.output).table(result, "all")
        of = Owner(suite, "all", "", report.model["weights"], table.digest)
        return read_of(self.output, of).arrays


@pytest.mark.parametrize("keep", ["logits", "features", "both"])
def test_what_is_kept_is_what_the_model_said_to_each_image(keep: str, tmp_path: Path) -> None:
    bench = Scored(tmp_path, keep)
    report = bench.go("imagenet-sketch")
    found = bench.scores(report, "imagenet-sketch")
    assert found.keys() == {"both": {"logits", "features"}}.get(keep, {keep})
    assert {array.dtype for array in found.values()} == {np.dtype(np.float16)}
    features = torch.tensor(
        [[(p // 32 * 8 + 4) / 255, (p % 32 * 8 + 4) / 255, 0] for p in range(5)]
    )
    if "features" in found:
        assert np.allclose(found["features"], features, atol=1e-3)
        held = read_classifier(bench.output, report.model["weights"])
        assert held is not None
        assert np.array_equal(held[0], bench.subject.model.head.weight.detach())
        with pytest.raises(ConfigError, match="of another model"):
            read_classifier(bench.output, "f" * 64)
    if "logits" in found:
        expected = bench.subject.model.head(features).detach()
        assert np.allclose(found["logits"], expected, atol=2e-3)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_run_that_ends_in_the_middle_goes_on_to_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = Scored(tmp_path / "whole", "both"), Scored(tmp_path / "broken", "both")
    broken.root = whole.root
    whole.go(*SUITES)
    evaluate, done = run.run_cell, []

    def ends(*arguments: object) -> object:
        if done:
            raise KeyboardInterrupt
        done.append(arguments)
        return evaluate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "run_cell", ends)
    with pytest.raises(KeyboardInterrupt):
        broken.go(*SUITES)
    monkeypatch.setattr(run, "run_cell", evaluate)
    broken.go(*SUITES)
    assert files(broken.output) == files(whole.output)
    assert len([name for name in files(whole.output) if name.startswith("scores/")]) == 3
    # Without a cache they are the same, too.
    bare = Scored(tmp_path / "bare", "both", cached=False)
    bare.root = whole.root
    bare.go(*SUITES)
    assert files(bare.output) == files(whole.output)


def test_scores_are_kept_of_cells_that_were_cached_without_them(tmp_path: Path) -> None:
    bench = Scored(tmp_path, "")
    plain = bench.go("imagenet-sketch")
    assert not (bench.output / "scores").exists()
    bench.keep = "logits"
    report = bench.go("imagenet-sketch")
    assert report == plain
    assert bench.scores(report, "imagenet-sketch")["logits"].shape == (5, 1000)
    # A damaged file of the cache is made anew.
    (kept,) = bench.cache.folder.rglob("*.safetensors")
    sound = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(sound[:-2] + b"xx")
    bench.go("imagenet-sketch")
    assert file_of(bench.output, "imagenet-sketch", "all").read_bytes() == sound


def test_scores_of_another_model_or_run_are_refused(tmp_path: Path) -> None:
    bench, other = Scored(tmp_path / "one", "logits"), Scored(tmp_path / "two", "logits")
    report = bench.go("imagenet-sketch")
    paint(other.root / "imagenet-sketch" / wnid(0) / "ILSVRC2012_val_00000001.png", 900)
    other.go("imagenet-sketch")
    file = file_of(bench.output, "imagenet-sketch", "all")
    mine = file.read_bytes()
    for content, words in (
        (file_of(other.output, "imagenet-sketch", "all").read_bytes(), "another run or subset"),
        (mine[:100], "damaged"),
        (b"", "damaged"),
    ):
        file.unlink()
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=words):
            bench.scores(report, "imagenet-sketch")
    file.unlink()
    with pytest.raises(ConfigError, match="run with --keep"):
        bench.scores(report, "imagenet-sketch")
    file.write_bytes(mine)
    report.model["weights"] = "f" * 64
    with pytest.raises(ConfigError, match="another model"):
        bench.scores(report, "imagenet-sketch")


def test_features_that_are_not_all_that_the_answer_is_made_of_are_refused() -> None:
    image = torch.rand(3, 8, 8)
    assert check_features(Small(), image).in_features == 3
    with pytest.raises(ConfigError, match="not its classifier's alone"):
        check_features(Small(scaled=True), image)
    with pytest.raises(ConfigError, match=r"got no get_classifier\(\)"):
        classifier_of(nn.Linear(3, 2))
    model = Small()
    model.head = nn.Identity()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="got Identity"):
        classifier_of(model)


def test_the_size_is_said_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--output", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    command = ["--model", "test_cvt_ls", "--random-weights", "--img-size", "32", "--workers", "0",
               "--suites", "digits", "--max-images", "2", *out]  # fmt: skip
    assert main([*command, "--keep", "both", "--dry-run"]) == 0
    said = capsys.readouterr().out
    # 1 clean cell, 95 corrupted ones, 2 images each, float16 logits and features
    (line,) = [line for line in said.splitlines() if line.startswith("scores: ")]
    width = 10 + classifier_of(create_model("test_cvt_ls")).in_features
    assert f"at most {96 * 2 * width * 2 / 1e6:.1f} MB in {tmp_path / 'out' / 'scores'}" in line
    assert not (tmp_path / "out").exists()
