"""Callbacks of scikit-learn, from version 1.9 on."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import dtrees
from tests.ensemble.samples import BOOSTING, SIGNAL, WEIGHT, X, assert_same_trees, every_kind, make, target

callbacks = pytest.importorskip("sklearn.callback")


class Recorder:
    """Records calls in order; ``stop_after`` ends a fit."""

    max_propagation_depth = None

    def __init__(self, stop_after=None):
        self.seen, self.models, self.stop_after = [], [], stop_after

    def setup(self, estimator, context):
        self.seen.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.seen.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
        self.seen.append(f"end {context.task_name}")
        self.told = estimator, X, y, metadata
        self.models.append(fitted_estimator)
        return context.task_id + 1 == self.stop_after

    def teardown(self, estimator, context):
        self.seen.append("teardown")


@every_kind
def test_tasks_and_models_so_far(kind):
    recorder, unit = Recorder(), "round" if kind in BOOSTING else "tree"
    model = make(kind, n_jobs=1).set_callbacks(recorder).fit(X, target(kind), WEIGHT)
    n = len(getattr(model, "estimators_", [model]))
    assert recorder.seen == ["setup", "begin fit", *[f"begin {unit}", f"end {unit}"] * n, "end fit", "teardown"]
    assert recorder.told[0] is model
    assert recorder.told[1] is X
    assert recorder.told[3]["sample_weight"] is WEIGHT
    assert_same_trees(model, make(kind, n_jobs=1).fit(X, target(kind), WEIGHT))
    for i, so_far in enumerate(recorder.models[:n], 1):
        if n > 1:
            assert_same_trees(so_far, model[:i])
            assert_allclose(so_far.predict(X) == model.predict(X, n_trees=i), True)
    assert_same_trees(recorder.models[-1], model)
    assert clone(model).fit(X, target(kind)) is not None  # the clone has the callbacks, too
    assert recorder.seen.count("setup") == 2


def test_scikit_learns_own(capsys):
    monitor = callbacks.ScoringMonitor(scoring="r2")
    model = make(dtrees.GradientBoostingRegressor).set_callbacks(monitor, callbacks.ProgressBar()).fit(X, SIGNAL)
    whole, *by_round = monitor.get_logs().data
    assert_allclose([row["r2"] for row in by_round], [model[:i].score(X, SIGNAL) for i in range(1, 9)])
    assert_allclose(whole["r2"], model.score(X, SIGNAL))
    assert "GradientBoostingRegressor" in capsys.readouterr().out


def test_they_end_a_fit_and_are_taken_off():
    model = make(dtrees.GradientBoostingRegressor).set_callbacks(Recorder(stop_after=3)).fit(X, SIGNAL)
    assert len(model) == 3
    assert len(model.set_callbacks().fit(X, SIGNAL)) == 8
    assert_same_trees(pickle.loads(pickle.dumps(model)), model)


def test_a_fit_that_goes_on_or_fails():
    for kind in (dtrees.RandomForestRegressor, dtrees.GradientBoostingRegressor):
        recorder = Recorder()
        model = make(kind, n_jobs=1, n_estimators=3, warm_start=True).fit(X, SIGNAL).set_callbacks(recorder)
        model.set_params(n_estimators=5).fit(X, SIGNAL)
        assert sum(one.startswith("end") for one in recorder.seen) == 3
        assert [len(so_far) for so_far in recorder.models] == [4, 5, 5]
        with pytest.raises(ValueError, match="NaN|number"):
            model.fit(X, np.full(len(X), np.nan))
        assert recorder.seen[-1] == "teardown"
        assert len(model) == 5


def test_a_search_passes_them_on():
    recorder = Recorder()
    search = GridSearchCV(make(dtrees.GradientBoostingRegressor), {"max_depth": [1, 2]}, cv=2).set_callbacks(recorder)
    search.fit(np.nan_to_num(X), SIGNAL)
    assert recorder.seen.count("end round") == 8 * (2 * 2 + 1)
    assert recorder.seen.count("setup") == recorder.seen.count("teardown") == 1
    assert not hasattr(search.best_estimator_, "_parent_callback_ctx")
