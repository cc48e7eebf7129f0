"""ImageNet's robustness benchmarks for any timm model: official rules, integer counts.

Run from a checkout: `python -m robustness --help`. The folders, from the question to the answer:
data (benchmarks, layouts, images), corruptions, rules (transforms, judging, numbers), running (the
model, the plan, the loop, the cache) and reporting. The files beside them are the commands.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustness.api import evaluate as evaluate


def __getattr__(name: str) -> Any:
    """`robustness.evaluate`, imported late: commands first say which library is missing."""
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from robustness.api import evaluate

    return evaluate
