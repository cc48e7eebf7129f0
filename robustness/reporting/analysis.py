"""Everything that is made of kept predictions, without running a model again."""

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from robustness.corruptions import CORRUPTIONS
from robustness.data.benchmarks import IN_MCE, PERTURBATIONS, SINGLE
from robustness.data.gaps import some
from robustness.reporting.comparison import BY_NAME, differences, verified
from robustness.reporting.published import published_pairs
from robustness.reporting.runs import Line, Run
from robustness.rules import effective, statistics
from robustness.rules.metrics import (
    alexnet,
    alexnet_flips,
    cells_of,
    corruptions_of,
    mean_errors,
)
from robustness.rules.results import Report, Result
from robustness.rules.statistics import Array
from robustness.running.predictions import Table


def analyse(run: Run) -> list[Line]:
    """Calibration, response-rate curve, bootstrap intervals, families, effective robustness."""
    lines: list[Line] = []
    val = run.report.result("imagenet-val")
    clean = run.table(val, "all") if val and val.whole("all") else None
    for result in run.report.results:
        if result.numbers == "unknown":
            continue  # its images have no class to be right about
        tables = run.tables(result)
        if result.numbers == "flips":
            lines += _of_flips(result, tables)
            continue
        for cell in [c for c in tables if "/" not in c]:
            lines += _of_cell(result, cell, tables[cell])
        lines += _lost_to_attacks(result, tables)
        if corruptions_of(result):
            lines += _of_corruptions(result, tables, clean)
        if result.numbers == "in9":
            lines += _background_gap(result, tables)
    return lines + list(_effective(run.report))


def compare_pairs(first: Run, second: Run) -> list[Line]:
    """Paired tests of two runs, cell by cell, on the same images.

    A cell whose images differ is named, with no number.
    """
    lines = []
    for result in first.report.results:
        other = second.report.result(result.benchmark)
        if other is None or result.numbers == "unknown":
            continue
        both = [first.report, second.report]
        differ = differences(both, result.benchmark, transform=False)
        how = "" if verified(both, result.benchmark) else f"; {BY_NAME}"
        ours, theirs = first.tables(result), second.tables(other)
        for cell in [c for c in ours if c in theirs]:
            a, b = ours[cell], theirs[cell]
            if differ or a.names != b.names or not np.array_equal(a.label, b.label):
                note = f"withheld: other {', '.join(differ) or 'images'}"
                lines.append(Line(result.benchmark, cell, "McNemar p", None, note=note))
                continue
            if a.flips is not None and b.flips is not None:
                counts = result.whole(cell) or {}
                steps = counts["comparisons"] / counts["images"]
                less = (a.flips - b.flips) / steps
                name = "difference of flip probability"
                lines.append(_drawn(result, cell, name, [less], [100.0], how[2:]))
                continue
            test = statistics.mcnemar(a.right, b.right)
            note = f"right alone: {test.first_alone} and {test.second_alone}{how}"
            lines.append(Line(result.benchmark, cell, "McNemar p", test.p, note=note))
            gain = a.right.astype(float) - b.right.astype(float)
            lines.append(_drawn(result, cell, "difference of top-1", [gain], [100.0], how[2:]))
    return lines


def _drawn(
    result: Result,
    cell: str,
    name: str,
    cells: Sequence[Array],
    weights: Sequence[float],
    note: str,
    *,
    paired: bool = True,
) -> Line:
    """A weighted sum of means with its interval; where no image differs, what may still do."""
    found = statistics.bootstrap(cells, weights, paired=paired)
    images = min(map(len, cells))
    if found.low is None and images > 1:
        most = f"no image differs: at most {statistics.at_most(images):.2f} % of others do"
        note = "; ".join(filter(None, [note, most]))
    return Line(result.benchmark, cell, name, *found, note=note)


def _of_cell(result: Result, cell: str, table: Table) -> Iterator[Line]:
    confidence, right = table.confidence, table.right
    few = f"withheld: fewer than {statistics.BIN} images in two bins"
    for name, as_scripts in (
        ("RMS calibration error, as the A and R scripts print it", True),
        ("RMS calibration error, all bins", False),
    ):
        value = statistics.calibration_error(confidence, right, as_scripts=as_scripts)
        yield Line(result.benchmark, cell, name, value, note=few if value is None else "")
    yield Line(result.benchmark, cell, "AURRA", statistics.aurra(confidence, right))
    never = statistics.never_right(table.label, right)
    if never:
        note = f"swapped or moved? so many are not chance: {some([str(k) for k in never])}"
        yield Line(result.benchmark, cell, "classes never right, count", len(never), note=note)


def _lost_to_attacks(result: Result, tables: dict[str, Table]) -> Iterator[Line]:
    """Clean top-1 less robust top-1, on the same images."""
    for cell in [cell for cell in result.attacks if cell in tables and SINGLE[0] in tables]:
        lost = tables[SINGLE[0]].right.astype(float) - tables[cell].right
        note = f"{result.attacks[cell]}; bootstrap over images"
        yield _drawn(result, cell, "top-1 lost to the attack", [lost], [100.0], note)


def _of_flips(result: Result, tables: dict[str, Table]) -> Iterator[Line]:
    """Intervals of the flip probabilities and of the mean flip rate."""
    shares = {}
    for cell, table in tables.items():
        counts = result.whole(cell)
        if counts is not None and table.flips is not None:
            shares[cell] = table.flips / (counts["comparisons"] / counts["images"])
            note = "bootstrap over videos"
            yield _drawn(result, cell, "flip probability", [shares[cell]], [100.0], note)
    if all(cell in shares for cell in PERTURBATIONS):
        weights = [100 / alexnet_flips()[cell] / len(PERTURBATIONS) for cell in PERTURBATIONS]
        paired = len({tables[cell].names for cell in PERTURBATIONS}) == 1
        cells = [shares[cell] for cell in PERTURBATIONS]
        yield _drawn(result, "", "mFR", cells, weights, "bootstrap over videos", paired=paired)


def _of_corruptions(
    result: Result, tables: dict[str, Table], clean: Table | None
) -> Iterator[Line]:
    errors = mean_errors(result)
    families: dict[str, list[str]] = {}
    for name in errors:
        if name in CORRUPTIONS:
            families.setdefault(CORRUPTIONS[name].group, []).append(name)
    for family, names in families.items():
        mean = fmean(errors[name] for name in names)
        yield Line(result.benchmark, family, "mean error", mean, note=", ".join(names))
    required = list(dict.fromkeys(c.split("/")[0] for c in result.required if "/" in c))
    if not all(name in errors for name in required):
        return
    yield _interval(result, tables, required, "mean error", dict.fromkeys(required, 1.0))
    if result.numbers == "mce":
        scales = {name: 1 / alexnet().mean[name] for name in IN_MCE}
        yield _interval(result, tables, list(IN_MCE), "mCE", scales)
        if clean is not None:
            above = {name: 1 / (alexnet().mean[name] - alexnet().clean) for name in IN_MCE}
            yield _interval(result, tables, list(IN_MCE), "relative mCE", above, clean)


def _interval(
    result: Result,
    tables: dict[str, Table],
    corruptions: Sequence[str],
    name: str,
    scales: dict[str, float],
    clean: Table | None = None,
) -> Line:
    """Interval of a weighted mean of errors, less the clean error with the same weights."""
    cells, weights = [], []
    names = set()
    for corruption in corruptions:
        own = cells_of(result, corruption)
        for cell in own:
            names.add(tables[cell].names)
            cells.append((~tables[cell].right).astype(float))
            weights.append(100 * scales[corruption] / len(own) / len(corruptions))
    if clean is not None:
        names.add(clean.names)
        cells.append((~clean.right).astype(float))
        weights.append(-sum(weights))
    note = "bootstrap over images" + ("" if len(names) == 1 else ", each cell by itself")
    return _drawn(result, "", name, cells, weights, note, paired=len(names) == 1)


def _background_gap(result: Result, tables: dict[str, Table]) -> Iterator[Line]:
    if not {"mixed_same", "mixed_rand"} <= tables.keys():
        return
    same, rand = tables["mixed_same"], tables["mixed_rand"]
    cells = [same.right.astype(float), rand.right.astype(float)]
    paired = same.names == rand.names
    note = "bootstrap over images"
    yield _drawn(result, "", "BG-gap", cells, [100.0, -100.0], note, paired=paired)


def _effective(report: Report) -> Iterator[Line]:
    """Accuracy beyond what the clean one lets expect (arXiv:2007.00644)."""
    val = report.result("imagenet-val")
    clean = val.whole("all") if val else None
    if clean is None:
        return
    share = clean["top1"] / clean["images"]
    for result in report.results:
        counts = result.whole("all")
        pairs = published_pairs(result.benchmark)
        if counts is None or len(pairs) < 5 or not 0 < share < 1:
            continue
        known, shifted = np.array(pairs).T / 100
        line = effective.logit_line(known, shifted)
        value = counts["top1"] / counts["images"]
        band = effective.on_line(share, line)
        off = [shifted[k] - effective.on_line(x, line).value for k, x in enumerate(known)]
        scatter = 100 * np.sqrt(np.mean(np.square(off)))
        note = (
            f"against a line through {len(pairs)} models of timm's table, which lie {scatter:.2f} "
            "points off it (RMS); the interval is the line's alone"
        )
        beyond, low, high = (100 * (value - end) for end in (band.value, band.high, band.low))
        yield Line(result.benchmark, "all", "effective robustness", beyond, low, high, note)
