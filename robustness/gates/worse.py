"""Whether a model fell behind an older report: headline numbers, paired by image where kept."""

from collections.abc import Collection, Iterator

import numpy as np

from robustness.reporting.comparison import Row, differences, headlines, side_by_side
from robustness.reporting.runs import Run
from robustness.rules import statistics
from robustness.rules.metrics import Metric
from robustness.rules.results import Gate
from vit_ls.config import ConfigError

_ROUNDING = 1e-9


def judge(old: Run, new: Run, points: float, asked: Collection[str]) -> list[Gate]:
    """One line for each headline number that both could have.

    Args:
        old: The run to compare with.
        new: This one.
        points: How much worse a number may be.
        asked: Suites of this run, found or not; the others are not looked at.

    Raises:
        ConfigError: The runs have no number in common.
    """
    rows = headlines(side_by_side([old.report, new.report]))
    gates = list(_lines([row for row in rows if row.benchmark in asked], old, new, points))
    if not gates:
        raise ConfigError("--baseline has no headline number of the suites of this run.")
    return gates


def _lines(rows: list[Row], old: Run, new: Run, points: float) -> Iterator[Gate]:
    for row in rows:
        before, after = row.found
        if before is None or (after is not None and _never_there(before, after)):
            continue
        yield _line(row, before, after, old, new, points)


def _never_there(before: Metric, after: Metric) -> bool:
    """Neither run could have it: nothing was asked for that it counts."""
    return before.value is None and after.value is None and before.optional and after.optional


def _line(
    row: Row, before: Metric, after: Metric | None, old: Run, new: Run, points: float
) -> Gate:
    asked = f"{row.benchmark}:{row.name} worse by more than {points:g}"
    if after is None:
        return Gate(asked, "withheld: this run does not have it", failed=True)
    differ = differences([old.report, new.report], row.benchmark, transform=False)
    if differ:
        return Gate(asked, f"withheld: other {', '.join(differ)} in the baseline", failed=True)
    for metric, whose in ((before, "in the baseline: "), (after, "")):
        if metric.value is None:
            return Gate(asked, whose + metric.note, failed=True)
    assert before.value is not None
    assert after.value is not None
    lost = after.value - before.value if after.lower_is_better else before.value - after.value
    found = f"{after.value:.2f} against {before.value:.2f}"
    return Gate(asked, found + _paired(after, old, new), failed=lost > points + _ROUNDING)


def _paired(metric: Metric, old: Run, new: Run) -> str:
    """McNemar's test of the images of an accuracy, where both runs kept what was said to them."""
    if not metric.cell:
        return ""
    results = [run.report.result(metric.benchmark) for run in (old, new)]
    try:
        first, second = (
            run.table(result, metric.cell)
            for run, result in zip((old, new), results, strict=True)
            if result is not None
        )
    except ConfigError as error:
        return f"; not paired: {error}"
    if first.names != second.names or not np.array_equal(first.label, second.label):
        return "; not paired: other images"
    test = statistics.mcnemar(first.right, second.right)
    return f"; right alone: {test.first_alone} before, {test.second_alone} now, p {test.p:.3g}"
