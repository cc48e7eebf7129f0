"""What a setting is: a default, a help text and the rule that its values satisfy."""

import math
from dataclasses import dataclass, field
from typing import Any

from vit_ls.errors import ReportedError

_LARGEST = 3e38  # of float32, in which the values are used
_LARGEST_COUNT = 2**31 - 1


class ConfigError(ReportedError, ValueError):
    """A setting that cannot be used; the message is one line and names it."""

    status = 2


@dataclass(frozen=True)
class Rule:
    """What a value must satisfy beside its type. Numbers in a list are held to it one by one."""

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()

    def broken_by(self, value: Any) -> str | None:
        """The rule that `value` breaks, in words, or None."""
        if isinstance(value, list):
            if self.lengths and len(value) not in self.lengths:
                return f"must have {' or '.join(map(str, self.lengths))} values"
            return next((broken for item in value if (broken := self.broken_by(item))), None)
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(repr(choice) for choice in self.choices)}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if not math.isfinite(value):
            return "must be finite"
        largest = _LARGEST if isinstance(value, float) else _LARGEST_COUNT
        if abs(value) > largest:
            return f"must be at most {largest:.10g}"
        if self.above is not None and not value > self.above:
            return "must be positive" if self.above == 0 else f"must be above {self.above:.10g}"
        if self.least is not None and not value >= self.least:
            return (
                "must not be negative" if self.least == 0 else f"must be at least {self.least:.10g}"
            )
        if self.below is not None and not value < self.below:
            return f"must be below {self.below:.10g}"
        if self.most is not None and not value <= self.most:
            return f"must be at most {self.most:.10g}"
        return None


ANY = Rule()


def setting(
    default: Any,
    text: str,
    rule: Rule = ANY,
    *,
    also: str = "",
    alone: Any = None,
    short: dict[str, Any] | None = None,
) -> Any:
    """A field of a configuration.

    Args:
        default: Its value where it is not set.
        text: Help.
        rule: What values satisfy.
        also: More spellings of its flag.
        alone: Its value where the flag has none.
        short: Flags without a value that stand for one.
    """
    metadata = {"help": text, "rule": rule, "also": also, "alone": alone, "short": short or {}}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)
