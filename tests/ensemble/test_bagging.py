"""Bags of boosters, compared with a fit of each booster to the whole table, weighted by how often it drew each row."""

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score

import dtrees
from dtrees.ensemble.bagging import rows_of
from dtrees.split.table.columns import presort
from dtrees.split.table.sparse_columns import presort_sparse

N = 150
RNG = np.random.default_rng(0)
X = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.integers(0, 9, N), "c": RNG.choice(["x", "y", "z"], N), "d": RNG.normal(size=N)})
X.loc[RNG.random(N) < 0.1, "a"] = np.nan
SIGNAL = X["a"].fillna(0) + X["b"] / 3 + (X["c"] == "y") + RNG.normal(size=N) / 5
LABELS = np.digitize(SIGNAL, [0.5, 1.8])
WEIGHT = RNG.integers(0, 4, N) / 2
REGRESSOR = dtrees.GradientBoostingRegressor(n_estimators=4, max_depth=3, subsample=0.8, n_iter_no_change=3, max_features=0.5)
CLASSIFIER = dtrees.GradientBoostingClassifier(n_estimators=3, max_depth=3, class_weight="balanced", min_child_weight=0.1)

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")


def outputs(model, table):
    return model.predict_proba(table) if hasattr(model, "classes_") else model.predict(table)


@pytest.mark.parametrize(
    ("bag", "y", "weight"),
    [
        (dtrees.BaggingRegressor(REGRESSOR, 5, oob_score=True, random_state=1), SIGNAL, None),
        (dtrees.BaggingRegressor(REGRESSOR, 3, max_samples=0.5, oob_score=True, random_state=2), SIGNAL, WEIGHT),
        (dtrees.BaggingRegressor(REGRESSOR, 3, max_samples=60, bootstrap=False, random_state=3), SIGNAL, WEIGHT),
        (dtrees.BaggingRegressor(REGRESSOR, 3, oob_score=True, random_state=4), np.column_stack([SIGNAL, -(SIGNAL**2)]), None),
        (dtrees.BaggingClassifier(CLASSIFIER, 5, oob_score=True, random_state=5), LABELS, WEIGHT),
    ],
    ids=["regression", "weights", "without replacement", "several targets", "classes"],
)
def test_boosters_are_fits_to_what_they_drew(bag, y, weight):
    bag = clone(bag).fit(X, y, weight)
    total, outside, n_outside = 0.0, 0.0, np.zeros(N)
    for booster, rows in zip(bag.estimators_, bag.estimators_samples_, strict=True):
        counts = np.bincount(rows, minlength=N)
        if bag.max_samples == 0.5:
            assert counts.sum() == int(0.5 * np.count_nonzero(WEIGHT))
        if not bag.bootstrap:
            assert counts.max() == 1
            assert counts.sum() == 60
        if weight is not None:
            assert not counts[WEIGHT == 0].any()
        own = counts * weight if weight is not None and not bag.bootstrap else counts
        twin = clone(bag.estimator).set_params(random_state=booster.random_state).fit(X, y, own)
        predicted = outputs(twin, X)
        assert_array_equal(outputs(booster, X), predicted)
        total, n_outside = total + predicted, n_outside + (counts == 0)
        outside = outside + np.where((counts == 0).reshape(-1, *[1] * (predicted.ndim - 1)), predicted, 0.0)
    assert len({booster.random_state for booster in bag.estimators_}) == len(bag.estimators_)
    assert_array_equal(outputs(bag, X), total / len(bag.estimators_))
    if bag.oob_score:
        mean = (outside.T / np.maximum(n_outside, 1)).T
        assert_array_equal(bag.oob_decision_function_ if hasattr(bag, "classes_") else bag.oob_prediction_, mean)
        score = accuracy_score(y, mean.argmax(axis=1)) if hasattr(bag, "classes_") else r2_score(y, mean)
        assert bag.oob_score_ == pytest.approx(score, rel=1e-12)


def test_predictions_and_scores_are_scikit_learns():
    """Compared with scikit-learn's bags of the same boosters."""
    table = X.drop(columns="c").to_numpy()
    for kind, theirs, estimator, y in (
        (dtrees.BaggingRegressor, sklearn.ensemble.BaggingRegressor, REGRESSOR, SIGNAL),
        (dtrees.BaggingClassifier, sklearn.ensemble.BaggingClassifier, CLASSIFIER, np.array(["low", "mid", "top"])[LABELS]),
    ):
        ours = kind(estimator, 3, random_state=0).fit(table, y)
        other = theirs(estimator, 3).fit(table, y)
        other.estimators_ = ours.estimators_
        np.testing.assert_allclose(outputs(other, table), outputs(ours, table), rtol=1e-12)
        assert_array_equal(other.predict(table), ours.predict(table))
        assert other.score(table, y) == ours.score(table, y)


def test_a_sparse_table_gives_the_same_bag():
    table = np.where(RNG.random((N, 4)) < 0.6, 0.0, RNG.normal(size=(N, 4)).round(1))
    bag = dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(n_estimators=20), 3, oob_score=True, random_state=0)
    dense, sparse = (clone(bag).fit(it, SIGNAL) for it in (table, csr_array(table)))
    assert_array_equal(dense.oob_prediction_, sparse.oob_prediction_)
    assert_array_equal(dense.predict(table), sparse.predict(csr_array(table)))
    by_columns = csr_array(table).tocsc()
    columns = presort_sparse(by_columns.data, by_columns.indices, by_columns.indptr, N)
    rows = np.array([0, 5, 149])
    assert_array_equal(rows_of(columns, rows), table[rows])
    assert_array_equal(rows_of(presort(list(table.T)), rows), table[rows])


def test_a_bag_in_a_file(tmp_path):
    for bag, y in (
        (dtrees.BaggingRegressor(REGRESSOR, 2), SIGNAL),
        (dtrees.BaggingClassifier(dtrees.GradientBoostingClassifier(n_estimators=20), 2, oob_score=True), LABELS),
    ):
        bag.fit(X, y)
        dtrees.save(bag, tmp_path / "bag")
        loaded = dtrees.load(tmp_path / "bag")
        assert_array_equal(outputs(loaded, X), outputs(bag, X))
        assert repr(loaded) == repr(bag)
        dtrees.save(bag, tmp_path / "mappable", mappable=True)
        assert_array_equal(outputs(dtrees.load(tmp_path / "mappable", mmap_mode="r"), X), outputs(bag, X))
        assert getattr(loaded, "oob_score_", None) == getattr(bag, "oob_score_", None)
        with pytest.raises(AttributeError, match="from a file"):
            loaded.estimators_samples_  # noqa: B018
        metadata, arrays = bag._to_state()
        for damaged in ({**metadata, "boosters": []}, {**metadata, "boosters": [{}]}, {**metadata, "shared": {}}, {}):
            with pytest.raises(ValueError, match="state"):
                type(bag)._from_state(damaged, arrays)
        own = metadata["estimator"]
        for odd, message in (
            (own | {"max_depth": 7}, "an estimator of other parameters than its boosters"),
            (own | {"subsample": True}, "an estimator of other parameters than its boosters"),
            (own | {"random_state": "now"}, "The 'random_state' parameter"),
            (own | {"max_depth": -1}, "The 'max_depth' parameter"),
        ):
            with pytest.raises(ValueError, match=message):
                type(bag)._from_state({**metadata, "estimator": odd}, arrays)


@pytest.mark.parametrize(
    ("bag", "error", "message"),
    [
        (dtrees.BaggingRegressor(dtrees.RandomForestRegressor()), TypeError, "estimator is RandomForestRegressor.* wants a Grad"),
        (dtrees.BaggingRegressor(CLASSIFIER), TypeError, "estimator is GradientBoostingClassifier.* wants a GradientBoostingRegressor"),
        (dtrees.BaggingRegressor(bootstrap=False, oob_score=True), ValueError, "oob_score=True .* bootstrap=True"),
        (dtrees.BaggingRegressor(clone(REGRESSOR).set_params(init=clone(REGRESSOR))), ValueError, "estimator has init="),
        (dtrees.BaggingRegressor(clone(REGRESSOR).set_params(early_stopping_rounds=3)), ValueError, "early_stopping_rounds=3, .* eval_set"),
        (dtrees.BaggingRegressor(clone(REGRESSOR).set_params(max_depth=0)), ValueError, "'max_depth' parameter of GradientBoosting"),
        (dtrees.BaggingRegressor(max_samples=1.5), ValueError, "'max_samples' parameter of BaggingRegressor"),
    ],
    ids=range(7),
)  # fmt: skip
def test_what_a_bag_cannot_do(bag, error, message):
    with pytest.raises(error, match=message):
        bag.fit(X.drop(columns="c"), SIGNAL)
    assert not hasattr(bag, "estimators_")


def test_a_callback_ends_a_bag():
    seen = []
    bag = dtrees.BaggingRegressor(REGRESSOR, 5, random_state=0).fit(
        X, SIGNAL, callbacks=[lambda progress: seen.append(progress.done) or progress.done == 2]
    )
    assert seen == [1, 2]
    assert len(bag.estimators_) == 2


def test_an_interrupted_bag_keeps_its_boosters_if_asked_to():
    def interrupt(progress):
        if progress.done == 2:
            raise KeyboardInterrupt

    bag = dtrees.BaggingRegressor(REGRESSOR, 5, oob_score=True, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        bag.fit(X, SIGNAL, callbacks=[interrupt])
    assert not hasattr(bag, "estimators_")
    with pytest.warns(UserWarning, match="n_estimators is 2"):
        bag.fit(X, SIGNAL, callbacks=[interrupt, dtrees.KeepOnInterrupt()])
    assert_array_equal(bag.predict(X), clone(bag).set_params(n_estimators=2).fit(X, SIGNAL).predict(X))


def test_a_bag_without_splits_warns():
    with pytest.warns(UserWarning, match="no tree found a split"):
        dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(n_estimators=2, min_samples_leaf=100), 2).fit(X, SIGNAL)


@pytest.mark.parametrize("size", [1e-3, 1e16])
def test_draws_do_not_depend_on_the_size_of_weights(size):
    bag = dtrees.BaggingRegressor(REGRESSOR, 2, random_state=0)
    assert_array_equal(bag.fit(X, SIGNAL, np.full(N, size)).predict(X), bag.fit(X, SIGNAL, np.full(N, 1.0)).predict(X))
    assert [len(rows) for rows in bag.estimators_samples_] == [N, N]


def test_a_booster_that_draws_a_single_class():
    """It predicts that class; the bag is refused only if y has a single class."""
    rare = np.where(np.arange(len(X)) < 2, "rare", "often")
    bag = dtrees.BaggingClassifier(dtrees.GradientBoostingClassifier(n_estimators=3), 12, random_state=0).fit(X, rare)
    drawn = [set(rare[rows]) for rows in bag.estimators_samples_]
    assert {"often"} in drawn
    for booster, classes in zip(bag.estimators_, drawn, strict=True):
        assert booster.classes_.tolist() == ["often", "rare"]
        if classes == {"often"}:
            assert_allclose(booster.predict_proba(X)[:, 0], 1.0)
    assert 0 < bag.predict_proba(X)[0, 1] < 1
    with pytest.raises(ValueError, match=r"y contains 1 class\(es\) with a weight above zero"):
        bag.fit(X, rare, sample_weight=(rare == "often").astype(float))


def test_threads_leave_no_trace_in_boosters(tmp_path):
    files = []
    for n_jobs in (1, 3):
        bag = dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(n_estimators=3), 2, random_state=0, n_jobs=n_jobs).fit(X, SIGNAL)
        dtrees.save(bag.set_params(n_jobs=None), tmp_path / "bag")
        files.append((tmp_path / "bag").read_bytes())
        assert [booster.n_jobs for booster in bag.estimators_] == [None, None]
    assert files[0] == files[1]
