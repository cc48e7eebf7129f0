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
_AT_ONCE = 10**6
"""Images that are drawn at once."""


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
    found = _measures(*(counts[None] for counts in _counts(known, unknown)))
    return Measures(*(float(part[0]) for part in found))


def intervals(known: Array, unknown: Array, *, rounds: int = ROUNDS) -> dict[str, Interval]:
    """All four in percent with 95 % intervals, by drawing images of both kinds again.

    Returns:
        Without bounds where there is one image of a kind alone, which says nothing of others.
    """
    groups, size = _groups(known, unknown)
    value = measures(known, unknown)
    if min(len(known), len(unknown)) < 2:
        return {n: Interval(100 * v, None, None) for n, v in value._asdict().items()}
    rng = np.random.Generator(np.random.PCG64(0))
    step = max(1, _AT_ONCE // (len(known) + len(unknown)))
    drawn = []
    for start in range(0, rounds, step):
        times = min(step, rounds - start)
        drawn.append(np.array(_measures(*(_drawn(rng, own, size, times) for own in groups))))
    low, high = np.percentile(np.concatenate(drawn, axis=1), [2.5, 97.5], axis=1)
    return {
        name: Interval(100 * one, 100 * float(a), 100 * float(b))
        for (name, one), a, b in zip(value._asdict().items(), low, high, strict=True)
    }


def _drawn(rng: np.random.Generator, groups: Array, size: int, times: int) -> Array:
    """How many images there are at each score, in each of some draws: [times, size]."""
    some = groups[rng.integers(len(groups), size=(times, len(groups)))]
    places = some + size * np.arange(times)[:, None]
    return np.bincount(places.ravel(), minlength=size * times).reshape(times, size)


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


def _measures(known: Array, unknown: Array) -> tuple[Array, Array, Array, Array]:
    """`Measures` of how many images there are at each score, rising: [draws, scores] each."""
    rejected, caught = known.cumsum(axis=1), unknown.cumsum(axis=1)
    fpr, tpr = rejected / rejected[:, -1:], caught / caught[:, -1:]
    auroc = integrate.trapezoid(_after(0, tpr), _after(0, fpr))
    first = np.argmax(tpr >= RECALL, axis=1)
    above, below = (counts[:, ::-1].cumsum(axis=1) for counts in (known, unknown))
    areas = _area(above, above + below), _area(caught, caught + rejected)
    return auroc, fpr[np.arange(len(fpr)), first], *areas


def _area(hits: Array, chosen: Array) -> Array:
    """Under precision over recall, from no recall at full precision on."""
    # A draw may lack the images at the end: there is no recall yet, and nothing under it.
    precision = np.where(chosen > 0, hits / np.maximum(chosen, 1), 1.0)
    area: Array = integrate.trapezoid(_after(1, precision), _after(0, hits / hits[:, -1:]))
    return area


def _after(first: float, values: Array) -> Array:
    return np.concatenate([np.full((len(values), 1), first), values], axis=1)
