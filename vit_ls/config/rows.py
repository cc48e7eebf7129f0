"""What a setting is: one row of everything that holds of it.

Its default, help and rule; what it needs in order to act; whether it may change where a run is
continued, is inherited by an evaluation, is read by sequence tasks; and its names elsewhere. What
reads settings (flags, YAML, resuming, validation) is a view of these rows.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

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
ABOVE_0 = Rule(above=0)
NOT_BELOW_0 = Rule(least=0)
BELOW_1 = Rule(least=0, below=1)
SHARE = Rule(least=0, most=1)


class Needs(NamedTuple):
    """What a setting needs in order to act; timm's scripts pass over one that does nothing.

    Attributes:
        met: Whether a configuration has it.
        what: The same in words.
    """

    met: Callable[[Any], bool]
    what: str


class Resume(Enum):
    """What becomes of another value where a run is continued: a resumed run is the same run."""

    OTHER_RUN = "it makes another run, which --resume-changed allows"
    FREE = "it takes effect from there on"
    START = "it says how a run is started and where its files are, not what it is"


FREE, START = Resume.FREE, Resume.START


class Never(NamedTuple):
    """A setting that cannot take effect in a run that has begun, even where changes are allowed."""

    why: str


class Row(NamedTuple):
    """What holds of a setting beside its name, type and default. See `setting`."""

    help: str
    rule: Rule
    also: str
    alone: Any
    short: dict[str, Any]
    needs: tuple[Needs, ...]
    resume: Resume | Never
    inherited: bool
    sequence: bool
    timm: str
    timm_unset: Any
    known_as: str


_SET = object()


def setting(
    default: Any,
    text: str,
    rule: Rule = ANY,
    *,
    also: str = "",
    alone: Any = None,
    short: dict[str, Any] | None = None,
    needs: tuple[Needs, ...] = (),
    resume: Resume | Never = Resume.OTHER_RUN,
    inherited: bool = False,
    sequence: bool = False,
    timm: str = "",
    timm_unset: Any = _SET,
    known_as: str = "",
) -> Any:
    """A field of a configuration.

    Args:
        default: Its value where it is not set.
        text: Help.
        rule: What values satisfy.
        also: More spellings of its flag.
        alone: Its value where the flag has none.
        short: Flags without a value that stand for one.
        needs: What it needs in order to act.
        resume: Whether it may differ where a run is continued.
        inherited: Whether an evaluation takes it from the run of its checkpoint.
        sequence: Whether sequence tasks read it too.
        timm: Key of timm's args.yaml that stands for it where it holds something.
        timm_unset: What timm's script writes where it is not set, if the type here has no such.
        known_as: Names that other programs have for it and that are not spelt alike.
    """
    row = Row(
        text, rule, also, alone, short or {}, needs, resume, inherited, sequence, timm, timm_unset,
        known_as,
    )  # fmt: skip
    metadata = {"row": row}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def rows(schema: type) -> dict[str, Row]:
    """The settings of a configuration's class by name."""
    return {one.name: one.metadata["row"] for one in fields(schema)}


def idle(config: Any) -> Iterator[tuple[str, str]]:
    """The settings that are not at their defaults and do nothing, and what each would need."""
    plain = type(config)()
    for name, row in rows(type(config)).items():
        if getattr(config, name) != getattr(plain, name):
            missing = next((needs.what for needs in row.needs if not needs.met(config)), None)
            if missing is not None:
                yield name, missing
