"""Boosted forests: rounds of several trees on the same gradients."""

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.split.numbers import hashing
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, N, X, assert_same_trees, make, trees

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
FULL = np.nan_to_num(X)
THREE = {"n_parallel_trees": 3, "subsample": 0.6}


def drawn(model, first):
    """Return the rows that a tree draws, given its number."""
    chosen = np.empty(N, np.bool_)
    n_wanted = int(model.subsample * N)
    hashing.subsample(hashing.as_seed(model._seed), hashing.STREAM_SUBSAMPLE, first, n_wanted, np.ones(N, np.bool_), chosen)
    return chosen


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson"])
def test_rounds_by_the_book(loss):
    """The trees of a round are those of scikit-learn's method on its rows: trees of gradients, with measured leaves."""
    y = np.exp(SIGNAL / 4) if loss == "poisson" else SIGNAL
    model = Regressor(
        loss=loss, n_estimators=4, **THREE, max_depth=3, learning_rate=0.3, reg_lambda=0.0, split_shrinkage=0.0, min_samples_leaf=1,
        min_child_weight=0.0, max_features=None, criterion="squared_error", random_state=0,
    ).fit(FULL, y)  # fmt: skip
    raw = np.full(N, model._trees.initial[0])
    for round_ in range(4):
        gradient, hessian = {
            "squared_error": (raw - y, np.ones(N)),
            "absolute_error": (np.sign(raw - y), np.ones(N)),
            "poisson": (np.exp(raw) - y, np.exp(raw)),
        }[loss]
        step = np.zeros(N)
        for tree in range(3):
            rows = drawn(model, round_ * 3 + tree)
            twin = dtrees.DecisionTreeRegressor(max_depth=3).fit(FULL[rows], -gradient[rows])
            at, at_drawn = twin.apply(FULL), twin.apply(FULL[rows])
            for leaf in np.unique(at):
                mine = np.flatnonzero(rows)[at_drawn == leaf]
                if loss == "absolute_error":
                    value = np.median((y - raw)[mine])
                else:
                    value = -gradient[mine].sum() / hessian[mine].sum()
                    if loss == "poisson":
                        value = np.sign(value) * min(abs(value), abs(np.log(y[mine].sum() / np.exp(raw[mine]).sum())))
                step[at == leaf] += 0.3 / 3 * value
        raw += step
        predicted = model.predict(FULL, n_trees=round_ + 1)
        assert_allclose(np.log(predicted) if loss == "poisson" else predicted, raw, rtol=1e-9)


def test_without_draws_parallel_trees_are_equal_and_there_is_a_warning():
    plain = make(Regressor, max_features=None).fit(X, SIGNAL)
    with pytest.warns(UserWarning, match="n_parallel_trees=4 has no effect: the trees of a round are equal"):
        model = make(Regressor, max_features=None, n_parallel_trees=4).fit(X, SIGNAL)
    assert all(tree.equals(trees(model)[k - k % 4]) for k, tree in enumerate(trees(model)))
    assert_allclose(model.predict(X), plain.predict(X), rtol=1e-9)


@pytest.mark.parametrize(("kind", "y", "n_outputs"), [(Regressor, SIGNAL, 1), (Classifier, LABELS, 3), (Classifier, SIGNAL > 0, 1)])
def test_rounds_are_what_is_counted(kind, y, n_outputs):
    model = make(kind, **THREE).fit(X, y, WEIGHT, eval_set={"same": (X, y, WEIGHT)})
    assert model.n_estimators_ == len(model) == len(model.train_score_) == len(next(iter(model.evals_result_["same"].values()))) == 8
    assert model.n_trees_per_iteration_ == 3 * n_outputs
    assert model.estimators_.shape == (8, 3 * n_outputs)
    assert model.apply(X).shape == (N, 8, 3 * n_outputs)
    assert not hasattr(model, "oob_score_")
    staged = model.staged_decision_function if kind is Classifier else model.staged_predict
    whole = model.decision_function if kind is Classifier else model.predict
    for n, stage in enumerate(staged(X), 1):
        assert_array_equal(stage, whole(X, n_trees=n))
        assert_array_equal(stage, getattr(model[:n], whole.__name__)(X))
    assert n == 8
    steps = np.zeros((N, n_outputs))
    for k, member in enumerate(model.estimators_.ravel()):
        steps[:, k % n_outputs] += member.predict(X)
    assert_allclose(np.reshape(whole(X), (N, -1)), model._trees.initial + model.learning_rate_ * steps)
    assert_array_equal(model.apply(X)[:, 2, -1], model.estimators_[2, -1].apply(X))
    explained = model.shap_values(X[:9]).sum(axis=1) + model.shap_expected_value()
    assert_allclose(explained, whole(X[:9]), rtol=1e-6)


@pytest.mark.parametrize(("kind", "y"), [(Regressor, SIGNAL), (Classifier, LABELS)])
def test_files_further_rounds_and_slices(kind, y, tmp_path):
    model = make(kind, **THREE).fit(X, y)
    dtrees.save(model.set_params(n_parallel_trees=7), tmp_path / "model")  # used by the next fit
    again = dtrees.load(tmp_path / "model").set_params(n_parallel_trees=3)
    assert_same_trees(again[2:4], model[2:4])
    with pytest.raises(ValueError, match="warm_start=True keeps rounds of 3 trees for each output, but n_parallel_trees is 7"):
        model.set_params(warm_start=True, n_estimators=12).fit(X, y)
    assert_same_trees(again.set_params(warm_start=True, n_estimators=12).fit(X, y), make(kind, **THREE, n_estimators=12).fit(X, y))
    first = make(kind, **THREE, early_stopping_rounds=1, learning_rate=1.0, n_estimators=30).fit(X[::2], y[::2], eval_set=[(X, y)])
    assert len(trees(first)) == (first.best_iteration_ + 1) * first.n_trees_per_iteration_


@pytest.mark.parametrize(
    ("kind", "y", "parameters"),
    [(Regressor, SIGNAL, {}), (Classifier, LABELS, {}), pytest.param(Regressor, SIGNAL, {"loss": "huber"}, marks=pytest.mark.slow)],
)
def test_leaves_are_refitted_round_by_round(kind, y, parameters):
    model = make(kind, n_parallel_trees=3, **parameters).fit(X, y, WEIGHT)
    again = model.refit_leaves(X, y, WEIGHT, decay=0.0)
    assert_same_trees(again, model)
    assert_array_equal(again.train_score_, model.train_score_)
    assert_array_equal(model.refit_leaves(X[::2], y[::2])[:3].predict(X), model[:3].refit_leaves(X[::2], y[::2]).predict(X))


def test_lazy_rows():
    model, lazy = make(Classifier, **THREE).fit(X, LABELS), da.from_array(X, chunks=(100, 5))
    assert_array_equal(np.asarray(model.predict_proba(lazy)), model.predict_proba(X))
    assert_array_equal(np.asarray(model.apply(lazy)), model.apply(X).reshape(N, -1))


def gap_to_xgboost(kind, y, learning_rate, n_parallel):
    """Return the largest difference from XGBoost's raw predictions, relative to their range, where nothing is drawn."""
    xgboost = pytest.importorskip("xgboost")
    common = {"n_estimators": 6, "learning_rate": learning_rate, "max_depth": 3, "reg_lambda": 1.0, "min_child_weight": 1.0}
    classify, single = kind is Classifier, FULL.astype(np.float32)
    theirs = (xgboost.XGBClassifier if classify else xgboost.XGBRegressor)(
        num_parallel_tree=n_parallel, tree_method="exact", base_score=float(np.mean(y)), n_jobs=1, **common
    ).fit(single, y.astype(float))
    ours = kind(n_parallel_trees=n_parallel, min_samples_leaf=1, split_shrinkage=0.0, max_features=None, **common).fit(single, y)
    wanted = theirs.predict(single, output_margin=True)
    return np.abs((ours.decision_function if classify else ours.predict)(single) - wanted).max() / np.ptp(wanted)


@pytest.mark.filterwarnings("ignore:n_parallel_trees=. has no effect")
@pytest.mark.parametrize(("kind", "y"), [(Regressor, SIGNAL), (Classifier, SIGNAL > 0)])
@pytest.mark.parametrize("learning_rate", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("n_parallel", [1, 2, 5])
def test_without_draws_predictions_are_xgboosts(kind, y, learning_rate, n_parallel):
    """Each of K equal trees gets 1/K of the learning rate; XGBoost computes in float32."""
    assert gap_to_xgboost(kind, y, learning_rate, n_parallel) < 1e-5


@pytest.mark.filterwarnings("ignore:n_parallel_trees=. has no effect")
@pytest.mark.parametrize("wrong", [1.0, 2.0**-0.5, 0.25])
def test_another_share_of_the_learning_rate_is_not_xgboosts(wrong, monkeypatch):
    """The comparison tells 1/2 from other factors for two trees."""
    monkeypatch.setattr(BoostingPlan, "shrinkage", property(lambda plan: plan.learning_rate * wrong))
    assert gap_to_xgboost(Regressor, SIGNAL, 0.3, 2) > 0.02


def test_as_good_as_xgboosts():
    """Held-out errors of boosted forests, which are better than those of one tree a round for few rounds with long steps."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4000, 8))
    y = rows[:, 0] * rows[:, 1] + np.sin(3 * rows[:, 2]) + rng.normal(scale=0.5, size=4000)
    common = {"n_estimators": 12, "learning_rate": 0.5, "max_depth": 6, "subsample": 0.5, "reg_lambda": 1.0, "random_state": 0}
    errors = {}
    for n in (1, 8):
        ours = Regressor(n_parallel_trees=n, max_features=0.7, min_child_weight=1.0, min_samples_leaf=1, **common)
        theirs = xgboost.XGBRegressor(num_parallel_tree=n, colsample_bynode=0.7, n_jobs=1, **common)
        for name, model in (("ours", ours), ("theirs", theirs)):
            errors[name, n] = np.sqrt(np.mean((model.fit(rows[:2000], y[:2000]).predict(rows[2000:]) - y[2000:]) ** 2))
    assert errors["ours", 8] < 0.95 * errors["ours", 1]
    assert errors["ours", 8] < 1.03 * errors["theirs", 8]
