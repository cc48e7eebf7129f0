"""The line through published models that effective robustness is the distance from."""

from typing import NamedTuple

import numpy as np
from scipy import special, stats

from robustness.rules.statistics import Array


class Line(NamedTuple):
    """A line through models in logits.

    Attributes:
        slope: Of it.
        height: At a clean accuracy of one half.
        centre: Mean clean logit of the models.
        spread: Error of the slope.
        width: Models times the variance of their clean logits.
        models: How many there are.
    """

    slope: float
    height: float
    centre: float
    spread: float
    width: float
    models: int


class Band(NamedTuple):
    """An accuracy that a line expects, and the 95 % band of it (shares)."""

    value: float
    low: float
    high: float


def logit_line(clean: Array, shifted: Array) -> Line:
    """The line through the logits of accuracies (shares, 0 and 1 left out)."""
    inside = (clean > 0) & (clean < 1) & (shifted > 0) & (shifted < 1)
    x, y = special.logit(clean[inside]), special.logit(shifted[inside])
    found = stats.linregress(x, y)
    width = float(((x - x.mean()) ** 2).sum())
    return Line(
        float(found.slope),
        float(found.intercept),
        float(x.mean()),
        float(found.stderr),
        width,
        len(x),
    )


def on_line(clean: float, line: Line) -> Band:
    """Accuracy on the shifted data that the line expects of a clean accuracy (shares).

    Its 95 % band is that of the line, by the scatter of its models around it.
    """
    x = float(special.logit(clean))
    y = line.slope * x + line.height
    error = line.spread * np.sqrt((x - line.centre) ** 2 + line.width / line.models)
    reach = error * stats.t.ppf(0.975, line.models - 2)
    return Band(*(float(special.expit(place)) for place in (y, y - reach, y + reach)))
