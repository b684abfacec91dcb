"""``monitor``: callbacks in the form of scikit-learn's boosting. Other callbacks are tested where fits are."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.ensemble
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from tests.ensemble.samples import BOOSTING, SIGNAL, X, every_ensemble, make, target
from tests.plain import PLAIN


@every_ensemble
def test_a_monitor_is_called_after_each_round_and_ends_the_fit(kind):
    calls = []

    def monitor(i, estimator, variables):
        calls.append((i, variables["progress"].done, len(getattr(estimator, "train_score_", ()))))
        assert type(estimator) is kind
        assert estimator.n_features_in_ == 5
        return i == 3

    model = make(kind, n_jobs=1).fit(X, target(kind), monitor=monitor)
    assert calls == [(i, i + 1, i + 1 if kind in BOOSTING else 0) for i in range(4)]
    assert len(model.estimators_) == 4
    assert len(getattr(model, "train_score_", "four")) == 4


def test_a_monitor_of_scikit_learns_boosting_serves_here():
    filled = np.nan_to_num(X)
    stops = {}
    for library in (dtrees, sklearn.ensemble):
        own = {**PLAIN, "reg_lambda": 0.0, "max_depth": 3} if library is dtrees else {}
        seen = []

        def monitor(i, estimator, variables, seen=seen):
            seen.append(estimator.train_score_[i])
            return i > 2 and seen[-3] - seen[-1] < 0.4

        library.GradientBoostingRegressor(**{**own, "n_estimators": 50, "learning_rate": 0.1}).fit(filled, SIGNAL, monitor=monitor)
        stops[library] = seen
    assert 4 < len(stops[dtrees]) < 50
    assert_allclose(stops[dtrees], stops[sklearn.ensemble])


def test_a_monitor_of_a_warm_start_sees_the_scores_of_before():
    seen = []
    model = make(dtrees.GradientBoostingRegressor, n_estimators=3, warm_start=True).fit(X, SIGNAL)
    model.set_params(n_estimators=6).fit(X, SIGNAL, monitor=lambda i, estimator, variables: seen.append((i, estimator.train_score_)))
    assert [i for i, _ in seen] == [3, 4, 5]
    assert_array_equal(seen[-1][1], model.train_score_)


def test_a_monitor_and_callbacks_are_all_called():
    seen = []
    make(dtrees.RandomForestRegressor, n_estimators=3, n_jobs=1).fit(
        X, SIGNAL, callbacks=[lambda progress: seen.append("callback")], monitor=lambda *arguments: seen.append("monitor")
    )
    assert seen == ["callback", "monitor"] * 3
    with pytest.raises(TypeError, match="monitor is 3; wants a function"):
        make(dtrees.RandomForestRegressor).fit(X, SIGNAL, monitor=3)
