"""Newton steps of losses with a log link: none leads past the smallest loss of its leaf, whatever the targets are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtrees
from dtrees.ensemble.objective.regression import Gamma, Poisson, Tweedie
from tests.examples import examples

LOSSES = [Poisson(), Gamma(), Tweedie(1.1), Tweedie(1.5), Tweedie(1.9)]


@examples(50)
@given(st.sampled_from(LOSSES), st.lists(st.tuples(st.floats(1e-4, 1e4), st.floats(-5.0, 5.0)), min_size=1, max_size=5))
def test_no_step_leads_past_the_smallest_loss(loss: Any, rows: list[tuple[float, float]]) -> None:
    """The derivative by the step, of the rows of a leaf, has not changed its sign at the end of the step."""
    target, raw = (np.array(values) for values in zip(*rows, strict=True))
    g, h = np.empty(target.shape[0]), np.empty(target.shape[0])

    def slope(step: float) -> float:
        loss.gradients(target, raw[None] + step, 0, g, h)
        return math.fsum(g)

    before = slope(0.0)
    newton = -before / math.fsum(h)
    steps = np.array([[0.1 * newton]])
    loss.limit_steps(steps, 0.1)
    step = 10.0 * steps[0, 0]
    assert abs(step) <= abs(newton) * (1.0 + 1e-12)
    assert step * newton >= 0.0
    rounding = 1e-9 * math.fsum(np.abs(g) + target + np.exp(raw))
    after = slope(step)
    assert after * math.copysign(1.0, before) >= -rounding or abs(step) < 1e-6
    assert abs(step) > 0.0 or abs(before) <= rounding


@pytest.mark.parametrize(("loss", "outlier"), [("poisson", 1e4), ("poisson", 1e8), ("gamma", 1e4), ("gamma", 1e-6), ("tweedie", 1e6)])
def test_predictions_stay_with_the_data(loss: str, outlier: float) -> None:
    """One row is far from all others; the loss falls in every round."""
    y = np.ones(2_000)
    y[7] = outlier
    X = np.random.default_rng(0).normal(size=(y.shape[0], 2))
    booster = dtrees.GradientBoostingRegressor(loss=loss, n_estimators=50, learning_rate=0.3, min_samples_leaf=1).fit(X, y)
    predicted = booster.predict(X)
    assert y.min() / 1.1 <= predicted.min() <= predicted.max() <= 1.1 * y.max()
    assert np.all(np.diff(booster.train_score_) <= 0.0)


def test_rising_losses_are_an_error() -> None:
    """A learning rate that is too large is named long before numbers overflow."""
    X, y = np.arange(100.0)[:, None], np.arange(100.0)
    message = r"boosting has diverged: the mean loss of the training rows was .* after round 1 and is .* a smaller learning_rate than 2.5"
    with pytest.raises(ValueError, match=message):
        dtrees.GradientBoostingRegressor(learning_rate=2.5, reg_lambda=0.0, n_estimators=20).fit(X, y)
