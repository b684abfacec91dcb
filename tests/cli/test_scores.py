"""Scores from sums over partitions equal scikit-learn's on all rows."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score, root_mean_squared_error

from dtrees.cli.target import Baseline, classification_scores, classification_sums, regression_scores, regression_sums

CUTS = [0, 40, 40, 100]


def test_regression() -> None:
    random = np.random.default_rng(0)
    y = 1e6 + random.normal(size=100)
    predicted = y + random.normal(size=100)
    mean = 1e6 + 0.1
    sums = np.sum([regression_sums(y[a:b], predicted[a:b], mean) for a, b in itertools.pairwise(CUTS)], axis=0)
    r2, rmse, mae = regression_scores(sums)
    trivial = np.full(100, mean)
    assert r2.model == pytest.approx(r2_score(y, predicted), rel=1e-9)
    assert r2.baseline == pytest.approx(r2_score(y, trivial), abs=1e-9)
    assert (rmse.model, rmse.baseline) == pytest.approx((root_mean_squared_error(y, predicted), root_mean_squared_error(y, trivial)))
    assert (mae.model, mae.baseline) == pytest.approx((mean_absolute_error(y, predicted), mean_absolute_error(y, trivial)))


def test_constant_test_target_has_no_r2() -> None:
    assert np.isnan(regression_scores(regression_sums([2.0, 2.0], np.array([1.0, 2.0]), 2.0))[0].model)


@pytest.mark.parametrize("classes", [("a", "b", "c"), (0, 1, 5)])
def test_classification(classes: tuple[object, ...]) -> None:
    random = np.random.default_rng(0)
    y = pd.Series([classes[i] for i in random.integers(0, 3, 100)])
    shares = random.dirichlet(np.ones(3), 100)
    trivial = Baseline(classes=classes, frequencies=(0.2, 0.5, 0.3))
    sums = np.sum([classification_sums(y[a:b], shares[a:b], trivial) for a, b in itertools.pairwise(CUTS)], axis=0)
    accuracy, loss = classification_scores(sums)
    assert accuracy.model == accuracy_score(y, [classes[i] for i in shares.argmax(axis=1)])
    assert accuracy.baseline == (y == classes[1]).mean()
    assert loss.model == pytest.approx(log_loss(y, shares, labels=list(classes)))
    assert loss.baseline == pytest.approx(log_loss(y, np.tile([0.2, 0.5, 0.3], (100, 1)), labels=list(classes)))


def test_a_class_that_training_never_saw_counts_as_wrong() -> None:
    trivial = Baseline(classes=("a", "b"), frequencies=(0.5, 0.5))
    accuracy, loss = classification_scores(classification_sums(["z"], np.array([[0.9, 0.1]]), trivial))
    assert accuracy.model == 0
    assert loss.model > 30
