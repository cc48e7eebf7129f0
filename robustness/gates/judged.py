"""The gates of a run: checked before it, judged after it."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from robustness.gates import worse
from robustness.gates.limits import Limit
from robustness.reporting.runs import Run
from robustness.rules.metrics import metrics
from robustness.rules.results import Gate, Report
from vit_ls.config import ConfigError


@dataclass(frozen=True)
class Gates:
    """What a report must pass.

    Attributes:
        limits: On its numbers.
        baseline: The run that it must not fall behind, or None.
        points: How far it may.
    """

    limits: tuple[Limit, ...] = ()
    baseline: Run | None = None
    points: float = 0.0

    @classmethod
    def of(cls, rules: Sequence[str], baseline: Path | None, points: float | None) -> "Gates":
        """Read the rules and the older report.

        Raises:
            ConfigError: A rule has another form, or the report cannot be read.
        """
        if (baseline is None) != (points is None):
            raise ConfigError("--baseline FILE and --fail-if-worse POINTS go together.")
        if points is not None and not points >= 0:
            raise ConfigError(f"--fail-if-worse must be at least 0, got {points:g}.")
        limits = tuple(Limit.of(text) for text in dict.fromkeys(rules))
        return cls(limits, None if baseline is None else Run.at(baseline), points or 0.0)

    def check(self, expected_report: Callable[[], Report], output: Path | None) -> None:
        """Find every number that a rule names, before hours are spent.

        Args:
            expected_report: Makes the report with all numbers withheld.
            output: Folder of this run.

        Raises:
            ConfigError: A number does not exist, or the baseline is what this run replaces.
        """
        if not self.limits and self.baseline is None:
            return
        expected = expected_report()
        for limit in self.limits:
            limit.find(metrics(expected))
        if self.baseline is None:
            return
        if output is not None and self.baseline.folder.resolve() == output.resolve():
            raise ConfigError(f"--baseline {output} is the report that this run writes.")
        asked = {result.benchmark for result in expected.results} | expected.absent.keys()
        worse.judge(self.baseline, Run(output or Path(), expected), self.points, asked)

    def judge(self, report: Report, output: Path | None, asked: Collection[str]) -> list[Gate]:
        """One line for each rule, and for each number that the baseline has."""
        found = [limit.judge(metrics(report)) for limit in self.limits]
        if self.baseline is not None:
            run = Run(output or Path(), report)
            found += worse.judge(self.baseline, run, self.points, asked)
        return found
