"""Boosting of censored times."""

import numpy as np
import pandas as pd
import polars
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.ensemble.objective.survival import baseline, concordance
from tests.ensemble.samples import SIGNAL, WEIGHT, N, X, assert_same_trees, make

RNG = np.random.default_rng(2)
TIME = np.round(np.exp(SIGNAL / 3) * RNG.exponential(size=N), 1) + 0.1
CENSORED = np.round(RNG.exponential(3.0, N), 1) + 0.1
SEEN, Y = TIME <= CENSORED, np.minimum(TIME, CENSORED)
BOUNDS = np.column_stack([Y, np.where(SEEN, Y, np.inf)])
Regressor = dtrees.GradientBoostingRegressor
every_loss = pytest.mark.parametrize("loss", ["cox", "aft"])


def structured(event="event", dtype=bool):
    made = np.empty(N, [(event, dtype), ("time", float)])
    made[event], made["time"] = SEEN, Y
    return made


@every_loss
def test_kinds_of_y(loss):
    wanted = make(Regressor, loss=loss).fit(X, BOUNDS)
    frame = pd.DataFrame({"time": Y, "event": SEEN})
    nullable = frame.astype({"time": "Float64", "event": "boolean"})
    for y in (structured(), frame, frame[["event", "time"]], nullable, polars.DataFrame(frame), pd.DataFrame(BOUNDS), BOUNDS.tolist()):
        assert_same_trees(make(Regressor, loss=loss).fit(X, y), wanted)
    assert wanted.n_outputs_ == 1
    assert wanted.predict(X).shape == (N,)
    assert (wanted.predict(X) > 0).all()


@every_loss
def test_rows_are_put_in_order(loss):
    model = make(Regressor, loss=loss, n_estimators=30).fit(X, structured(), WEIGHT)
    predicted = model.predict(X)
    index = concordance(BOUNDS.T, predicted if loss == "cox" else -predicted, WEIGHT)
    assert index > 0.75
    assert model.score(X, structured(), WEIGHT) == index
    # Rows of weight 0 have no effect.
    kept = WEIGHT > 0
    assert_allclose(make(Regressor, loss=loss, n_estimators=30).fit(X[kept], BOUNDS[kept], WEIGHT[kept]).predict(X), predicted)
    for others in ({"n_jobs": 4}, {"warm_start": True, "n_estimators": 10}):
        other = make(Regressor, **{"loss": loss, "n_estimators": 30, **others}).fit(X, BOUNDS, WEIGHT)
        assert_same_trees(other.set_params(n_estimators=30).fit(X, BOUNDS, WEIGHT), model)


@every_loss
def test_early_stopping_and_files(loss, tmp_path):
    train, test = np.arange(N) % 3 > 0, np.arange(N) % 3 == 0
    model = make(Regressor, loss=loss, n_estimators=40, early_stopping_rounds=3, eval_metric=["loss", "concordance"], learning_rate=0.5)
    model.fit(X[train], BOUNDS[train], eval_set=[(X[test], structured()[test])], checkpoint=tmp_path / "checkpoint")
    scores = model.evals_result_["validation_0"]
    assert model.best_iteration_ == np.argmax(scores["concordance"])
    assert len(model.train_score_) == model.n_estimators_ == model.best_iteration_ + 1
    assert np.isnan(model.train_score_).all() == (loss == "cox")
    assert model.score(X[test], BOUNDS[test]) == model.best_score_
    dtrees.save(model, tmp_path / "model")
    loaded, times = dtrees.load(tmp_path / "model"), [0.5, 2.0]
    assert_array_equal(loaded.predict_survival_function(X, times), model.predict_survival_function(X, times))
    assert_array_equal(loaded.predict(X), model.predict(X))
    held_out = make(Regressor, loss=loss, n_iter_no_change=2, scoring="concordance", n_estimators=9).fit(X, BOUNDS)
    assert 0.4 < held_out.validation_score_[-1] <= 1.0
    assert make(Regressor, loss=loss, n_iter_no_change=2, scoring=None, n_estimators=9).fit(X, BOUNDS).n_estimators_ <= 9


def test_rows_held_out_are_in_no_risk_set():
    """Targets of held-out rows do not change the trees of Cox's model."""
    settings = {"loss": "cox", "n_iter_no_change": 50, "scoring": "concordance"}
    seen = []

    def objective(y, raw, weight):
        seen.append(weight == 0)
        return raw - y, np.ones(len(y))

    make(Regressor, loss=objective, n_iter_no_change=50, scoring="r2").fit(X, SIGNAL)
    other = BOUNDS.copy()
    other[seen[0]] = 1000.0 + np.arange(seen[0].sum())[:, np.newaxis]
    assert_same_trees(make(Regressor, **settings).fit(X, other), make(Regressor, **settings).fit(X, BOUNDS))


def test_survival_functions():
    model = make(Regressor, loss="cox").fit(X, BOUNDS, WEIGHT)
    assert_array_equal(model.event_times_, np.unique(Y[SEEN & (WEIGHT > 0)]))
    raw = np.log(model.predict(X))
    assert_allclose(model.cumulative_baseline_hazard_, baseline(BOUNDS.T, raw, WEIGHT)[1])
    found = model.predict_survival_function(X)
    assert found.shape == (N, len(model.event_times_))
    assert (np.diff(found, axis=1) <= 0).all()
    at = model.event_times_[[0, 3, 3]] + [-1e-9, 0.0, 1e-9]
    assert_array_equal(model.predict_survival_function(X, at), np.column_stack([np.ones(N), found[:, 3], found[:, 3]]))
    # Predicted and observed shares of survivors agree.
    times = [0.5, 2.0]
    lasted = model.predict_survival_function(X, times).mean(axis=0)
    assert_allclose(
        lasted, Regressor(loss="cox", n_estimators=1, learning_rate=0.0).fit(X, BOUNDS).predict_survival_function(X, times)[0], atol=0.1
    )
    margin = make(Regressor, loss="cox").fit(X, BOUNDS, base_margin=SIGNAL / 9)
    assert margin.predict_survival_function(X, base_margin=SIGNAL / 9).shape == (N, len(margin.event_times_))
    with pytest.raises(ValueError, match="this is a slice or"):
        model[:2].predict_survival_function(X)
    refitted = model.refit_leaves(X, BOUNDS, WEIGHT, decay=0.0)
    assert_array_equal(refitted.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="or a refit of a model"):
        refitted.predict_survival_function(X)
    median = make(Regressor, loss="aft").fit(X, BOUNDS)
    assert_allclose(np.diag(median.predict_survival_function(X[:9], median.predict(X[:9]))), 0.5)


def test_cross_validation():
    found = dtrees.cross_validate(make(Regressor, loss="cox", n_estimators=4), X, structured(), cv=3)
    assert found["test_score"].shape == (3,)
    assert (found["test_score"] > 0.5).all()
    assert list(found.curves) == ["concordance"]


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({}, SIGNAL, "y has the shape \\(300,\\), but loss is for times that may be censored"),
        ({}, np.column_stack([BOUNDS, Y]), "the shape \\(300, 3\\)"),
        ({}, -BOUNDS, "wants times of at least 0, no NaN"),
        ({}, BOUNDS[:, ::-1], "wants times of at least 0"),
        ({}, np.where(np.arange(N)[:, None] == 7, np.nan, BOUNDS), r"y has the bounds \[nan, nan\]"),
        ({}, np.column_stack([Y, Y + 1]), "loss='cox' wants times that are known"),
        ({"eval_metric": "rmse"}, BOUNDS, "eval_metric has 'rmse'; wants, for this loss, some of concordance, loss"),
        ({}, pd.DataFrame({"event": SEEN, "time": pd.to_timedelta(Y, "D")}), "y cannot be turned into times"),
        ({}, pd.DataFrame({"time": Y + 2, "event": SEEN + 0}), "or events as booleans"),
        ({"init": dtrees.DecisionTreeRegressor()}, BOUNDS, "loss='cox' has a y that no such estimator learns; wants 'zero' or None"),
        ({"n_iter_no_change": 3}, BOUNDS, "loss is 'cox', which has one of all rows only; pass another scoring"),
        ({"n_iter_no_change": 3, "scoring": "r2"}, BOUNDS, "scoring is 'r2'; wants, for this loss, 'concordance', 'loss'"),
    ],
)
def test_what_is_refused(parameters, y, message):
    with pytest.raises(ValueError, match=message):
        make(Regressor, loss="cox", **parameters).fit(X, y)


def test_events_that_are_numbers_are_taken_for_bounds():
    with pytest.warns(UserWarning, match="as if they were events and times; pass events as booleans"):
        make(Regressor, loss="aft").fit(X, pd.DataFrame({"event": SEEN + 0, "time": Y + 1}))


def test_more_that_is_refused():
    with pytest.raises(ValueError, match="estimator has loss='aft', which predicts no values of y to average"):
        dtrees.BaggingRegressor(make(Regressor, loss="aft")).fit(X, BOUNDS)
    with pytest.raises(ValueError, match="infinity"):
        make(Regressor).fit(X, BOUNDS)
    for model, times, message in (
        (make(Regressor).fit(X, SIGNAL), None, "is for loss='cox' and loss='aft', but the model has loss='squared_error'"),
        (make(Regressor, loss="aft").fit(X, BOUNDS), None, "times is None"),
        (make(Regressor, loss="aft").fit(X, BOUNDS), [-1.0], "wants numbers of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict_survival_function(X, times)
