"""`python -m sequence.compare FOLDER... [--csv FILE] [--plot FILE]`: runs of one task side by side.

A row for each attention, the mean over its runs, and the mean of what rules reach that know almost
nothing. Runs that differ in more than attention and seed are refused: they would compare something
else.
"""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sequence.report import plot

_VALUES = ("bits_per_byte", "accuracy", "floor", "majority")
_SAME = ("task", "data", "settings")


def main(argv: Sequence[str] | None = None) -> None:
    """Write the table, and the plot where one is asked for."""
    parser = argparse.ArgumentParser("python -m sequence.compare", description="Runs side by side.")
    parser.add_argument("folders", type=Path, nargs="+", help="of runs, with a report.json each")
    parser.add_argument("--csv", type=Path, help="file to write a row for each run to")
    parser.add_argument("--plot", type=Path, help="picture of the first run of each attention")
    args = parser.parse_args(argv)
    reports = [_read(folder, parser) for folder in args.folders]
    for folder, report in zip(args.folders, reports, strict=True):
        for name in _SAME:
            if report[name] != reports[0][name]:
                parser.error(
                    f"{folder} must have the same {name} as {args.folders[0]}, "
                    f"{reports[0][name]}, got {report[name]}."
                )
    by_attention: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        by_attention.setdefault(report["attention"], []).append(report)
    values = [name for name in _VALUES if name in reports[0]]
    lines = [["attention", "parameters", "seeds", *values], ["---", *["---:"] * (2 + len(values))]]
    for attention, runs in by_attention.items():
        seeds = " ".join(str(run["seed"]) for run in runs)
        shown = [_mean([run[name] for run in runs]) for name in values]
        lines.append([attention, str(runs[0]["parameters"]), seeds, *shown])
    sys.stdout.write(f"{reports[0]['task']}: {reports[0]['data']}\n\n")
    sys.stdout.writelines(f"| {' | '.join(line)} |\n" for line in lines)
    if args.csv:
        with args.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            columns = ("task", "data", "attention", "parameters", "seed", *values, "machine")
            writer.writerow(columns)
            writer.writerows([report[name] for name in columns] for report in reports)
    if args.plot:
        plot(args.plot, [runs[0] for runs in by_attention.values()])


def _read(folder: Path, parser: argparse.ArgumentParser) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"{folder} must be the folder of a finished run, with report.json: {error}")
    missing = {"attention", "epochs", "points", "machine", *_SAME} - report.keys()
    if missing:
        parser.error(f"{folder}/report.json lacks {', '.join(sorted(missing))}.")
    return report


def _mean(values: Sequence[float]) -> str:
    """With the values themselves where there are several."""
    mean = f"{statistics.mean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({', '.join(f'{value:.3f}' for value in values)})"


if __name__ == "__main__":
    main()
