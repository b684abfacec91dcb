"""DART: rounds that are grown without some of the earlier ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.cluster.data.memory import Sizes
from dtrees.ensemble.input.schema import Schema
from tests.ensemble.samples import BOOSTING, SIGNAL, WEIGHT, X, assert_same_trees, make, target
from tests.naive_dropout import dart, dropped_rounds

REGRESSOR = dtrees.GradientBoostingRegressor
FILLED = np.nan_to_num(X)
HALF = np.arange(len(X)) % 2 == 0


@pytest.mark.parametrize("normalization", ["tree", "forest"])
@pytest.mark.parametrize(("drop_rate", "skip_drop"), [(0.4, 0.0), (0.8, 0.5), (1.0, 0.0)])
def test_by_the_book(drop_rate, skip_drop, normalization):
    """Predictions, losses and scores of evaluation sets equal the oracle's after every round."""
    rate, limits = 0.3, {"max_depth": 3, "min_samples_leaf": 3, "max_features": None}
    own, others = X[HALF], X[~HALF]
    model = make(
        REGRESSOR, n_estimators=12, learning_rate=rate, drop_rate=drop_rate, skip_drop=skip_drop, drop_normalization=normalization, **limits
    ).fit(own, SIGNAL[HALF], eval_set=[(others, SIGNAL[~HALF])])

    def step(raw):
        residuals = SIGNAL[HALF] - raw[: len(own)]
        tree = make(REGRESSOR, n_estimators=1, init="zero", learning_rate=rate, **limits).fit(own, residuals)
        return tree.predict(np.concatenate([own, others]))

    start = np.full(len(X), SIGNAL[HALF].mean())
    dropped = [dropped_rounds(model._seed, n, drop_rate, skip_drop) for n in range(12)]
    weights, predictions = dart(step, start, dropped, rate, normalization)
    assert any(weight < 1 for weight in weights)
    assert_allclose(np.concatenate([model.predict(own), model.predict(others)]), predictions[-1])
    losses = [np.mean((SIGNAL[HALF] - raw[: len(own)]) ** 2) for raw in predictions]
    assert_allclose(model.train_score_, losses)
    scores = [np.sqrt(np.mean((SIGNAL[~HALF] - raw[len(own) :]) ** 2)) for raw in predictions]
    assert_allclose(model.evals_result_["validation_0"]["rmse"], scores)


@pytest.mark.parametrize("kind", BOOSTING)
def test_fewer_rounds_are_the_first_ones_with_the_weights_of_their_time(kind):
    y, parameters = target(kind), {"drop_rate": 0.5, "subsample": 0.7, "learning_rate": 0.9}
    stopped = make(kind, n_estimators=60, early_stopping_rounds=3, **parameters).fit(X[HALF], y[HALF], eval_set=[(X[~HALF], y[~HALF])])
    n = stopped.best_iteration_ + 1
    assert 1 < n == len(stopped) < 57
    assert_same_trees(stopped, make(kind, n_estimators=n, **parameters).fit(X[HALF], y[HALF]))


@pytest.mark.parametrize("kind", BOOSTING)
def test_the_loss_after_the_last_round_is_that_of_the_model(kind):
    y = target(kind)
    model = make(kind, drop_rate=0.5, eval_metric="loss").fit(X, y, WEIGHT, eval_set=[(X, y, WEIGHT)])
    assert_allclose(model.train_score_, model.evals_result_["validation_0"]["loss"])


def test_nothing_is_dropped_where_all_rounds_skip():
    model = make(REGRESSOR, drop_rate=0.5, skip_drop=1.0).fit(X, SIGNAL)
    plain = make(REGRESSOR).fit(X, SIGNAL)
    assert_same_trees(model, plain)
    assert_allclose(model.train_score_, plain.train_score_)


def test_an_interrupted_fit_has_the_weights_of_its_rounds():
    def stop(progress):
        if progress.done == 5:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="5"):
        model = make(REGRESSOR, drop_rate=0.5).fit(X, SIGNAL, callbacks=[dtrees.KeepOnInterrupt(), stop])
    assert_same_trees(model, make(REGRESSOR, n_estimators=len(model), drop_rate=0.5).fit(X, SIGNAL))


def test_what_is_refused_or_has_no_effect():
    model = make(REGRESSOR, drop_rate=0.5, warm_start=True).fit(X, SIGNAL)
    with pytest.raises(ValueError, match=r"drop_rate=0.5 and warm_start=True"):
        model.set_params(n_estimators=9).fit(X, SIGNAL)
    model.set_params(drop_rate=0.0).fit(X, SIGNAL)
    assert len(model) == 9
    for other in ({"skip_drop": 0.5}, {"drop_normalization": "forest"}):
        with pytest.warns(UserWarning, match=f"{next(iter(other))}=.* has no effect: it is for dropped rounds, but drop_rate is 0.0"):
            make(REGRESSOR, **other).fit(X, SIGNAL)
    for wrong in (-0.1, 1.5):
        with pytest.raises(ValueError, match="drop_rate"):
            make(REGRESSOR, drop_rate=wrong).fit(X, SIGNAL)


def test_bytes_of_rows():
    schema = Schema.infer(X)
    plain, remembering = (Sizes.of(schema, 1000, weighted=False, partition=0, boosting=True, remembered=n) for n in (0, 300))
    assert remembering.besides() - plain.besides() == 300 * 1000


@pytest.mark.parametrize("normalization", ["tree", "forest"])
def test_as_xgboost(normalization):
    """If all rounds are dropped each time, nothing is drawn, and both grow the same trees; XGBoost computes in float32."""
    xgboost = pytest.importorskip("xgboost")
    single = FILLED.astype(np.float32)
    theirs = xgboost.XGBRegressor(
        booster="dart", rate_drop=1.0, normalize_type=normalization, n_estimators=10, max_depth=3, learning_rate=0.3, reg_lambda=1.0,
        tree_method="exact", base_score=0.0, min_child_weight=1.0, n_jobs=1,
    ).fit(single, SIGNAL)  # fmt: skip
    ours = REGRESSOR(
        drop_rate=1.0, drop_normalization=normalization, n_estimators=10, max_depth=3, learning_rate=0.3, reg_lambda=1.0, init="zero",
        min_samples_leaf=1, split_shrinkage=0.0, min_child_weight=1.0,
    ).fit(single, SIGNAL)  # fmt: skip
    assert_allclose(ours.predict(single), theirs.predict(single), atol=1e-4)


def test_held_out_loss_is_near_that_of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    errors = []
    for seed in range(3):
        ours = REGRESSOR(n_estimators=60, max_depth=3, learning_rate=0.3, drop_rate=0.1, skip_drop=0.5, random_state=seed)
        theirs = xgboost.XGBRegressor(
            booster="dart", n_estimators=60, max_depth=3, learning_rate=0.3, rate_drop=0.1, skip_drop=0.5, seed=seed, n_jobs=1
        )
        errors.append([np.mean((one.fit(X[HALF], SIGNAL[HALF]).predict(X[~HALF]) - SIGNAL[~HALF]) ** 2) for one in (ours, theirs)])
    ours, theirs = np.mean(errors, axis=0)
    assert ours < 1.15 * theirs


def test_draws_are_of_the_random_state():
    one, same, other = (make(REGRESSOR, drop_rate=0.5, random_state=seed).fit(X, SIGNAL).predict(X) for seed in (1, 1, 2))
    assert_array_equal(one, same)
    assert not np.array_equal(one, other)
