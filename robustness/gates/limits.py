"""Limits on numbers of a report: "imagenet-c:mce > 60" fails where it holds."""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from robustness.rules.metrics import Metric
from robustness.rules.results import Gate
from vit_ls.config import ConfigError, nearest

_FORM = re.compile(r"([^\s:]+)\s*:\s*(.+?)\s*(<=|>=|<|>)\s*([-+]?\d+(?:\.\d+)?)\s*%?")
_SIGNS = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Limit:
    """One rule.

    Attributes:
        text: As it was given.
        benchmark: Name of the suite.
        number: Name of the number, or words of it.
        sign: One of `<`, `>`, `<=`, `>=`.
        value: What the number is compared with.
    """

    text: str
    benchmark: str
    number: str
    sign: str
    value: float

    @classmethod
    def of(cls, text: str) -> "Limit":
        """Read a rule.

        Raises:
            ConfigError: It has another form.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f'--fail-if must be "SUITE:NUMBER > VALUE" (or <, >=, <=), got {text!r}.'
            )
        benchmark, number, sign, value = match.groups()
        return cls(text.strip(), benchmark, number, sign, float(value))

    def find(self, numbers: Sequence[Metric]) -> Metric:
        """The number that the rule is about: by its name, or else by words that no other one has.

        Raises:
            ConfigError: There is none, or several have these words.
        """
        own = [metric for metric in numbers if metric.benchmark == self.benchmark]
        if not own:
            known = dict.fromkeys(metric.benchmark for metric in numbers)
            raise ConfigError(
                f"--fail-if {self.text!r}: this run has no suite {self.benchmark}"
                f"{nearest(self.benchmark, known)}"
            )
        words = _words(self.number)
        alike = [metric for metric in own if _words(metric.name) == words]
        alike = alike or [m for m in own if set(words) <= set(_words(m.name))]
        if len(alike) > 1:
            names = ", ".join(metric.name for metric in alike)
            raise ConfigError(f"--fail-if {self.text!r} fits {len(alike)} numbers: {names}.")
        if not alike:
            raise ConfigError(
                f"--fail-if {self.text!r}: {self.benchmark} has no number {self.number}"
                f"{nearest(self.number, [metric.name for metric in own])}"
            )
        return alike[0]

    def judge(self, numbers: Sequence[Metric]) -> Gate:
        """Whether the report passes; a number that is withheld does not."""
        metric = self.find(numbers)
        if metric.value is None:
            return Gate(self.text, f"{metric.name}: {metric.note}", failed=True)
        failed = bool(_SIGNS[self.sign](metric.value, self.value))
        return Gate(self.text, f"{metric.name} is {metric.value:.4g}", failed=failed)


def _words(name: str) -> list[str]:
    return name.casefold().replace(",", " ").split()
