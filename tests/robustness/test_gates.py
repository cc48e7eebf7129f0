"""Gates: limits on numbers, and an older run that a model must not fall behind."""

import json
from pathlib import Path

import pytest
from colour_trees import Bench, paint, wnid

from robustness.cli import main
from robustness.data.benchmarks import IN_MCE
from robustness.gates.judged import Gates
from robustness.gates.limits import Limit
from robustness.reporting.page import to_html
from robustness.reporting.report import read_report, to_json, to_markdown, write_report
from robustness.rules.metrics import Metric, metrics
from robustness.rules.results import Gate, Report
from vit_ls.config import ConfigError

NUMBERS = [
    Metric("imagenet-c", "mCE", 59.0, lower_is_better=True),
    Metric("imagenet-c", "relative mCE", None, note="withheld: no val", lower_is_better=True),
    Metric("imagenet-c", "CE fog", 70.0, lower_is_better=True),
    Metric("digits", "top-1 clean", 98.5),
    Metric("digits", "error fog", 3.0),
    Metric("digits", "error frost", 4.0),
]


@pytest.mark.parametrize(
    ("rule", "failed", "found"),
    [
        ("imagenet-c:mce > 60", False, "mCE is 59"),
        ("imagenet-c:mCE >= 59", True, "mCE is 59"),
        ("imagenet-c:mCE > 59", False, "mCE is 59"),
        ("digits:clean < 99", True, "top-1 clean is 98.5"),
        ("digits : clean <= 98.4 %", False, "top-1 clean is 98.5"),
        ("digits:fog>2.5", True, "error fog is 3"),
        ("imagenet-c:relative mce > 90", True, "relative mCE: withheld: no val"),
    ],
)
def test_a_limit_fails_where_it_holds_or_nobody_can_tell(
    rule: str, failed: bool, found: str
) -> None:
    assert Limit.of(rule).judge(NUMBERS) == Gate(rule, found, failed)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("digits clean 99", 'must be "SUITE:NUMBER > VALUE"'),
        ("digits:clean == 99", 'must be "SUITE:NUMBER > VALUE"'),
        ("digits:clean < ninety", 'must be "SUITE:NUMBER > VALUE"'),
        ("digit:clean < 99", "this run has no suite digit; did you mean 'digits'?"),
        ("imagenet-c:mFE > 60", "imagenet-c has no number mFE; did you mean 'mCE'?"),
        ("digits:error > 5", "fits 2 numbers: error fog, error frost"),
    ],
)
def test_a_limit_on_what_does_not_exist_is_refused(rule: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        Limit.of(rule).find(NUMBERS)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def sketch(folder: Path, answers: list[int]) -> tuple[Bench, Report]:
    """A run on images of class 0 to which a model gives these answers."""
    folder.mkdir()
    bench = Bench(folder)
    for place, answer in enumerate(answers):
        paint(bench.root / "imagenet-sketch" / wnid(0) / f"{place}.png", answer)
    report = bench.run({"imagenet-sketch": len(answers)})
    write_report(report, bench.output)
    return bench, report


def judged(old: Bench, new: Bench, report: Report, points: float) -> list[Gate]:
    gates = Gates.of([], old.output / "report.json", points)
    gates.check(lambda: report, new.output)
    return gates.judge(report, new.output, {"imagenet-sketch"})


def test_falling_behind_is_paired_by_image_with_mcnemars_test(tmp_path: Path) -> None:
    old, _ = sketch(tmp_path / "old", [0] * 16 + [1] * 4)
    new, report = sketch(tmp_path / "new", [1] * 8 + [0] * 9 + [1] * 3)
    # The pictures differ, as those of another copy of a data set might: the data are not the same.
    (gate,) = judged(old, new, report, 0.5)
    assert gate.failed
    assert gate.found == "withheld: other data in the baseline"

    report.results[0].identity = read_report(old.output / "report.json").results[0].identity
    (gate,) = judged(old, new, report, 0.5)
    assert gate.failed
    # Eight that only the old one has right, one that only the new one has: 2 (1 + 9) / 2^9.
    assert gate.found == ("45.00 against 80.00; right alone: 8 before, 1 now, p 0.0391")
    assert not judged(old, new, report, 35.0)[0].failed
    assert judged(old, new, report, 34.9)[0].failed


def test_a_number_that_became_better_or_went_away(tmp_path: Path) -> None:
    old, report = sketch(tmp_path / "old", [0, 0, 1, 1])
    new, _ = sketch(tmp_path / "new", [0, 0, 1, 1])
    (gate,) = judged(old, new, report, 0.0)
    assert not gate.failed
    assert gate.found == "50.00 against 50.00; right alone: 0 before, 0 now, p 1"
    (new.output / "predictions/imagenet-sketch/all.parquet").unlink()
    assert "not paired: " in judged(old, new, report, 0.0)[0].found
    empty = Report(report.model, absent={"imagenet-sketch": "not found"}, incomplete=True)
    (gate,) = Gates.of([], old.output, 0.0).judge(empty, new.output, {"imagenet-sketch"})
    assert gate.failed
    assert gate.found == "withheld: this run does not have it"


def test_lower_errors_are_better(tmp_path: Path) -> None:
    reports = []
    for name, wrong in (("old", 1), ("new", 0)):
        (tmp_path / name).mkdir()
        bench = Bench(tmp_path / name)
        for corruption in IN_MCE:
            for severity in range(1, 6):
                folder = bench.root / "imagenet-c" / corruption / str(severity) / wnid(0)
                paint(folder / "0.png", wrong if severity == 5 else 0)
        reports.append((bench, bench.run({"imagenet-c": 1})))
        write_report(reports[-1][1], bench.output)
    (old, before), (new, after) = reports
    after.results[0].identity = before.results[0].identity
    for one, other, report, fails in ((old, new, after, False), (new, old, before, True)):
        (gate,) = Gates.of([], one.output, 1.0).judge(report, other.output, {"imagenet-c"})
        assert gate.asked == "imagenet-c:mCE worse by more than 1"
        assert gate.failed is fails


def test_what_cannot_be_a_baseline_is_refused(tmp_path: Path) -> None:
    old, report = sketch(tmp_path / "old", [0])
    for given, words in (
        ((old.output, None), "go together"),
        ((None, 0.5), "go together"),
        ((old.output, -1.0), "--fail-if-worse must be at least 0, got -1"),
        ((old.output, float("nan")), "--fail-if-worse must be at least 0"),
        ((tmp_path / "none.json", 0.5), "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=words):
            Gates.of([], *given)
    gates = Gates.of([], old.output, 0.5)
    with pytest.raises(ConfigError, match="is the report that this run writes"):
        gates.check(lambda: report, old.output)
    other = Report(report.model)
    with pytest.raises(ConfigError, match="no headline number of the suites of this run"):
        gates.check(lambda: other, tmp_path)


def test_gates_stand_in_the_report_and_reports_without_them_stay_as_they_were(
    tmp_path: Path,
) -> None:
    _, report = sketch(tmp_path / "old", [0])
    assert "gates" not in json.loads(to_json(report))
    assert "Gates" not in to_markdown(report)
    report.gates = [Limit.of("imagenet-sketch:top-1 < 101").judge(metrics(report))]
    assert "| FAILED | imagenet-sketch:top-1 < 101 | top-1 is 100 |" in to_markdown(report)
    assert Report.from_dict(json.loads(to_json(report))) == report
    assert '<td class="failed">FAILED</td>' in to_html([report], ["old"])


def test_the_command_ends_with_status_3_and_the_lines_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    paint(root / "own" / "a" / "0.png", 0, size=32)
    paint(root / "own" / "b" / "0.png", 1, size=32)
    (tmp_path / "own.yaml").write_text(
        "name: own\nlayout: classes\nclasses: [a, b]\nimages: 1\nimage_size: 32\n"
    )
    (root / "own" / "b" / "0.png").unlink()
    command = ["--model", "test_resnet", "--random-weights", "--workers", "0", "--img-size", "32",
               "--benchmark", str(tmp_path / "own.yaml"), "--data-root", str(root),
               "--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "out")]  # fmt: skip
    rules = ["own:top-1 < 101", "own:top-5 < 0"]
    assert main([*command, "--fail-if", *rules]) == 3
    error = capsys.readouterr().err.splitlines()
    assert [line for line in error if "gate" in line] == [
        f"gate failed: own:top-1 < 101: top-1 is {int(100 * right(tmp_path / 'out'))}"
    ]
    kept = read_report(tmp_path / "out/report.json").gates
    assert [gate.failed for gate in kept] == [True, False]
    assert main([*command, "--fail-if", "own:top-5 < 0"]) == 0
    (tmp_path / "out/report.json").unlink()
    for more in ([], ["--dry-run"]):
        assert main([*command, *more, "--fail-if", "own:top-3 < 0"]) == 2
        assert "own has no number top-3; did you mean 'top-" in capsys.readouterr().err
    assert not (tmp_path / "out/report.json").exists()


def right(folder: Path) -> float:
    counts = read_report(folder / "report.json").results[0].cells["all"].counts
    return counts["top1"] / counts["images"]
