"""Set runs of one task side by side.

    python -m papers.sequence.compare FOLDER... [--csv FILE] [--plot FILE]
    python -m papers.sequence.compare --csv FILE --task TASK --plot FILE

A row for each attention, the mean over its runs, and the mean of what rules reach that know almost
nothing. Runs that differ in more than attention and seed are refused: they would compare something
else. `--csv` writes a row for each value of each run; what the file has of other tasks stays, so
that one file holds what one machine trained. Without folders the plot is made of the file's rows,
which hold no losses.
"""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from papers.sequence.report import LEVELS, PLACES, plot
from vit_ls.style import markdown_table

_VALUES = ("bits_per_byte", "accuracy", "floor", "majority")
_SAME = ("task", "data", "settings")
_MADE_BY = ("machine", "torch")
_COLUMNS = ("task", "data", "attention", "parameters", "seed", "date", "measure", "value")


def main(argv: Sequence[str] | None = None) -> None:
    """Write the table, and the plot where one is asked for."""
    parser = argparse.ArgumentParser(
        "python -m papers.sequence.compare", description="Runs side by side."
    )
    parser.add_argument("folders", type=Path, nargs="*", help="of runs, with a report.json each")
    parser.add_argument("--csv", type=Path, help="file to write all values of the runs to")
    parser.add_argument("--plot", type=Path, help="picture of the first run of each attention")
    parser.add_argument("--task", help="of --csv, to draw where no folders are given")
    parser.add_argument("--title", help="of the plot: what it shows; default: who is best")
    args = parser.parse_args(argv)
    for path in filter(None, (args.csv, args.plot)):
        if not path.parent.is_dir():
            parser.error(f"{path} must be in a folder that is there.")
    if not args.folders:
        if not (args.csv and args.task and args.plot):
            parser.error("without folders --csv, --task and --plot must be given.")
        plot(args.plot, _of_rows(args.csv, args.task, parser), args.title)
        return
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
    rows = []
    for attention, runs in by_attention.items():
        seeds = " ".join(str(run["seed"]) for run in runs)
        shown = [_mean([run[name] for run in runs]) for name in values]
        rows.append([attention, str(runs[0]["parameters"]), seeds, *shown])
    sys.stdout.write(f"{reports[0]['task']}: {reports[0]['data']}\n\n")
    head = ["attention", "parameters", "seeds", *values]
    sys.stdout.write(markdown_table(head, rows, numbers=range(1, len(head))) + "\n")
    if args.csv:
        _write(args.csv, args.folders, reports, values, parser)
    if args.plot:
        plot(args.plot, [runs[0] for runs in by_attention.values()], args.title)


def _of_rows(path: Path, task: str, parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """What a file of rows says of the first run of each attention, as reports without losses."""
    reports: dict[str, dict[str, Any]] = {}
    for of_task, _, attention, _, seed, _, measure, value in _rows_of(path, parser):
        if of_task != task:
            continue
        report = reports.setdefault(
            attention, {"task": task, "attention": attention, "seed": seed, "points": []}
        )
        if report["seed"] != seed:
            continue
        name, at, place = measure.partition(" at ")
        report["by"] = PLACES if name == "bits_per_byte" else LEVELS
        if at:
            report["points"].append((place, float(value), None))
        else:
            report[name] = float(value)
    found = [report for report in reports.values() if report["points"]]
    if not found:
        parser.error(f"{path} must have values by part of the task {task}, got none.")
    return found


def _rows_of(path: Path, parser: argparse.ArgumentParser) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            found = list(csv.reader(file))
        return found[found.index(list(_COLUMNS)) + 1 :]
    except (OSError, ValueError, csv.Error) as error:
        parser.error(f"{path} must be a file that --csv wrote: {error}")


def _read(folder: Path, parser: argparse.ArgumentParser) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"{folder} must be the folder of a finished run, with report.json: {error}")
    missing = {"attention", "epochs", "points", "date", *_MADE_BY, *_SAME} - report.keys()
    if missing:
        parser.error(f"{folder}/report.json lacks {', '.join(sorted(missing))}.")
    return report


def _write(
    path: Path,
    folders: Sequence[Path],
    reports: Sequence[dict[str, Any]],
    values: Sequence[str],
    parser: argparse.ArgumentParser,
) -> None:
    """The rows of these runs, after those that the file has of other tasks."""
    head = [[f"# {name}", reports[0][name]] for name in _MADE_BY]
    for folder, report in zip(folders, reports, strict=True):
        if [report[name] for name in _MADE_BY] != [value for _, value in head]:
            made = ", ".join(report[name] for name in _MADE_BY)
            parser.error(f"--csv takes runs of one machine and one torch, got {folder} of {made}.")
    rows: list[list[str]] = []
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            found = list(csv.reader(file))
        if found[: len(head)] != head or list(_COLUMNS) not in found:
            made = ", ".join(value for _, value in head)
            parser.error(f"{path} must be a file of this command and of {made}.")
        before = found[found.index(list(_COLUMNS)) + 1 :]
        rows = [row for row in before if row[0] != reports[0]["task"]]
    for report in reports:
        of_run = [str(report[name]) for name in _COLUMNS[:-2]]
        said = [(name, report[name]) for name in values]
        said += [(f"{values[0]} at {place}", value) for place, value, _ in report["points"]]
        rows += [[*of_run, name, f"{value:.6g}"] for name, value in said]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([*head, _COLUMNS, *rows])


def _mean(values: Sequence[float]) -> str:
    """With the values themselves where there are several."""
    mean = f"{statistics.mean(values):.3f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({', '.join(f'{value:.3f}' for value in values)})"


if __name__ == "__main__":
    main()
