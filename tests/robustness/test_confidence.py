"""Risk against coverage and calibration, against closed forms and scikit-learn."""

import numpy as np
import pytest
from scipy import special

from robustness.rules import confidence as rules

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(400, 5)) * 3
LABELS = np.array([RNG.choice(5, p=p) for p in special.softmax(LOGITS / 2.5, axis=1)])
CONFIDENCE = rules.confidences(LOGITS)
RIGHT = LOGITS.argmax(axis=1) == LABELS


def test_risk_is_the_share_of_wrong_answers_among_the_most_confident() -> None:
    confidence = np.array([0.9, 0.2, 0.8, 0.5])
    right = np.array([True, False, False, True])
    assert rules.risks(confidence, right) == pytest.approx([0, 1 / 2, 1 / 3, 2 / 4])
    assert rules.aurc(confidence, right) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    # A confidence that knew all would have risks 0, 0, 1/3, 2/4.
    assert rules.excess_aurc(confidence, right) == pytest.approx(1 / 2 / 4)
    assert rules.accuracy_at(confidence, right, 0.5) == pytest.approx(1 / 2)
    assert rules.accuracy_at(confidence, right, 0.6) == pytest.approx(2 / 3)
    assert rules.accuracy_at(confidence, right, 1.0) == pytest.approx(2 / 4)
    assert rules.coverage_at(confidence, right, 0.01) == pytest.approx(1 / 4)
    assert rules.coverage_at(confidence, right, 0.34) == pytest.approx(3 / 4)
    assert rules.coverage_at(1 - confidence, right, 0.01) == 0


def test_ties_give_the_mean_over_all_orders() -> None:
    right = np.array([True, False, True, True, False])
    confidence = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    drawn = []
    for _ in range(4000):
        broken = confidence + RNG.random(5) * 1e-6
        drawn.append(rules.aurc(broken, right))
    assert rules.aurc(confidence, right) == pytest.approx(np.mean(drawn), abs=2e-3)
    order = RNG.permutation(5)
    assert rules.aurc(confidence[order], right[order]) == rules.aurc(confidence, right)
    # No threshold lies between images of one confidence.
    assert rules.coverage_at(confidence, right, 0.2) == pytest.approx(1 / 5)
    assert rules.coverage_at(confidence, right, 0.25) == pytest.approx(4 / 5)


def test_the_area_of_no_knowledge_is_the_error_and_of_all_is_the_closed_form() -> None:
    n, wrong = 1000, 300
    right = np.arange(n) >= wrong
    assert rules.aurc(np.ones(n), right) == pytest.approx(wrong / n)
    r = wrong / n
    best = r + (1 - r) * np.log(1 - r)  # the limit for many images
    assert rules.aurc(right.astype(float), right) == pytest.approx(best, abs=1e-3)
    assert rules.excess_aurc(right.astype(float), right) == 0


def test_losses_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    for temperature in (1.0, 2.5):
        shares = special.softmax(LOGITS / temperature, axis=1)
        nll = rules.log_losses(LOGITS, LABELS, temperature).mean()
        assert nll == pytest.approx(metrics.log_loss(LABELS, shares), rel=1e-6)
        brier = rules.brier_scores(LOGITS, LABELS, temperature).mean()
        one_hot = np.eye(5)[LABELS]
        each = [metrics.brier_score_loss(one_hot[:, k], shares[:, k]) for k in range(5)]
        assert brier == pytest.approx(sum(each), rel=1e-6)


def test_the_calibration_error_is_made_of_scikit_learns_bins() -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    bins = rules.BINS
    true, said = calibration.calibration_curve(RIGHT, CONFIDENCE, n_bins=bins)
    counts = np.histogram(CONFIDENCE, bins=np.linspace(0, 1, bins + 1))[0]
    expected = (np.abs(true - said) * counts[counts > 0]).sum() / len(RIGHT)
    found = rules.calibration_error(CONFIDENCE, RIGHT, equal_mass=False)
    assert found == pytest.approx(expected, rel=1e-9)
    parts = np.array_split(np.argsort(CONFIDENCE), bins)
    expected = sum(abs((CONFIDENCE[p] - RIGHT[p]).sum()) for p in parts) / len(RIGHT)
    found = rules.calibration_error(CONFIDENCE, RIGHT, equal_mass=True)
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_edges_of_the_bins_and_too_few_images() -> None:
    for equal_mass in (False, True):
        assert rules.calibration_error(CONFIDENCE[:14], RIGHT[:14], equal_mass=equal_mass) is None
        sure = rules.calibration_error(np.ones(20), np.ones(20, bool), equal_mass=equal_mass)
        assert sure == pytest.approx(0)
        never = rules.calibration_error(np.zeros(20), np.zeros(20, bool), equal_mass=equal_mass)
        assert never == pytest.approx(0)
        wrong = rules.calibration_error(np.ones(20), np.zeros(20, bool), equal_mass=equal_mass)
        assert wrong == pytest.approx(1)


def test_the_temperature_is_the_one_that_made_the_labels() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20_000, 3)) * 4
    shares = special.softmax(logits / 2, axis=1).cumsum(axis=1)
    labels = (rng.random((20_000, 1)) > shares).sum(axis=1)
    found = rules.fit_temperature(logits, labels)
    assert found == pytest.approx(2, rel=0.03)
    # At its optimum the likelihood does not change.
    around = [rules.log_losses(logits, labels, found * f).mean() for f in (0.99, 1, 1.01)]
    assert min(around) == around[1]


def test_a_temperature_that_runs_away_is_none() -> None:
    logits = np.eye(4)
    assert rules.fit_temperature(logits, np.arange(4)) is None  # all right: the colder, the better
    assert rules.fit_temperature(logits, (np.arange(4) + 1) % 4) is None
