"""What confidence is worth: when to abstain, and whether it means what it says.

Images of one confidence cannot be told apart: within such a group the errors are spread evenly,
which is what they are on average over all orders, so that no number depends on the order of files.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Array = NDArray[Any]

BINS = 15
"""Of the calibration errors."""

_COLDEST, _HOTTEST = 0.05, 20.0
"""Between these a temperature is looked for; at their ends it is none."""


def risks(confidence: Array, right: Array) -> Array:
    """Share of wrong answers among the k most confident ones, for k = 1 to all."""
    n = len(confidence)
    _, group, counts = np.unique(-confidence, return_inverse=True, return_counts=True)
    wrong = np.bincount(group, weights=~right) / counts
    return np.cumsum(np.repeat(wrong, counts)) / np.arange(1, n + 1)


def aurc(confidence: Array, right: Array) -> float:
    """Area under the curve of risk over coverage: the mean risk over all coverages."""
    return float(risks(confidence, right).mean())


def excess_aurc(confidence: Array, right: Array) -> float:
    """What the area has beyond that of a confidence that puts all wrong answers last."""
    return aurc(confidence, right) - aurc(right.astype(float), right)


def accuracy_at(confidence: Array, right: Array, coverage: float) -> float:
    """Accuracy of the most confident answers, which are this share of all (rounded up)."""
    count = int(np.ceil(round(coverage * len(right), 6)))
    return float(1 - risks(confidence, right)[max(count, 1) - 1])


def coverage_at(confidence: Array, right: Array, risk: float) -> float:
    """Largest share of answers with at most this risk, by a threshold that can be set."""
    ordered = np.sort(confidence)[::-1]
    ends = np.append(ordered[1:] != ordered[:-1], True)
    fits = np.flatnonzero(ends & (risks(confidence, right) <= risk + 1e-12))
    return float((fits[-1] + 1) / len(right)) if len(fits) else 0.0


def calibration_error(confidence: Array, right: Array, *, equal_mass: bool) -> float | None:
    """Expected calibration error: how far confidence and accuracy are apart, bin by bin.

    Args:
        confidence: Of each image.
        right: Whether each is right.
        equal_mass: Bins of as many images each, instead of bins of one width.

    Returns:
        None where there are fewer images than bins.
    """
    n = len(confidence)
    if n < BINS:
        return None
    if equal_mass:
        bins = np.array_split(np.argsort(confidence, kind="stable"), BINS)
    else:
        place = np.ceil(np.asarray(confidence, float) * BINS).clip(1, BINS)
        bins = [np.flatnonzero(place == k) for k in range(1, BINS + 1)]
    confidence = np.asarray(confidence, float)
    return float(
        sum(abs(confidence[b].mean() - right[b].mean()) * len(b) / n for b in bins if len(b))
    )


def log_losses(logits: Array, labels: Array, temperature: float = 1.0) -> Array:
    """Negative log likelihood of each image's class, in nats: [B]."""
    logs = special.log_softmax(np.asarray(logits, float) / temperature, axis=1)
    return -logs[np.arange(len(labels)), labels]


def brier_scores(logits: Array, labels: Array, temperature: float = 1.0) -> Array:
    """Squared distance of the probabilities to the class's own, summed over classes: [B]."""
    found = special.softmax(np.asarray(logits, float) / temperature, axis=1)
    own = found[np.arange(len(labels)), labels]
    return (found**2).sum(axis=1) - 2 * own + 1


def confidences(logits: Array, temperature: float = 1.0) -> Array:
    """Softmax of the best class: [B]."""
    return special.softmax(np.asarray(logits, float) / temperature, axis=1).max(axis=1)


def fit_temperature(logits: Array, labels: Array) -> float | None:
    """What to divide logits by, so that the likelihood of the classes is largest.

    Returns:
        None where it runs away: no temperature is best.
    """
    own = logits[np.arange(len(labels)), labels]
    # The likelihood has a best temperature where some class is not the best one (else the colder
    # the better), and where classes have more than the mean logit (else the hotter the better).
    if (own >= logits.max(axis=1)).all() or own.mean() <= logits.mean():
        return None
    found = optimize.minimize_scalar(
        lambda log: log_losses(logits, labels, float(np.exp(log))).mean(),
        bounds=(np.log(_COLDEST), np.log(_HOTTEST)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    temperature = float(np.exp(found.x))
    return temperature if 1.01 * _COLDEST < temperature < 0.99 * _HOTTEST else None
