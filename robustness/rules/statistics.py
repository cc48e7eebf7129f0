"""What kept predictions tell beyond counts: calibration, intervals, paired tests, per class."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[Any]

BIN = 100
"""Images of a calibration bin in the scripts of ImageNet-A and R."""

_BY_CHANCE = 1e-6
"""How likely a class without a right answer may be, of all classes, if all were as hard."""

_DRAWN = 10**6
"""Images that are drawn at once."""


def calibration_error(confidence: Array, right: Array, *, as_scripts: bool = False) -> float | None:
    """RMS calibration error in percent, over bins of 100 images by rising confidence.

    Args:
        confidence: Of each image.
        right: Whether each is right.
        as_scripts: Leave the bin of the highest confidence out of the sum, as the scripts of
            ImageNet-A and ImageNet-R do (`range(len(bins) - 1)`): the number that papers print.

    Returns:
        None where there are too few images for it.
    """
    order = np.argsort(confidence, kind="stable")
    confidence, right = confidence[order].astype(float), right[order].astype(float)
    edges = [i * BIN for i in range(len(order) // BIN)] + [len(order)]
    bins = list(pairwise(edges))
    bins = bins[:-1] if as_scripts else bins
    if len(order) < BIN or not bins:
        return None
    total = 0.0
    for start, stop in bins:
        gap = confidence[start:stop].mean() - right[start:stop].mean()
        total += (stop - start) / len(order) * gap**2
    return float(100 * np.sqrt(total))


def aurra(confidence: Array, right: Array) -> float:
    """Area under the response-rate accuracy curve in percent: the most confident answer first."""
    order = np.argsort(confidence)[::-1]
    accuracy = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    return float(100 * accuracy.mean())


class Interval(NamedTuple):
    """A number with its 95 % bootstrap interval."""

    value: float
    low: float | None
    high: float | None


def bootstrap(
    cells: Sequence[Array], weights: Sequence[float], *, paired: bool, rounds: int = 1000
) -> Interval:
    """Interval of a weighted sum of means, by drawing images again (percentiles).

    Args:
        cells: For each cell a number of each image.
        weights: Of each cell's mean in the sum.
        paired: The cells hold the same images in the same order, which are drawn together.
        rounds: Draws.

    Returns:
        Without bounds where a cell has one image alone, which says nothing of others, or where all
        images of the cells are alike, so that all draws are: `at_most` bounds what was not seen.
    """
    if paired:
        # The same images are drawn in all cells: one number for each image is all that is needed.
        cells, weights = [np.tensordot(np.array(weights), np.array(cells), axes=1)], [1.0]

    def total(*some: Array, axis: int = -1) -> Any:
        return sum(w * cell.mean(axis=axis) for w, cell in zip(weights, some, strict=True))

    value = float(total(*cells))
    if min(map(len, cells)) < 2 or all((cell == cell[0]).all() for cell in cells):
        return Interval(value, None, None)
    drawn = stats.bootstrap(
        cells,
        total,
        n_resamples=rounds,
        batch=max(1, _DRAWN // max(map(len, cells))),
        method="percentile",
        rng=np.random.Generator(np.random.PCG64(0)),
    ).confidence_interval
    return Interval(value, float(drawn.low), float(drawn.high))


def at_most(images: int) -> float:
    """Largest share in percent that may do what none of so many images did (95 %).

    One-sided Clopper-Pearson, which the rule of three, 300 / images, approximates.
    """
    return float(100 * (1 - 0.05 ** (1 / images)))


class McNemar(NamedTuple):
    """Two models on the same images.

    Attributes:
        first_alone: Images that only the first has right.
        second_alone: Images that only the second has right.
        p: Of the exact two-sided test that both are equally likely.
    """

    first_alone: int
    second_alone: int
    p: float


def mcnemar(first: Array, second: Array) -> McNemar:
    """McNemar's exact test on whether each image is right."""
    alone = int((first & ~second).sum()), int((second & ~first).sum())
    p = 1.0 if sum(alone) == 0 else float(stats.binomtest(alone[0], sum(alone)).pvalue)
    return McNemar(*alone, p)


def per_class(label: Array, right: Array) -> dict[int, tuple[int, int]]:
    """Right and all images of each class."""
    images, hits = np.bincount(label), np.bincount(label, weights=right)
    return {int(k): (int(hits[k]), int(images[k])) for k in np.flatnonzero(images)}


def never_right(label: Array, right: Array) -> list[int]:
    """Classes of which no image is right, where chance alone would hardly ever make one so."""
    counts = per_class(label, right)
    wrong = 1 - right.mean()
    return [k for k, (hits, images) in counts.items()
            if not hits and len(counts) * wrong**images < _BY_CHANCE]  # fmt: skip
