"""Telling known images from unknown ones: against the authors' programs and scikit-learn."""

import numpy as np
import pytest
from scipy import special

from robustness.rules import detection, detectors

RNG = np.random.default_rng(0)
KNOWN = np.round(RNG.normal(1, 1, 300), 2)
UNKNOWN = np.round(RNG.normal(0, 1.2, 200), 2)
LABELS = np.concatenate([np.zeros(300), np.ones(200)])
SCORES = np.concatenate([KNOWN, UNKNOWN])
FEATURES = RNG.normal(size=(400, 16)) * np.linspace(0.2, 2, 16)
ASKED = RNG.normal(size=(50, 16))
WEIGHT, BIAS = RNG.normal(size=(10, 16)), RNG.normal(size=10)


def test_the_measures_are_what_the_authors_programs_give() -> None:
    # OpenOOD's evaluators/metrics.py at 3c35632 and get_measures of natural-adv-examples at 0777070
    # gave these for the scores above.
    found = detection.measures(KNOWN, UNKNOWN)
    expected = (0.7311416666666667, 0.7766666666666666, 0.784150293355627, 0.6701925041978541)
    assert found == pytest.approx(expected, abs=1e-9)
    assert detection.average_precision(KNOWN, UNKNOWN) == pytest.approx(0.670965462233555, abs=1e-9)


def test_the_measures_are_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    found = detection.measures(KNOWN, UNKNOWN)
    assert found.auroc == pytest.approx(metrics.roc_auc_score(LABELS, -SCORES), abs=1e-9)
    for positive, score, area in ((LABELS, -SCORES, found.aupr_out),
                                  (1 - LABELS, SCORES, found.aupr_in)):  # fmt: skip
        precision, recall, _ = metrics.precision_recall_curve(positive, score)
        assert area == pytest.approx(metrics.auc(recall, precision), abs=1e-9)
    fpr, tpr, _ = metrics.roc_curve(LABELS, -SCORES, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(fpr[np.argmax(tpr >= 0.95)], abs=1e-9)
    steps = metrics.average_precision_score(LABELS, -SCORES)
    assert detection.average_precision(KNOWN, UNKNOWN) == pytest.approx(steps, abs=1e-9)


def test_closed_forms() -> None:
    apart = detection.measures(np.array([2.0, 3.0]), np.array([0.0, 1.0]))
    assert apart == (1, 0, 1, 1)
    backwards = detection.measures(np.array([0.0, 1.0]), np.array([2.0, 3.0]))
    assert backwards[:2] == (0, 1)
    same = detection.measures(np.zeros(30), np.zeros(10))
    assert same[:2] == (0.5, 1)
    # Two normal distributions one standard deviation apart: P(X > Y) = Phi(1 / sqrt 2).
    rng = np.random.default_rng(1)
    many = detection.measures(rng.normal(1, 1, 200_000), rng.normal(0, 1, 200_000))
    assert many.auroc == pytest.approx(special.ndtr(1 / np.sqrt(2)), abs=2e-3)
    assert many.fpr95 == pytest.approx(special.ndtr(special.ndtri(0.95) - 1), abs=5e-3)


def test_intervals_are_as_wide_as_the_formula_of_hanley_and_mcneil() -> None:
    found = detection.intervals(KNOWN, UNKNOWN)
    a = found["auroc"].value / 100
    q1, q2 = a / (2 - a), 2 * a**2 / (1 + a)
    m, n = len(KNOWN), len(UNKNOWN)
    error = np.sqrt((a * (1 - a) + (n - 1) * (q1 - a**2) + (m - 1) * (q2 - a**2)) / (m * n))
    assert (found["auroc"].high - found["auroc"].low) / 2 == pytest.approx(196 * error, rel=0.2)
    for interval in found.values():
        assert interval.low < interval.value < interval.high
    assert detection.intervals(KNOWN, UNKNOWN) == found
    assert detection.intervals(KNOWN, UNKNOWN[:1])["auroc"].low is None


def test_scores_of_logits_are_those_of_their_formulas() -> None:
    logits = RNG.normal(size=(20, 7)) * 5
    found = detectors.of_logits(logits)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert found["maximum softmax"] == pytest.approx(shares.max(axis=1))
    assert found["maximum logit"] == pytest.approx(logits.max(axis=1))
    assert found["energy"] == pytest.approx(np.log(np.exp(logits).sum(axis=1)))
    # At a large temperature the softmax tells how far the best logit is above the mean.
    above = (logits.max(axis=1) - logits.mean(axis=1)) / 1000
    assert found["softmax at temperature 1000"] == pytest.approx((1 + above) / 7, rel=1e-4)


def test_the_distance_to_the_50th_neighbour_is_scikit_learns() -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")
    bank, asked = (f / np.linalg.norm(f, axis=1, keepdims=True) for f in (FEATURES, ASKED))
    far, _ = neighbors.NearestNeighbors(n_neighbors=50).fit(bank).kneighbors(asked)
    assert detectors.nearest(FEATURES, ASKED) == pytest.approx(-(far[:, -1] ** 2), abs=1e-9)


def test_the_neighbour_is_one_of_the_same_class() -> None:
    rng = np.random.default_rng(0)
    places = rng.normal(size=(10, 8)) * 10
    known = np.repeat(places, 18, axis=0) + rng.normal(size=(180, 8)) * 0.1
    more = np.repeat(places, 9, axis=0) + rng.normal(size=(90, 8)) * 0.1
    k = detectors.neighbours(len(known), 10)
    assert k == 9
    between = (places + np.roll(places, 1, axis=0)) / 2
    both = [detectors.nearest(known, asked, k) for asked in (more, between)]
    assert detection.measures(*both).auroc == 1
    assert [detectors.neighbours(n, 1000) for n in (1_281_167, 25_000, 900)] == [50, 12, 0]


def test_vim_is_the_one_of_openood() -> None:
    covariance = pytest.importorskip("sklearn.covariance")
    origin = -np.linalg.pinv(WEIGHT) @ BIAS
    fitted = covariance.EmpiricalCovariance(assume_centered=True).fit(FEATURES - origin)
    values, directions = np.linalg.eigh(fitted.covariance_)
    beside = directions[:, np.argsort(-values)[detectors.dims(16) :]]
    lengths = np.linalg.norm((FEATURES - origin) @ beside, axis=1)
    scale = (FEATURES @ WEIGHT.T + BIAS).max(axis=1).mean() / lengths.mean()
    expected = special.logsumexp(ASKED @ WEIGHT.T + BIAS, axis=1)
    expected -= scale * np.linalg.norm((ASKED - origin) @ beside, axis=1)
    found = detectors.Vim.of(FEATURES, WEIGHT, BIAS).score(ASKED)
    assert found == pytest.approx(expected, abs=1e-9)
    assert [detectors.dims(width) for width in (16, 384, 768, 2048)] == [8, 192, 512, 1000]
