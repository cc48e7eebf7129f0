"""One slice of a session in a process of its own, since a failed kernel may take its process along.

Started by `python -m benchmarks.gpu`, with the plan as JSON.
"""

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import rules
from benchmarks.gpu import engine, kernels, models, windows
from benchmarks.gpu.plan import Plan, Slice, take

SLICES = {
    "a": Slice("Kernels beside the definition", 0.2, kernels.COLUMNS, kernels.cases),
    "b": Slice("Trainings on the digits", 0.2, engine.COLUMNS, engine.cases),
    "c": Slice("Whole models", 0.35, models.COLUMNS, models.cases),
    "d": Slice("Attention alone", 0.15, windows.COLUMNS, windows.cases),
    "e": Slice("Rows for the rules", 0.1, rules.COLUMNS, windows.rule_cases),
}


def command(plan: Plan, letter: str, first: int, seconds: float) -> list[str]:
    """The command of a worker."""
    known = asdict(plan) | {"folder": str(plan.folder)}
    told = {"plan": known, "letter": letter, "first": first, "seconds": seconds}
    return [sys.executable, "-m", "benchmarks.gpu.worker", json.dumps(told)]


def main() -> int:
    """Take the slice; the status of `benchmarks.gpu.plan.take`."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    known = told["plan"]
    known |= {name: tuple(known[name]) for name in ("sizes", "dtypes")}
    plan = Plan(**known | {"folder": Path(known["folder"])})
    if plan.rehearse:
        warnings.simplefilter("ignore")  # of what is slow on a CPU
    letter = told["letter"]
    return take(letter, SLICES[letter], plan, first=told["first"], seconds=told["seconds"])


if __name__ == "__main__":
    sys.exit(main())
