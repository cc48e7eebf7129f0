"""What kept predictions and scores tell, without a model: `python -m robustness.analyse`."""

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from robustness.errors import ending
from robustness.files import write_atomically
from robustness.reporting.abstaining import abstaining
from robustness.reporting.analysis import analyse, compare_pairs
from robustness.reporting.comparison import distinct_names
from robustness.reporting.runs import Run, per_class_csv, to_json, to_markdown
from robustness.reporting.unknown import unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; write them to each run's folder, and paired tests to the first one's.

    Returns:
        0, 2 for a user's mistake, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(prog="python -m robustness.analyse", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="--output of a run")
    parser.add_argument("--calibrate", metavar="SUITE[:CELL]",
                        help="fits the temperature; default: clean ImageNet or digits")  # fmt: skip
    parser.add_argument("--known", metavar="SUITE[:CELL]",
                        help="images that suites of unknown ones are told from")  # fmt: skip
    args = parser.parse_args(argv)
    return ending("python -m robustness.analyse", lambda: _main(args))


def _main(args: argparse.Namespace) -> int:
    runs = [Run(folder) for folder in args.folders]
    names = distinct_names([run.report for run in runs])
    texts = []
    for run, name in zip(runs, names, strict=True):
        lines = analyse(run) + abstaining(run, args.calibrate) + unknown(run, args.known)
        texts.append(to_markdown(lines, name))
        _write(run.folder, "analysis", texts[-1], to_json(lines))
        write_atomically(run.folder / "per_class.csv", per_class_csv(run).encode())
    for (first, one), (second, other) in combinations(zip(runs, names, strict=True), 2):
        lines = compare_pairs(first, second)
        texts.append(to_markdown(lines, f"{one} against {other}"))
        if first is runs[0]:
            file = f"against_{names.index(other)}"
            _write(first.folder, file, texts[-1], to_json(lines))
    sys.stdout.write("\n".join(texts))
    return 0


def _write(folder: Path, name: str, text: str, lines: object) -> None:
    write_atomically(folder / f"{name}.md", text.encode())
    write_atomically(folder / f"{name}.json", (json.dumps(lines, indent=1) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
