"""Scores that tell what a model was never taught: higher is more like what it knows.

Of the logits: maximum softmax (arXiv:1610.02136), maximum logit (arXiv:1911.11132), energy
(arXiv:2010.03759), and the maximum softmax at temperature 1000, ODIN without the noise on its input
(arXiv:1706.02690). Of the features: distance to the 50th nearest known one
(arXiv:2204.06507), or a nearer one where a class has fewer than 100, and
ViM (arXiv:2203.10807). Settings are the defaults of OpenOOD v1.5.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from robustness.rules.confidence import confidences

Array = NDArray[Any]

TEMPERATURE = 1000.0
NEIGHBOURS = 50
_AT_ONCE = 512
"""Images whose distances to all known ones are held at once."""


def of_logits(logits: Array) -> dict[str, Array]:
    """A score of each image by each method that needs logits [B, classes] alone."""
    return {
        "maximum softmax": confidences(logits),
        "maximum logit": logits.max(axis=1),
        "energy": special.logsumexp(logits, axis=1),
        "softmax at temperature 1000": confidences(logits, TEMPERATURE),
    }


def neighbours(known: int, classes: int) -> int:
    """Which nearest known image is asked for: within one class, so that it tells of no other."""
    return min(NEIGHBOURS, known // (2 * classes))


def nearest(known: Array, asked: Array, k: int = NEIGHBOURS) -> Array:
    """Squared distance to the k-th nearest of the known features, of length 1, below zero: [B].

    Args:
        known: [N, D], at least k of them.
        asked: [B, D].
        k: Which one.
    """
    bank, wanted = (f / np.linalg.norm(f, axis=1, keepdims=True) for f in (known, asked))
    found = []
    for start in range(0, len(wanted), _AT_ONCE):
        alike = wanted[start : start + _AT_ONCE] @ bank.T
        found.append(2 * np.partition(alike, -k, axis=1)[:, -k] - 2)
    return np.concatenate(found)


@dataclass(frozen=True)
class Vim:
    """Virtual-logit matching: energy less what of a feature lies beside the known ones.

    Attributes:
        weight: Of the classifier, [classes, D].
        bias: Of it.
        origin: Where its answer is nearest to none: [D].
        beside: Directions in which the known features differ least: [D, D - dims].
        scale: Makes their length a logit.
    """

    weight: Array
    bias: Array
    origin: Array
    beside: Array
    scale: float

    @classmethod
    def of(cls, known: Array, weight: Array, bias: Array) -> "Vim":
        """Fit it to known features [N, D]; N must be larger than D."""
        origin = -np.linalg.pinv(weight) @ bias
        moved = known - origin
        _, directions = np.linalg.eigh(moved.T @ moved / len(known))  # from the least on
        beside = directions[:, : known.shape[1] - dims(known.shape[1])]
        logits = known @ weight.T + bias
        lengths = np.linalg.norm(moved @ beside, axis=1)
        scale = float(logits.max(axis=1).mean() / lengths.mean())
        return cls(weight, bias, origin, beside, scale)

    def score(self, features: Array) -> Array:
        """Of features [B, D]: [B]."""
        energy = special.logsumexp(features @ self.weight.T + self.bias, axis=1)
        lengths = np.linalg.norm((features - self.origin) @ self.beside, axis=1)
        scores: Array = energy - self.scale * lengths
        return scores


def dims(width: int) -> int:
    """Directions of the known features that ViM leaves out, as its paper chooses them."""
    if width >= 1500:
        return 1000
    return 512 if width >= 768 else width // 2
