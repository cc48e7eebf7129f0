"""ImageNet's robustness benchmarks for any timm model: official rules, integer counts.

Run from a checkout: `python -m robustness --help`. The folders, from the question to the answer:
data (benchmarks, layouts, images), corruptions, rules (transforms, judging, numbers), running (the
model, the plan, the loop, the cache) and reporting. The files beside them are the commands.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustness.api import evaluate as evaluate

# Python sets this while it looks for the module of `python -m`, which imports this one first
if sys.argv[:1] == ["-m"]:
    from vit_ls.errors import MissingPackageError, check_packages

    try:
        check_packages("robustness", "matplotlib", "scipy", extra="robustness")
    except MissingPackageError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.status)


def __getattr__(name: str) -> Any:
    """`robustness.evaluate`, imported late: not every command needs it."""
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from robustness.api import evaluate

    return evaluate
