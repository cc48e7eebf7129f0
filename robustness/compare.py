"""Compares reports: `python -m robustness.compare a.json b.json`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from robustness.errors import ending
from robustness.files import write_atomically
from robustness.reporting.comparison import comparison_markdown, distinct_names
from robustness.reporting.plots import plot_comparison
from robustness.reporting.report import read_report


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and write it with a picture.

    Returns:
        0, 2 for a user's mistake, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="python -m robustness.compare", description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, metavar="report.json")
    parser.add_argument("--output", type=Path, default=Path("output/robustness/comparison"))
    args = parser.parse_args(argv)
    return ending("python -m robustness.compare", lambda: _main(args))


def _main(args: argparse.Namespace) -> int:
    reports = [read_report(path) for path in args.reports]
    names = distinct_names(reports)
    text = comparison_markdown(reports, names)
    write_atomically(args.output / "comparison.md", text.encode())
    plot_comparison(reports, names, args.output / "comparison.png")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
