"""Several reports side by side: names, what can be compared, and the pictures' data."""

from collections.abc import Sequence
from dataclasses import dataclass

from robustness.data.benchmarks import BENCHMARKS
from robustness.rules.metrics import Metric, metrics
from robustness.rules.results import Report
from vit_ls.style import markdown_table

_WHAT = {"transform": "transform", "images": "subset", "data": "data", "contents": "contents"}
"""Parts of a result's identity, and what they are called."""

BY_NAME = "images the same by name and size alone"
"""What stands beside numbers whose images nobody compared byte for byte (`--verify`)."""


_STANDING = {
    "accuracy": ("top-1",),
    "masked": ("top-1",),
    "val": ("top-1", "ReaL top-1"),
    "in9": ("top-1 mixed_rand", "BG-gap"),
    "mce": ("mCE",),
    "mean_error": ("mean error",),
    "flips": ("mFR",),
    "unknown": ("answered with over 50 % confidence",),
    "clean_and_mean_error": ("top-1 clean", "mean error"),
}
"""Of each kind of numbers, those that stand for a benchmark."""

_BESIDE = ("imagenet-v2-threshold0.7", "imagenet-v2-top-images")
"""For V2 its first set stands, with matched frequencies."""

HEADLINES = tuple(
    (row.name, number)
    for row in BENCHMARKS.values()
    if row.name not in _BESIDE
    for number in _STANDING[row.numbers]
)
"""Numbers that stand for their benchmark."""


@dataclass(frozen=True)
class Row:
    """One number of all reports.

    Attributes:
        benchmark: Name of the row of benchmarks.
        name: Of the number.
        found: It in each report, None where the report lacks it.
        differs: What differs between the reports that have it: nothing where they are comparable.
        verified: Whether they are known to be of the same images byte for byte.
    """

    benchmark: str
    name: str
    found: tuple[Metric | None, ...]
    differs: tuple[str, ...]
    verified: bool

    @property
    def note(self) -> str:
        """What must stand beside the values."""
        if self.differs:
            return f"not comparable: other {', '.join(self.differs)}"
        notes = {m.note for m in self.found if m and m.value is not None}
        several = sum(m is not None and m.value is not None for m in self.found) > 1
        return "; ".join([*sorted(notes), *([BY_NAME] if several and not self.verified else [])])

    @property
    def label(self) -> str:
        """Name for a picture."""
        mark = f"\n(not comparable: {', '.join(self.differs)})" if self.differs else ""
        return f"{self.benchmark}\n{self.name}{mark}"

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller number is the better one."""
        return any(m is not None and m.lower_is_better for m in self.found)

    def value(self, place: int) -> float | None:
        """The number of one report."""
        metric = self.found[place]
        return None if metric is None else metric.value


def side_by_side(reports: Sequence[Report]) -> list[Row]:
    """All numbers of all reports."""
    tables = [{(m.benchmark, m.name): m for m in metrics(report)} for report in reports]
    rows = []
    for benchmark, name in dict.fromkeys(key for table in tables for key in table):
        found = tuple(table.get((benchmark, name)) for table in tables)
        having = [
            report for report, m in zip(reports, found, strict=True) if m and m.value is not None
        ]
        differs, known = differences(having, benchmark), verified(having, benchmark)
        rows.append(Row(benchmark, name, found, differs, known))
    return rows


def headlines(rows: Sequence[Row]) -> list[Row]:
    """The rows that stand for their benchmarks; of one's own benchmark its first number does."""
    known = {benchmark for benchmark, _ in HEADLINES}
    first = {row.benchmark: row for row in reversed(rows) if row.benchmark not in known}
    places = {head: place for place, head in enumerate(HEADLINES)}
    chosen = [row for row in rows if (row.benchmark, row.name) in places]
    chosen.sort(key=lambda row: places[row.benchmark, row.name])
    return chosen + [
        row
        for row in rows
        if first.get(row.benchmark) is row or any(m and m.headline for m in row.found)
    ]


def differences(
    reports: Sequence[Report], benchmark: str, *, transform: bool = True
) -> tuple[str, ...]:
    """What keeps the reports' numbers of a benchmark from being compared.

    Args:
        reports: Those that have it are looked at.
        benchmark: Name of the row of benchmarks.
        transform: Whether another preparation of the images counts.
    """
    results = [result for report in reports if (result := report.result(benchmark))]
    found = []
    for part, word in _WHAT.items():
        values = {result.identity.get(part, "") for result in results}
        if part == "contents":
            # Who did not look at the bytes knows nothing of them: that is no difference.
            values.discard("")
        if part == "transform" and (not transform or len(results) < 2):
            continue
        # A transform without an identity is not known to be the same as any.
        if len(values) > 1 or (part == "transform" and "" in values):
            found.append(word)
    return tuple(found)


def verified(reports: Sequence[Report], benchmark: str) -> bool:
    """Whether all the reports that have a benchmark know its images by their bytes."""
    results = [result for report in reports if (result := report.result(benchmark))]
    return all(result.verified for result in results)


def comparison_markdown(reports: Sequence[Report], names: Sequence[str]) -> str:
    """A table of all numbers, a column for each report; what one lacks is a dash."""
    lines = []
    for row in side_by_side(reports):
        values = [row.value(place) for place in range(len(names))]
        shown = ["-" if value is None else f"{value:.2f}" for value in values]
        better = "lower" if row.lower_is_better else "higher"
        note = row.note or "withheld"
        if row.differs:
            note = note.replace("not comparable", "**not comparable**", 1)
        lines.append([row.benchmark, row.name, better, *shown, note])
    head = ("benchmark", "number, %", "better", *names, "note")
    return markdown_table(head, lines) + "\n"


def distinct_names(reports: Sequence[Report]) -> list[str]:
    """A name for each report that no other one has: with as little more as tells them apart."""
    names = [str(report.model["name"]) for report in reports]
    for more in (_arguments, _weights, _dtype, _identity):
        names = [
            f"{name} {more(report)}".rstrip() if names.count(name) > 1 else name
            for name, report in zip(names, reports, strict=True)
        ]
    return [
        f"{name} #{names[: place + 1].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _arguments(report: Report) -> str:
    return " ".join(f"{key}={value}" for key, value in report.model["arguments"].items())


def _weights(report: Report) -> str:
    return str(report.model["weights"])[:8]


def _dtype(report: Report) -> str:
    return str(report.model["dtype"])


def _identity(report: Report) -> str:
    subsets = dict.fromkeys(result.identity.get("images", "") for result in report.results)
    return f"({'/'.join(subsets)} images)" if subsets else ""
