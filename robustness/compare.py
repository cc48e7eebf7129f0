"""Compares reports: `python -m robustness.compare a.json b.json`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from robustness.errors import UsageError
from robustness.files import write_atomically
from robustness.reporting.plots import plot_comparison
from robustness.reporting.report import markdown_table, read_report
from robustness.rules.metrics import metrics
from robustness.rules.results import Report


def compare(reports: Sequence[Report], names: Sequence[str]) -> str:
    """A Markdown table of all numbers, a column for each report; what one lacks is a dash.

    Numbers of another label (subset, generated images) than the first report's are marked: they
    are not comparable.
    """
    tables = [{(m.benchmark, m.name): m for m in metrics(report)} for report in reports]
    rows, marked = [], False
    for key in dict.fromkeys(key for table in tables for key in table):
        found = [table.get(key) for table in tables]
        notes = {m.note for m in found if m and m.value is not None}
        odd = len(notes) > 1
        marked |= odd
        values = ["-" if m is None or m.value is None else f"{m.value:.2f}" for m in found]
        rows.append([*key, *values, "not comparable" if odd else next(iter(notes), "withheld")])
    text = markdown_table(("benchmark", "number, %", *names, "note"), rows) + "\n"
    if marked:
        text += "\nNot comparable: made from other images (see the notes of each report).\n"
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and write it with a picture.

    Returns:
        0, or 2 for a user's mistake.
    """
    parser = argparse.ArgumentParser(prog="python -m robustness.compare", description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, metavar="report.json")
    parser.add_argument("--output", type=Path, default=Path("output/robustness/comparison"))
    args = parser.parse_args(argv)
    try:
        reports = [read_report(path) for path in args.reports]
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    names = _distinct([report.model for report in reports])
    text = compare(reports, names)
    write_atomically(args.output / "comparison.md", text.encode())
    plot_comparison(reports, names, args.output / "comparison.png")
    sys.stdout.write(text)
    return 0


def _distinct(models: Sequence[dict[str, str]]) -> list[str]:
    """Names, with the start of the weights' hash where two are the same."""
    names = [model["name"] for model in models]
    return [
        f"{n} {model['weights'][:8]}" if names.count(n) > 1 else n
        for n, model in zip(names, models, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
