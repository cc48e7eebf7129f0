"""Whether a model notices what it was never taught, from kept scores."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from robustness.data import labels
from robustness.reporting.abstaining import Scored, fitted, scored
from robustness.reporting.runs import Line, Run
from robustness.rules import detection, detectors
from robustness.rules.confidence import Array, confidences
from robustness.rules.results import Result
from robustness.scores import files
from vit_ls.config import ConfigError

KNOWN = ("openood-imagenet", "imagenet-val", "digits")
"""Suites whose images are the known ones, where no other one is named."""

_NAMES = {"auroc": "AUROC", "fpr95": "FPR at 95 %", "aupr_in": "AUPR in", "aupr_out": "AUPR out"}


@dataclass(frozen=True)
class _Cell:
    """Scores of the images of one cell.

    Attributes:
        result: Of its suite.
        names: Of the images.
        label: Their classes.
        logits: As its rule lets them compete, or why there are none.
        features: [B, D]; None where they are not kept.
    """

    result: Result
    names: tuple[str, ...]
    label: Array
    logits: Scored
    features: Array | None

    @classmethod
    def of(cls, run: Run, result: Result, cell: str) -> "_Cell":
        table = run.table(result, cell)
        logits = scored(run, result, cell, table)
        features = None
        if files.file_of(run.folder, result.benchmark, cell).is_file():
            weights = run.report.model["weights"]
            of = files.Owner(result.benchmark, cell, "", weights, table.digest)
            found = files.read_of(run.folder, of).arrays.get("features")
            if found is not None and np.isfinite(found).all():
                features = found.astype(np.float64)
        return cls(result, table.names, table.label, logits, features)


def unknown(run: Run, known: str | None = None) -> list[Line]:
    """AUROC and its like for each suite of unknown images of a run.

    Args:
        run: Of one model.
        known: "SUITE" or "SUITE:CELL" whose images are the known ones.

    Raises:
        ConfigError: That cell is not there, or files are of another run.
    """
    outside = [r for r in run.report.results if r.numbers == "unknown"]
    if not outside:
        if known:
            raise ConfigError(f"--known: {run.folder} has no suite of unknown images.")
        return []
    inside = _known(run, known)
    lines = []
    for result in outside:
        if inside is None:
            note = f"withheld: no known images, of {', '.join(KNOWN)} or by --known"
            lines.append(Line(result.benchmark, "all", "AUROC", None, note=note))
        elif result.whole("all") is None:
            note = "withheld: " + "; ".join(result.all_gaps())
            lines.append(Line(result.benchmark, "all", "AUROC", None, note=note))
        else:
            lines += _against(run, inside, _Cell.of(run, result, "all"))
    return lines


def _known(run: Run, named: str | None) -> _Cell | None:
    suite, _, cell = (named or "").partition(":")
    for name in [suite] if named else KNOWN:
        result = run.report.result(name)
        if result is not None and result.whole(cell or "all") is not None:
            if result.numbers == "unknown":
                raise ConfigError(f"--known {named}: its images are unknown ones.")
            return _Cell.of(run, result, cell or "all")
    if named:
        raise ConfigError(f"--known: {run.folder} has no whole cell {named}.")
    return None


def _against(run: Run, inside: _Cell, outside: _Cell) -> Iterator[Line]:
    where = outside.result.benchmark
    whose = f"known: {inside.result.benchmark}"
    why = inside.logits.why or outside.logits.why
    if why:
        yield Line(where, "all", "AUROC", None, note=f"{why}; {whose}")
    else:
        note = f"{whose}, {len(inside.names)} images"
        both = (detectors.of_logits(cell.logits.logits) for cell in (inside, outside))
        for (name, own), other in zip(*(d.items() for d in both), strict=True):
            yield from _lines(where, name, own, other[1], note)
        if where == "imagenet-o" and inside.result.numbers == "val":
            yield _of_its_classes(inside, outside)
    if inside.features is not None and outside.features is not None:
        yield from _by_features(run, inside, inside.features, outside.features, where)


def _lines(where: str, name: str, known: Array, other: Array, note: str) -> Iterator[Line]:
    for measure, found in detection.intervals(known, other).items():
        yield Line(where, "all", f"{_NAMES[measure]}, {name}", *found, note=note)


def _of_its_classes(inside: _Cell, outside: _Cell) -> Line:
    """What the script of ImageNet-O's authors prints: their 200 classes alone compete."""
    kept = np.array(labels.subset_indices("o"))
    of_them = np.isin(inside.label, kept)
    known = confidences(inside.logits.logits[of_them][:, kept])
    value = detection.average_precision(known, confidences(outside.logits.logits[:, kept]))
    note = f"as its authors' script, known: {int(of_them.sum())} clean images of these classes"
    return Line("imagenet-o", "all", "AUPR over its 200 classes", 100 * value, note=note)


def _by_features(run: Run, inside: _Cell, known: Array, other: Array, where: str) -> Iterator[Line]:
    """KNN and ViM are fitted on a half of the known images, by the hash of the name."""
    half = np.array([fitted(name) for name in inside.names], bool)
    bank, rest = known[half], known[~half]
    note = f"known: {inside.result.benchmark}, {len(rest)} images; fitted on its other {len(bank)}"
    classifier = files.read_classifier(run.folder, run.report.model["weights"])
    k = detectors.neighbours(len(bank), len(np.unique(inside.label)))
    whys = _not_fitted(bank, rest, k, classifier is not None)
    for name in ("KNN", "ViM"):
        if whys[name]:
            yield Line(where, "all", f"AUROC, {name}", None, note=f"withheld: {whys[name]}")
        elif name == "KNN":
            both = [detectors.nearest(bank, asked, k) for asked in (rest, other)]
            yield from _lines(where, name, both[0], both[1], f"{note}, neighbour {k}")
        elif classifier is not None:
            vim = detectors.Vim.of(bank, *classifier)
            yield from _lines(where, name, vim.score(rest), vim.score(other), note)


def _not_fitted(bank: Array, rest: Array, k: int, classifier: bool) -> dict[str, str]:
    """Why a method cannot be had; "" where it can."""
    if not len(rest):
        return dict.fromkeys(("KNN", "ViM"), "no known image is left to judge")
    few = f"fitted on {len(bank)} images"
    vim = "" if classifier else "no classifier is kept"
    return {
        "KNN": "" if k else f"{few}, needs two of each class",
        "ViM": f"{few}, needs more than the {bank.shape[1]} features"
        if len(bank) <= bank.shape[1] else vim,
    }  # fmt: skip
