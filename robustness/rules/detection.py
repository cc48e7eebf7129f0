"""How well a score tells known images from unknown ones: higher is more like what is known.

As OpenOOD v1.5 has it, unknown images are the positives: the false positive rate at 95 % is the
share of known images that are rejected when 95 % of the unknown ones are.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import integrate

from robustness.rules.statistics import Interval

Array = NDArray[Any]

RECALL = 0.95
ROUNDS = 1000


class Measures(NamedTuple):
    """Shares of 1.

    Attributes:
        auroc: Area under the ROC curve; ties count one half.
        fpr95: Known images rejected at the first threshold that rejects 95 % of the unknown ones.
        aupr_in: Area under precision over recall, known images as positives (trapezoids).
        aupr_out: The same with unknown images as positives.
    """

    auroc: float
    fpr95: float
    aupr_in: float
    aupr_out: float


def measures(known: Array, unknown: Array) -> Measures:
    """All four from the scores of known and unknown images."""
    return _measures(*_counts(known, unknown))


def intervals(known: Array, unknown: Array, *, rounds: int = ROUNDS) -> dict[str, Interval]:
    """All four in percent with 95 % intervals, by drawing images of both kinds again.

    Returns:
        Without bounds where there is one image of a kind alone, which says nothing of others.
    """
    groups, size = _groups(known, unknown)
    value = _measures(*_counts(known, unknown))
    if min(len(known), len(unknown)) < 2:
        return {n: Interval(100 * v, None, None) for n, v in value._asdict().items()}
    rng = np.random.Generator(np.random.PCG64(0))
    drawn = []
    for _ in range(rounds):
        some = [np.bincount(rng.choice(own, len(own)), minlength=size) for own in groups]
        drawn.append(_measures(*some))
    low, high = np.percentile(np.array(drawn), [2.5, 97.5], axis=0)
    return {
        name: Interval(100 * one, 100 * float(a), 100 * float(b))
        for (name, one), a, b in zip(value._asdict().items(), low, high, strict=True)
    }


def average_precision(known: Array, unknown: Array) -> float:
    """Area under precision over recall by steps, unknown images as positives.

    This is the AUPR that the script of ImageNet-O's authors prints.
    """
    inside, outside = (np.cumsum(counts) for counts in _counts(known, unknown))
    gained = np.diff(outside, prepend=0) / outside[-1]
    return float((gained * outside / (inside + outside)).sum())


def _groups(known: Array, unknown: Array) -> tuple[list[Array], int]:
    """For each image the place of its score among the different ones, from the least known on."""
    values, place = np.unique(np.concatenate([known, unknown]), return_inverse=True)
    return [place[: len(known)], place[len(known) :]], len(values)


def _counts(known: Array, unknown: Array) -> tuple[Array, Array]:
    (inside, outside), size = _groups(known, unknown)
    return np.bincount(inside, minlength=size), np.bincount(outside, minlength=size)


def _measures(known: Array, unknown: Array) -> Measures:
    """Of how many known and unknown images there are at each score, rising."""
    rejected, caught = np.cumsum(known), np.cumsum(unknown)
    fpr, tpr = rejected / rejected[-1], caught / caught[-1]
    auroc = integrate.trapezoid(np.append(0.0, tpr), np.append(0.0, fpr))
    fpr95 = fpr[np.argmax(tpr >= RECALL)]
    above, below = (np.cumsum(counts[::-1]) for counts in (known, unknown))
    return Measures(
        float(auroc), float(fpr95), _area(above, above + below), _area(caught, caught + rejected)
    )


def _area(hits: Array, chosen: Array) -> float:
    """Under precision over recall, from no recall at full precision on."""
    some = chosen > 0  # a draw may lack the images at the end
    precision = np.append(1.0, hits[some] / chosen[some])
    return float(integrate.trapezoid(precision, np.append(0.0, hits[some] / hits[-1])))
