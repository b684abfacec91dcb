from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, mean_squared_error

from dtrees.ensemble.losses import BinaryLogLoss, MultinomialLogLoss, SquaredError, log_loss_for

LOSSES = [SquaredError(), BinaryLogLoss(), MultinomialLogLoss(3), MultinomialLogLoss(2)]


def sample(loss, n=200, seed=0):
    rng = np.random.default_rng(seed)
    n_classes = 2 if isinstance(loss, BinaryLogLoss) else loss.n_outputs
    target = rng.normal(size=n) if isinstance(loss, SquaredError) else rng.integers(0, n_classes, n).astype(np.int32)
    return target, rng.normal(scale=2, size=(loss.n_outputs, n)), rng.uniform(0.1, 3, n)


def derivatives(loss, target, raw, output):
    g, h = np.empty(len(target)), np.empty(len(target))
    opened = np.empty_like(raw)
    loss.open_round(raw, opened)
    loss.gradients(target, opened, output, g, h)
    return g, h


def pointwise(loss, target, raw):
    losses = np.empty(len(target))
    loss.pointwise(target, raw, losses)
    return losses


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradients_are_differences_of_the_loss(loss):
    target, raw, _ = sample(loss)
    factor = 0.5 if isinstance(loss, SquaredError) else 1.0  # derivatives are of half the squared error
    for output in range(loss.n_outputs):
        g, h = derivatives(loss, target, raw, output)
        up, down = raw.copy(), raw.copy()
        up[output] += 1e-4
        down[output] -= 1e-4
        middle = pointwise(loss, target, raw)
        np.testing.assert_allclose(factor * (pointwise(loss, target, up) - pointwise(loss, target, down)) / 2e-4, g, atol=1e-7)
        curvature = factor * (pointwise(loss, target, up) - 2 * middle + pointwise(loss, target, down)) / 1e-8
        scale = loss.n_outputs / (loss.n_outputs - 1) if isinstance(loss, MultinomialLogLoss) else 1.0
        np.testing.assert_allclose(scale * curvature, h, atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_initial_prediction_is_the_best_constant(loss, weighted):
    target, raw, weight = sample(loss)
    weight = weight if weighted else None
    initial = loss.initial(target, weight)
    assert initial.shape == (loss.n_outputs,)
    raw = np.repeat(initial[:, np.newaxis], len(target), axis=1)
    for output in range(loss.n_outputs):
        g, _ = derivatives(loss, target, raw, output)
        assert abs(np.average(g, weights=weight)) < 1e-12


@pytest.mark.parametrize("loss", LOSSES[1:], ids=repr)
def test_log_loss_is_sklearns(loss):
    target, raw, _ = sample(loss)
    expected = log_loss(target, loss.predictions(raw.T))
    assert pointwise(loss, target, raw).mean() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(loss.predictions(raw.T).sum(axis=1), 1.0, rtol=1e-14)


def test_squared_error_is_sklearns():
    target, raw, _ = sample(SquaredError())
    assert pointwise(SquaredError(), target, raw).mean() == pytest.approx(mean_squared_error(target, raw[0]), rel=1e-14)


def test_binary_is_multinomial_of_two():
    target, raw, _ = sample(BinaryLogLoss())
    two = np.vstack([-raw[0] / 2, raw[0] / 2])
    g, h = derivatives(BinaryLogLoss(), target, raw, 0)
    g2, h2 = derivatives(MultinomialLogLoss(2), target, two, 1)
    np.testing.assert_allclose(g2, g, rtol=1e-12)
    np.testing.assert_allclose(h2, 2 * h, rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.floats(-800, 800), st.integers(0, 1))
def test_sure_predictions_stay_finite(raw, label):
    target = np.array([label], dtype=np.int32)
    for loss, raws in ((BinaryLogLoss(), np.array([[raw]])), (MultinomialLogLoss(3), np.array([[raw], [0.0], [-raw]]))):
        g, h = derivatives(loss, target, raws, 0)
        assert np.isfinite(g).all()
        assert np.isfinite(h).all()
        assert (h >= 0).all()
        assert np.isfinite(pointwise(loss, target, raws)).all()
        assert np.isfinite(loss.predictions(raws.T)).all()


def test_the_mean_is_compensated():
    target = np.array([1e16, 1.0, -1e16, 1.0] * 1000)
    assert SquaredError().initial(target, None)[0] == 0.5


def test_a_class_without_weight_has_a_finite_start():
    assert np.isfinite(BinaryLogLoss().initial(np.array([0, 1], dtype=np.int32), np.array([1.0, 0.0]))).all()


def test_losses_are_values():
    assert log_loss_for(2) == BinaryLogLoss()
    assert log_loss_for(4) == MultinomialLogLoss(4)
    assert pickle.loads(pickle.dumps(log_loss_for(4))) == log_loss_for(4)
    assert len({SquaredError(), SquaredError(), log_loss_for(3)}) == 2


def test_slices_of_raw_predictions_give_the_same():
    loss = MultinomialLogLoss(3)
    target, raw, _ = sample(loss)
    whole, _ = derivatives(loss, target, raw, 1)
    parts = [derivatives(loss, target[part], raw[:, part], 1)[0] for part in (slice(0, 70), slice(70, 200))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.floats(-800, 800), st.floats(-5, 5)), min_size=1, max_size=40))
def test_binary_loss_is_precise(margins):
    """Also where the loss is tiny, and where it is nearly the margin."""
    raw = np.array(margins)
    for label, sign in ((0, 1.0), (1, -1.0)):
        target = np.full(raw.size, label, np.int32)
        wanted = [max(sign * x, 0.0) + math.log1p(math.exp(-abs(x))) for x in margins]
        np.testing.assert_allclose(pointwise(BinaryLogLoss(), target, raw[None]), wanted, rtol=1e-15, atol=1e-322)
