"""Predictions are kept, and tell what counts cannot."""

import json
from pathlib import Path

import numpy as np
import pytest
from colour_trees import Bench, paint, wnid

from robustness import analyse
from robustness.cli import main
from robustness.data.benchmarks import IN9_VARIANTS, IN_MCE
from robustness.files import write_atomically
from robustness.reporting.analysis import analyse as analysed
from robustness.reporting.report import write_report
from robustness.reporting.runs import Run
from robustness.rules import effective, statistics
from robustness.running import predictions
from robustness.running.predictions import Table

RNG = np.random.default_rng(0)
CONFIDENCE = RNG.random(350)
RIGHT = RNG.random(350) < CONFIDENCE


def table(**columns: list[float]) -> Table:
    return Table.of([f"n0/{i}.JPEG" for i in range(3)], columns)


@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_a_table_comes_back_from_its_file(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = table(label=[0, 1, 2], predicted=[0, -1, 2], confidence=[0.5, 0, 1], rank=[0, 1000, 0])
    with monkeypatch.context() as patch:
        if kind == "npz":
            patch.setattr(predictions, "pyarrow", None)
        assert predictions.suffix() == kind
        content = predictions.encode(kept)
        assert predictions.encode(kept) == content
    back = predictions.decode(content, kind)
    assert back.names == kept.names
    for column in ("label", "predicted", "confidence", "rank"):
        assert np.array_equal(getattr(back, column), getattr(kept, column))
    for damaged in (content[:40], b""):
        with pytest.raises(ValueError, match=r"\w"):
            predictions.decode(damaged, kind)


def test_the_calibration_error_is_the_scripts() -> None:
    order = np.argsort(CONFIDENCE)
    confidence, right = CONFIDENCE[order], RIGHT[order]
    # 350 images make the bins 0-100, 100-200 and 200-350; the scripts leave the last one out.
    gaps = [
        (len(c), c.mean() - r.mean())
        for c, r in zip(np.split(confidence, [100, 200]), np.split(right, [100, 200]), strict=True)
    ]
    for as_scripts, bins in ((True, gaps[:2]), (False, gaps)):
        expected = 100 * np.sqrt(sum(n / 350 * gap**2 for n, gap in bins))
        found = statistics.calibration_error(CONFIDENCE, RIGHT, as_scripts=as_scripts)
        assert found == pytest.approx(expected)
    assert statistics.calibration_error(CONFIDENCE[:150], RIGHT[:150], as_scripts=True) is None


def test_aurra_is_one_for_a_model_that_is_never_wrong_and_orders_by_confidence() -> None:
    assert statistics.aurra(CONFIDENCE, np.ones(350)) == pytest.approx(100)
    right = np.array([True, False])
    assert statistics.aurra(np.array([0.9, 0.1]), right) == pytest.approx(100 * (1 + 0.5) / 2)
    assert statistics.aurra(np.array([0.1, 0.9]), right) == pytest.approx(100 * (0 + 0.5) / 2)


def test_bootstrap_has_the_width_of_the_normal_interval_and_knows_pairs() -> None:
    errors = (RNG.random(2000) < 0.3).astype(float)
    found = statistics.bootstrap([errors], [100.0], paired=True)
    half = 1.96 * 100 * errors.std() / np.sqrt(2000)
    assert found.value == pytest.approx(100 * errors.mean())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.1)
    same = statistics.bootstrap([errors, errors], [1.0, -1.0], paired=True)
    assert same == (0, None, None)  # all draws would be alike
    apart = statistics.bootstrap([errors, errors], [1.0, -1.0], paired=False)
    assert apart.high - apart.low > 0.01


def test_what_no_image_did_has_a_bound_that_is_the_rule_of_threes() -> None:
    from scipy import stats

    for images in (10, 364, 50_000):
        bound = statistics.at_most(images)
        exact = stats.binomtest(0, images, alternative="less").proportion_ci(0.95, "exact")
        assert bound == pytest.approx(100 * exact.high)
        assert bound == pytest.approx(300 / images, rel=0.15)


def test_the_band_of_the_line_is_that_of_linear_regression() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(1, 0.4, 23)
    y = 1.2 * x - 1.5 + rng.normal(0, 0.1, 23)
    line = effective.logit_line(1 / (1 + np.exp(-x)), 1 / (1 + np.exp(-y)))
    found = effective.on_line(0.8, line)
    at = np.log(0.8 / 0.2)
    slope, height = np.polyfit(x, y, 1)
    scatter = ((y - slope * x - height) ** 2).sum() / 21
    error = np.sqrt(scatter * (1 / 23 + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()))
    reach = 2.0796138447 * error  # Student's t of 21 degrees
    logits = [np.log(share / (1 - share)) for share in found]
    middle = slope * at + height
    assert logits == pytest.approx([middle, middle - reach, middle + reach], rel=1e-6)


def test_a_class_that_is_never_right_is_named_where_chance_does_not_make_it_so() -> None:
    label = np.repeat(np.arange(20), 50)
    right = np.random.default_rng(0).random(1000) < 0.8
    right[label == 7] = False
    assert statistics.never_right(label, right) == [7]
    assert statistics.never_right(label, np.zeros(1000, bool)) == []
    assert statistics.never_right(np.arange(20), np.arange(20) > 3) == []  # one image each


def test_one_image_has_no_interval() -> None:
    assert statistics.bootstrap([np.ones(1)], [100.0], paired=True) == (100, None, None)
    assert statistics.bootstrap([np.ones(9), np.ones(1)], [1.0, 1.0], paired=False).low is None


def test_the_interval_is_that_of_the_drawn_means() -> None:
    cell, rng = RNG.random(60), np.random.Generator(np.random.PCG64(0))
    means = [cell[rng.integers(0, 60, 60)].mean() for _ in range(1000)]
    found = statistics.bootstrap([cell], [100.0], paired=True)
    assert (found.low, found.high) == pytest.approx(100 * np.percentile(means, [2.5, 97.5]))


def test_mcnemar_is_the_exact_test_of_the_images_that_differ() -> None:
    first = np.array([True] * 8 + [False] * 1 + [True] * 50)
    second = np.array([False] * 8 + [True] * 1 + [True] * 50)
    assert statistics.mcnemar(first, second) == pytest.approx((8, 1, 2 * (1 + 9) / 2**9))
    assert statistics.mcnemar(first, first).p == 1


def test_the_logit_line_finds_models_that_lie_on_one() -> None:
    clean = np.array([0.5, 0.6, 0.7, 0.8])
    logits = 0.8 * np.log(clean / (1 - clean)) - 0.4
    line = effective.logit_line(clean, 1 / (1 + np.exp(-logits)))
    assert line[:2] == pytest.approx((0.8, -0.4))
    assert effective.on_line(0.5, line).value == pytest.approx(1 / (1 + np.exp(0.4)))


def test_corruptions_get_intervals_and_families(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for corruption in IN_MCE:
        for severity in range(1, 6):
            for image in range(2):
                answer = 0 if severity <= 2 or image == 0 else 1
                folder = bench.root / "imagenet-c" / corruption / str(severity) / wnid(0)
                paint(folder / f"{image}.png", answer)
    write_report(bench.run({"imagenet-c": 2}), bench.output)
    lines = {(line.cell, line.name): line for line in analysed(Run(bench.output))}
    assert lines["noise", "mean error"].value == pytest.approx(30)
    assert lines["blur", "mean error"].note == ("defocus_blur, glass_blur, motion_blur, zoom_blur")
    whole = lines["", "mean error"]
    # One of the two images is never wrong, the other at three severities of five.
    assert (whole.value, whole.low, whole.high) == pytest.approx((30, 0, 60))
    assert lines["", "mCE"].value == pytest.approx(30 / 0.75, rel=0.2)


def test_the_background_gap_gets_an_interval(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for variant in IN9_VARIANTS:
        for image in range(4):
            answer = 151 if variant == "mixed_rand" and image < 2 else 407
            folder = bench.root / "imagenet-9" / variant / "val" / "02_wheeled vehicle"
            paint(folder / f"{image}.png", answer)
    write_report(bench.run({"imagenet-9": 4}), bench.output)
    lines = {(line.cell, line.name): line for line in analysed(Run(bench.output))}
    gap = lines["", "BG-gap"]
    assert gap.value == pytest.approx(50)
    assert gap.low is not None
    assert 0 <= gap.low < 50


TRY = ["--model", "test_resnet", "--random-weights", "--workers", "0", "--img-size", "32"]
DIGITS = [*TRY, "--suites", "digits", "--max-images", "5"]


@pytest.mark.landing
def test_the_command_writes_what_two_runs_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, more in (("a", []), ("b", ["--model-kwargs", "global_pool=max"])):
        out = ["--output", str(tmp_path / place), "--cache", str(tmp_path / "cache")]
        assert main([*DIGITS, *more, *out]) == 0
    capsys.readouterr()
    assert analyse.main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    for words in ("| digits | weather | mean error |", "| digits | fog/1 | McNemar p |", "AURRA"):
        assert words in printed
    lines = (tmp_path / "a/per_class.csv").read_text().splitlines()
    counts = json.loads((tmp_path / "a/report.json").read_text())["results"][0]["cells"]["fog/1"]
    fog = [line.split(",") for line in lines if line.startswith("digits,fog/1,")]
    assert sum(int(row[4]) for row in fog) == 5
    assert sum(int(row[3]) for row in fog) == counts["counts"]["top1"]


def test_predictions_of_another_run_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--output", str(tmp_path / "a"), "--cache", str(tmp_path / "cache")]
    assert main([*DIGITS, *out, "--max-images", "2"]) == 0
    capsys.readouterr()
    file = predictions.file_of(tmp_path / "a", "digits", "fog/1", "parquet")
    other = table(label=[0, 1, 2], predicted=[0, 0, 2], confidence=[1, 1, 1], rank=[0, 1, 0])
    for content, words in (
        (predictions.encode(other), "are of another run: 2/3 right"),
        (b"PAR1", "is damaged"),
        (None, "has no predictions of digits fog/1"),
    ):
        if content is None:
            file.unlink()
        else:
            write_atomically(file, content)
        assert analyse.main([str(tmp_path / "a")]) == 2
        error = capsys.readouterr().err.strip()
        assert words in error
        assert len(error.splitlines()) == 1
