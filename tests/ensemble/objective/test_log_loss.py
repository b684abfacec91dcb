from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from dtrees.ensemble.objective.classification import BinaryLogLoss, MultinomialLogLoss, log_loss_for
from tests.ensemble.objective.samples import derivatives, pointwise, sample

LOSSES = [BinaryLogLoss(), MultinomialLogLoss(3), MultinomialLogLoss(2)]


def test_hessians_of_several_classes_are_scaled():
    for loss in LOSSES[1:]:
        n = loss.n_outputs
        target, raw, _ = sample(loss, n)
        share = loss.predictions(raw.T)[:, 1]
        np.testing.assert_allclose(derivatives(loss, target, raw, 1)[1], n / (n - 1) * share * (1 - share), rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_log_loss_is_sklearns(loss):
    target, raw, _ = sample(loss, max(2, loss.n_outputs))
    expected = log_loss(target, loss.predictions(raw.T))
    assert pointwise(loss, target, raw).mean() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(loss.predictions(raw.T).sum(axis=1), 1.0, rtol=1e-14)


def test_binary_is_multinomial_of_two():
    target, raw, _ = sample(BinaryLogLoss(), 2)
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


def test_a_class_without_weight_has_a_finite_start():
    assert np.isfinite(BinaryLogLoss().initial(np.array([0, 1], dtype=np.int32), np.array([1.0, 0.0]))).all()


def test_losses_are_values():
    assert log_loss_for(2) == BinaryLogLoss()
    assert log_loss_for(4) == MultinomialLogLoss(4)
    assert pickle.loads(pickle.dumps(log_loss_for(4))) == log_loss_for(4)
    assert len({log_loss_for(2), BinaryLogLoss(), log_loss_for(3)}) == 2


def test_slices_of_raw_predictions_give_the_same():
    loss = MultinomialLogLoss(3)
    target, raw, _ = sample(loss, max(2, loss.n_outputs))
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
