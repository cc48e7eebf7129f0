"""Abstaining, calibration and unknown images from the files of a run, without a model."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from robustness import analyse
from robustness.data import labels
from robustness.data.benchmarks import IN_MCE, grid
from robustness.files import write_atomically
from robustness.reporting.abstaining import abstaining, fitted
from robustness.reporting.analysis import analyse as analysed
from robustness.reporting.report import to_json
from robustness.reporting.runs import Line, Run
from robustness.reporting.unknown import unknown
from robustness.rules import confidence as rules
from robustness.rules import detection, detectors
from robustness.rules.metrics import metrics
from robustness.rules.results import CellResult, Report, Result
from robustness.running import predictions
from robustness.running.predictions import Table
from robustness.scores.files import Owner, encode, file_of
from vit_ls.config import ConfigError

MODEL = {"name": "m", "class": "c", "arguments": {}, "weights": "f" * 64, "origin": "random",
         "which": "", "dtype": "float32"}  # fmt: skip


class Made:
    """The folder of a run whose answers are given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = Report(MODEL)

    def suite(
        self, name: str, cells: dict[str, np.ndarray], labels: np.ndarray, *, rule: str = "plain",
        numbers: str = "accuracy", shift: int = 0,
    ) -> None:  # fmt: skip
        result = Result(name, numbers, "f", "l", "t", {}, len(labels), list(cells))
        self.report.results.append(result)
        for cell, logits in cells.items():
            own = logits[np.arange(len(labels)), labels.clip(0)][:, None]
            rank = (logits > own).sum(axis=1) if numbers != "unknown" else np.full(len(labels), 9)
            names = [f"{k % 3}/{k + shift:05d}.png" for k in range(len(labels))]
            table = Table.of(names, {
                "label": labels, "predicted": logits.argmax(axis=1), "rank": rank,
                "confidence": rules.confidences(logits),
            })  # fmt: skip
            counts = {"images": len(labels), "top1": int((rank == 0).sum())}
            others = ("top5", "top1_unmasked", "unmapped", "sure", "nonfinite")
            result.cells[cell] = CellResult(counts | dict.fromkeys(others, 0))
            content = predictions.encode(table)
            file = predictions.file_of(self.folder, name, cell, predictions.suffix())
            write_atomically(file, content)
            owner = Owner(name, cell, rule, MODEL["weights"], table.digest)
            arrays = {"logits": logits, "features": logits[:, :4]}
            write_atomically(file_of(self.folder, name, cell), encode(arrays, owner))

    def run(self) -> Run:
        write_atomically(self.folder / "report.json", to_json(self.report).encode())
        return Run(self.folder)


def drawn(count: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits in float16 that are that much too sure, and classes as likely as they should say."""
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(count, 6)) * 4).astype(np.float16)
    shares = special.softmax(logits.astype(float) / temperature, axis=1).cumsum(axis=1)
    return logits, (rng.random((count, 1)) > shares[:, :-1]).sum(axis=1)


def found(lines: list[Line], suite: str, cell: str = "all") -> dict[str, Line]:
    return {line.name: line for line in lines if (line.benchmark, line.cell) == (suite, cell)}


def test_a_temperature_is_fitted_on_one_half_and_judged_on_images_that_it_did_not_see(
    tmp_path: Path,
) -> None:
    made = Made(tmp_path)
    logits, label = drawn(2000, 3)
    made.suite("digits", {"all": logits}, label)
    # Half of the shifted images have the names of the clean ones.
    made.suite("shift", {"a/1": logits, "a/2": -logits}, label, numbers="mean_error", shift=1000)
    lines = abstaining(made.run())
    own = found(lines, "digits")
    half = np.array([fitted(f"{k % 3}/{k:05d}.png") for k in range(2000)])
    assert 900 < half.sum() < 1100
    temperature = own["temperature"].value
    assert temperature == pytest.approx(3, rel=0.1)
    assert temperature == pytest.approx(rules.fit_temperature(logits[half], label[half]))
    for how, t in (("without", 1.0), ("with", temperature)):
        line = own[f"NLL, nats, {how} the temperature"]
        expected = rules.log_losses(logits[~half], label[~half], t).mean()
        assert line.value == pytest.approx(expected)
        assert f"on {(~half).sum()} images that it was not fitted on" in line.note
    before, after = (
        own[f"ECE, 15 bins of equal width, {how} the temperature"].value
        for how in ("without", "with")
    )
    assert after < before / 3
    assert own["NLL, nats"].value == pytest.approx(rules.log_losses(logits, label).mean())
    names = [f"{k % 3}/{k + 1000:05d}.png" for k in range(2000)]
    seen = np.array([fitted(n) and int(n[2:7]) < 2000 and int(n[2:7]) % 3 == int(n[0])
                     for n in names])  # fmt: skip
    shifted = found(lines, "shift", "corruptions")["NLL, nats, with the temperature"]
    both = [rules.log_losses(z[~seen], label[~seen], temperature) for z in (logits, -logits)]
    assert shifted.value == pytest.approx(np.concatenate(both).mean())
    assert f"on {2 * (~seen).sum()} images" in shifted.note


def test_numbers_that_could_be_wrong_are_withheld_with_the_reason(tmp_path: Path) -> None:
    made = Made(tmp_path)
    logits, label = drawn(40, 1)
    beyond = logits.astype(float).copy()
    beyond[3, 2] = 1e6
    with np.errstate(over="ignore"):
        made.suite("far", {"all": beyond}, label)
    wide = np.zeros((40, 1000))
    wide[:, :6] = logits
    made.suite("imagenet-9", {"original": wide}, label, rule="in9", numbers="in9")
    certain = np.eye(6)[label] * 9
    made.suite("digits", {"all": certain}, label)
    lines = abstaining(made.run())
    assert "1 images have logits beyond float16" in found(lines, "far")["NLL, nats"].note
    nine = found(lines, "imagenet-9", "original")["NLL, nats"]
    assert nine.value is None
    assert "the rule in9 has no probability for its classes" in nine.note
    assert found(lines, "digits")["temperature"].value is None
    assert "the fit runs away" in found(lines, "digits")["temperature"].note
    assert not any("with the temperature" in line.name for line in lines)


def test_only_the_classes_that_compete_have_a_probability(tmp_path: Path) -> None:
    made = Made(tmp_path)
    kept = np.array(labels.subset_indices("a"))
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(30, 1000)).astype(np.float16)
    label = rng.choice(kept, 30)
    made.suite("imagenet-a", {"all": logits}, label, rule="a", numbers="masked")
    value = found(abstaining(made.run()), "imagenet-a")["NLL, nats"].value
    own = special.log_softmax(logits[:, kept].astype(float), axis=1)
    places = [kept.tolist().index(one) for one in label]
    assert value == pytest.approx(-own[np.arange(30), places].mean())


def test_without_scores_there_is_risk_and_no_loss(tmp_path: Path) -> None:
    made = Made(tmp_path)
    logits, label = drawn(40, 1)
    made.suite("digits", {"all": logits}, label)
    file_of(tmp_path, "digits", "all").unlink()
    own = found(abstaining(made.run()), "digits")
    assert "AURC" in own
    assert not any(name.startswith(("NLL", "temperature")) for name in own)
    with pytest.raises(ConfigError, match="--calibrate digits: withheld: no logits are kept"):
        abstaining(made.run(), "digits")
    with pytest.raises(ConfigError, match="has no whole cell digits:none"):
        abstaining(made.run(), "digits:none")


def test_unknown_images_are_told_from_the_known_ones_by_each_score(tmp_path: Path) -> None:
    made = Made(tmp_path)
    logits, label = drawn(400, 1)
    made.suite("digits", {"all": logits}, label)
    strange = (drawn(70, 1, seed=1)[0] / 4).astype(np.float16)
    none = np.full(70, -1)
    made.suite("odd", {"all": strange}, none, rule="unknown", numbers="unknown")
    run = made.run()
    own = found(unknown(run), "odd")
    for name, known in detectors.of_logits(logits.astype(float)).items():
        other = detectors.of_logits(strange.astype(float))[name]
        expected = detection.measures(known, other)
        assert own[f"AUROC, {name}"].value == pytest.approx(100 * expected.auroc)
        assert own[f"FPR at 95 %, {name}"].value == pytest.approx(100 * expected.fpr95)
        assert own[f"AUPR in, {name}"].low < own[f"AUPR in, {name}"].value
        assert "known: digits, 400 images" in own[f"AUROC, {name}"].note
    half = np.array([fitted(f"{k % 3}/{k:05d}.png") for k in range(400)])
    bank, rest = (logits[some, :4].astype(float) for some in (half, ~half))
    near = [
        detectors.nearest(bank, asked, len(bank) // 12)
        for asked in (rest, strange[:, :4].astype(float))
    ]
    assert own["AUROC, KNN"].value == pytest.approx(100 * detection.measures(*near).auroc)
    assert own["AUROC, ViM"].value is None
    assert "no classifier is kept" in own["AUROC, ViM"].note
    # The numbers of images with classes are not made of those without.
    assert not found(abstaining(run), "odd")
    with pytest.raises(ConfigError, match="--known odd: its images are unknown ones"):
        unknown(run, "odd")
    with pytest.raises(ConfigError, match="has no whole cell none"):
        unknown(run, "none")
    made.report.results.pop(0)
    (line,) = unknown(made.run())
    assert line.value is None
    assert "no known images" in line.note


def test_the_command_writes_them_all_and_names_scores_of_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Made(tmp_path)
    logits, label = drawn(120, 2)
    made.suite("digits", {"all": logits}, label)
    made.suite("odd", {"all": logits / 3}, np.full(120, -1), rule="unknown", numbers="unknown")
    made.run()
    assert analyse.main([str(tmp_path), "--known", "digits", "--calibrate", "digits:all"]) == 0
    said = capsys.readouterr().out
    names = {line["name"] for line in json.loads((tmp_path / "analysis.json").read_text())}
    assert {"AURC", "temperature", "AUROC, energy", "AUROC, KNN"} <= names
    assert all(name in said for name in names)
    made.report.model = {**MODEL, "weights": "e" * 64}
    made.run()
    assert analyse.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip()
    assert "holds scores of another model than the report beside it" in error
    assert len(error.splitlines()) == 1


def test_effective_robustness_has_the_band_of_its_line_and_relative_mce_its_interval(
    tmp_path: Path,
) -> None:
    made = Made(tmp_path)
    logits, label = drawn(60, 1)
    made.suite("imagenet-val", {"all": logits}, label)
    made.suite("imagenet-a", {"all": -logits}, label)
    worse = {cell: logits / 2 + drawn(60, 1, seed=k)[0] for k, cell in enumerate(grid(IN_MCE))}
    made.suite("imagenet-c", worse, label, numbers="mce")
    run = made.run()
    lines = analysed(run)
    effective = found(lines, "imagenet-a")["effective robustness"]
    assert effective.low < effective.value < effective.high
    assert "models of timm's table" in effective.note
    known = {metric.name: metric.value for metric in metrics(run.report)}
    for name in ("mCE", "relative mCE"):
        line = found(lines, "imagenet-c", "")[name]
        assert line.value == pytest.approx(known[name])
        assert line.low < line.value < line.high


def test_a_cell_without_a_wrong_answer_has_a_bound_instead_of_an_interval(tmp_path: Path) -> None:
    made = Made(tmp_path)
    logits = np.eye(6)[np.arange(60) % 6] * 9
    cells = {"a/1": logits, "a/2": logits}
    made.suite("shift", cells, np.arange(60) % 6, numbers="mean_error")
    line = found(analysed(made.run()), "shift", "")["mean error"]
    assert (line.value, line.low, line.high) == (0, None, None)
    assert "no image differs: at most 4.87 % of others do" in line.note
