"""When to abstain, and whether confidence means what it says: from kept predictions and scores."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from robustness.data import labels
from robustness.reporting.runs import Line, Run
from robustness.rules import confidence as rules
from robustness.rules.confidence import Array
from robustness.rules.results import Result
from robustness.running.predictions import Table
from robustness.scores import files
from vit_ls.config import ConfigError

CALIBRATED_ON = ("imagenet-val", "digits")
"""Suites whose clean images a temperature is fitted on, where no other one is named."""

POOLED = "corruptions"
"""Name of all the cells of a suite of corruptions together."""

_TOO_FEW = f"withheld: fewer than {rules.BINS} images"
_NO_SCORES = "withheld: no logits are kept of it"


@dataclass(frozen=True)
class Scored:
    """A cell's competing logits and the place of each label among them, or why there are none."""

    logits: Array
    label: Array
    why: str = ""


def abstaining(run: Run, calibrated_on: str | None = None) -> list[Line]:
    """Risk against coverage, calibration, and a temperature where logits are kept.

    Args:
        run: Of one model.
        calibrated_on: "SUITE" or "SUITE:CELL" whose images the temperature is fitted on.

    Raises:
        ConfigError: That cell has no logits, or files are of another run.
    """
    fit = _Fit.of(run, calibrated_on)
    lines = list(fit.lines()) if fit else []
    for result in run.report.results:
        if result.numbers in ("flips", "unknown"):
            continue
        tables = run.tables(result)
        singles = [cell for cell in tables if "/" not in cell and cell not in result.attacks]
        for cell in singles:
            lines += _of(run, result, cell, {cell: tables[cell]}, fit)
        pooled = {cell: tables[cell] for cell in result.required if "/" in cell and cell in tables}
        if pooled and len(pooled) == sum("/" in cell for cell in result.required):
            lines += _of(run, result, POOLED, pooled, fit)
    return lines


def scored(run: Run, result: Result, cell: str, table: Table) -> Scored:
    """The logits of a cell as its rule lets them compete."""
    none = np.zeros((0, 0))
    if not files.file_of(run.folder, result.benchmark, cell).is_file():
        return Scored(none, none, _NO_SCORES)
    of = files.Owner(result.benchmark, cell, "", run.report.model["weights"], table.digest)
    found = files.read_of(run.folder, of)
    if "logits" not in found.arrays:
        return Scored(none, none, _NO_SCORES)
    logits, label = found.arrays["logits"].astype(np.float64), table.label
    beyond = int((~np.isfinite(logits)).any(axis=1).sum())
    if beyond:
        return Scored(none, none, f"withheld: {beyond} images have logits beyond float16")
    if found.owner.rule in ("in9", "objectnet") and logits.shape[1] == len(labels.wnid_to_index()):
        why = f"withheld: the rule {found.owner.rule} has no probability for its classes"
        return Scored(none, none, why)
    if found.owner.rule in ("a", "r"):
        kept = np.array(labels.subset_indices(found.owner.rule))
        return Scored(logits[:, kept], np.searchsorted(kept, label))
    return Scored(logits, label)


def fitted(name: str) -> bool:
    """Whether an image is of the half that a temperature is fitted on: by the hash of its name."""
    return hashlib.sha256(_bare(name).encode()).digest()[-1] % 2 == 0


def _bare(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


@dataclass(frozen=True)
class _Fit:
    """A temperature and the images that it was fitted on, which no number is reported on."""

    benchmark: str
    cell: str
    temperature: float | None
    images: frozenset[str]
    why: str = ""

    @classmethod
    def of(cls, run: Run, named: str | None) -> "_Fit | None":
        suites = [named.partition(":")[0]] if named else list(CALIBRATED_ON)
        cell = named.partition(":")[2] or "all" if named else "all"
        result = next((r for s in suites if (r := run.report.result(s)) is not None), None)
        if result is None or result.whole(cell) is None:
            if named:
                raise ConfigError(f"--calibrate: {run.folder} has no whole cell {named}.")
            return None
        table = run.table(result, cell)
        found = scored(run, result, cell, table)
        if found.why:
            if named:
                raise ConfigError(f"--calibrate {named}: {found.why}.")
            return None
        half = np.array([fitted(name) for name in table.names], bool)
        if half.sum() < rules.BINS or (~half).sum() < rules.BINS:
            return cls(result.benchmark, cell, None, frozenset(), _TOO_FEW + " in a half")
        temperature = rules.fit_temperature(found.logits[half], found.label[half])
        why = "" if temperature else "withheld: no temperature is best, the fit runs away"
        names = (name for name, own in zip(table.names, half, strict=True) if own)
        return cls(result.benchmark, cell, temperature, frozenset(map(_bare, names)), why)

    def lines(self) -> Iterator[Line]:
        note = self.why or f"fitted on {len(self.images)} images, a half by the hash of the name"
        yield Line(self.benchmark, self.cell, "temperature", self.temperature, note=note)


def _of(
    run: Run, result: Result, cell: str, tables: dict[str, Table], fit: _Fit | None
) -> Iterator[Line]:
    confidence = np.concatenate([table.confidence for table in tables.values()]).astype(float)
    right = np.concatenate([table.right for table in tables.values()])
    for name, value in (
        ("AURC", rules.aurc(confidence, right)),
        ("excess AURC", rules.excess_aurc(confidence, right)),
        *((f"accuracy at {c} % coverage", rules.accuracy_at(confidence, right, c / 100))
          for c in (80, 90)),
        *((f"coverage at {r} % risk", rules.coverage_at(confidence, right, r / 100))
          for r in (1, 5)),
    ):  # fmt: skip
        yield Line(result.benchmark, cell, name, 100 * value)
    yield from _calibration(result, cell, confidence, right, "")
    losses, why = _losses(run, result, tables, fit)
    if why and why != _NO_SCORES:
        yield Line(result.benchmark, cell, "NLL, nats", None, note=why)
    for (note, name), values in losses.items():
        if len(values) < rules.BINS and note:
            yield Line(result.benchmark, cell, name + _named(note), None, note=_TOO_FEW)
        elif name == "confidence":
            held = _held(tables, fit)
            yield from _calibration(result, cell, values, right[held], note)
        else:
            yield Line(result.benchmark, cell, name + _named(note), float(values.mean()), note=note)


def _held(tables: dict[str, Table], fit: _Fit | None) -> Array:
    """Which images the temperature was not fitted on."""
    images = frozenset() if fit is None else fit.images
    names = (name for table in tables.values() for name in table.names)
    return np.array([_bare(name) not in images for name in names], bool)


def _losses(
    run: Run, result: Result, tables: dict[str, Table], fit: _Fit | None
) -> tuple[dict[tuple[str, str], Array], str]:
    """A number of each image, by note and name; or why there are none. One cell at a time."""
    found: dict[tuple[str, str], list[Array]] = {}
    held = _held(tables, fit)
    left = f"on {int(held.sum())} images that it was not fitted on"
    for cell, table in tables.items():
        one = scored(run, result, cell, table)
        if one.why:
            return {}, one.why
        asked = [("", 1.0, one)]
        if fit is not None and fit.temperature is not None:
            own = _held({cell: table}, fit)
            rest = Scored(one.logits[own], one.label[own])
            for how, temperature in (("without", 1.0), ("with", fit.temperature)):
                asked.append((f"{how} the temperature, {left}", temperature, rest))
        for note, temperature, of in asked:
            for name, loss in (
                ("NLL, nats", rules.log_losses),
                ("Brier score", rules.brier_scores),
            ):
                found.setdefault((note, name), []).append(loss(of.logits, of.label, temperature))
            if note:
                own = rules.confidences(of.logits, temperature)
                found.setdefault((note, "confidence"), []).append(own)
    return {key: np.concatenate(parts) for key, parts in found.items()}, ""


def _calibration(
    result: Result, cell: str, confidence: Array, right: Array, note: str
) -> Iterator[Line]:
    for equal_mass, kind in ((False, "width"), (True, "mass")):
        value = rules.calibration_error(confidence, right, equal_mass=equal_mass)
        name = f"ECE, {rules.BINS} bins of equal {kind}{_named(note)}"
        share = None if value is None else 100 * value
        yield Line(result.benchmark, cell, name, share, note=_TOO_FEW if value is None else note)


def _named(note: str) -> str:
    """Another note is another number: its name says so, too."""
    return f", {note.partition(',')[0]}" if note else ""
