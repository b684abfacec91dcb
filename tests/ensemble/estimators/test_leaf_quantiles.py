"""Quantiles of the targets in the leaves of forests, compared with the definition in fractions, and with the package quantile-forest."""

import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

import dtrees
from dtrees import ExtraTreesRegressor, RandomForestRegressor
from dtrees.ensemble.estimators.intervals import LeafTargets
from tests.ensemble.samples import SIGNAL, WEIGHT, N, X

Q = [0.0, 0.05, 1 / 3, 0.5, 0.9, 1.0]
TIED = SIGNAL.round(0)
SEVERAL = np.column_stack([SIGNAL, TIED])
ROWS = X[:60] + 0.1
KINDS = {
    "drawn": (RandomForestRegressor, {}),
    "on all rows": (RandomForestRegressor, {"bootstrap": False}),
    "few rows drawn": (RandomForestRegressor, {"max_samples": 0.3, "min_samples_leaf": 1}),
    "thresholds at random": (ExtraTreesRegressor, {}),
    "medians": (RandomForestRegressor, {"criterion": "absolute_error", "max_depth": 3}),
}


def make(kind=RandomForestRegressor, **parameters):
    given = {"n_estimators": 9, "min_samples_leaf": 3, "max_features": 2, "keep_targets": True, "random_state": 0}
    return kind(**{**given, **parameters})


def in_bag(forest, weight=None):
    """Return the weights of rows in each tree, as integers."""
    if forest.bootstrap:
        return np.array([np.bincount(rows, minlength=N) for rows in forest.estimators_samples_])
    return np.tile(np.ones(N, int) if weight is None else weight.astype(int), (forest.n_estimators, 1))


def distribution(mine, of_rows, weights):
    """Return the weight of each row for one with these leaves, in fractions; none for trees whose leaf is -1."""
    found, n_trees = [Fraction(0)] * len(of_rows), sum(leaf >= 0 for leaf in mine)
    for leaf, others, weight in zip(mine, of_rows.T, weights, strict=True):
        here = np.flatnonzero((others == leaf) & (weight > 0))
        for row in here.tolist() if leaf >= 0 else ():
            found[row] += Fraction(int(weight[row]), int(weight[here].sum()) * n_trees)
    return found


def quantile(y, weights, q):
    """Return the smallest value up to which at least the share q lies."""
    below = Fraction(0)
    for row in np.argsort(y, kind="stable"):
        below += weights[row]
        if weights[row] and below >= Fraction(q).limit_denominator(1000):
            return y[row]
    raise AssertionError


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == "medians" else ()) for name in KINDS])
@pytest.mark.parametrize(("y", "weight"), [(SIGNAL, None), (TIED, WEIGHT)], ids=["distinct", "tied, weighted"])
def test_they_are_those_of_the_definition(name, y, weight):
    kind, parameters = KINDS[name]
    forest = make(kind, **parameters).fit(X, y, weight)
    found, of_rows, weights = forest.predict_quantiles(ROWS, Q), forest.apply(X), in_bag(forest, weight)
    for leaves, mine in zip(forest.apply(ROWS), found, strict=True):
        shares = distribution(leaves, of_rows, weights)
        assert mine.tolist() == [quantile(y, shares, q) for q in Q]
    assert_array_equal(forest.set_params(n_jobs=3).predict_quantiles(np.tile(ROWS, (20, 1)), Q), np.tile(found, (20, 1)))


def test_the_mean_of_the_distribution_is_the_prediction():
    forest = make().fit(X, SIGNAL)
    of_rows, weights = forest.apply(X), in_bag(forest)
    means = [np.dot([float(share) for share in distribution(leaves, of_rows, weights)], SIGNAL) for leaves in forest.apply(ROWS)]
    assert_allclose(means, forest.predict(ROWS))


def test_forms_of_what_is_asked_for():
    forest = make().fit(X, SIGNAL)
    many = forest.predict_quantiles(ROWS, Q)
    assert_array_equal(forest.predict_quantiles(ROWS, 0.5), many[:, 3])
    assert_array_equal(forest.predict_quantiles(ROWS, Q[::-1]), many[:, ::-1])
    assert_array_equal(forest.predict_quantiles(ROWS, np.array([0.9, 0.9])), many[:, [4, 4]])
    both = make().fit(X, SEVERAL)
    found = both.predict_quantiles(ROWS, Q)
    assert found.shape == (60, 2, len(Q))
    assert_array_equal(both.predict_quantiles(ROWS, 0.9), found[:, :, 4])
    of_rows, weights = both.apply(X), in_bag(both)
    shares = distribution(both.apply(ROWS[:1])[0], of_rows, weights)
    assert found[0].tolist() == [[quantile(y, shares, q) for q in Q] for y in SEVERAL.T]
    zeros = np.where(np.isnan(X) | (np.abs(X) < 0.4), 0.0, X)
    assert_array_equal(
        make().fit(csr_array(zeros), SIGNAL).predict_quantiles(csr_array(zeros), Q), make().fit(zeros, SIGNAL).predict_quantiles(zeros, Q)
    )
    one_row = make(min_samples_leaf=1).fit([[1.0]], [7.0])
    assert one_row.predict_quantiles([[0.0], [np.nan]], [0.1, 0.9]).tolist() == [[7.0, 7.0]] * 2
    table = pd.DataFrame({"a": X[:, 0], "word": np.where(SIGNAL > 0, "high", "low")})
    words = make(min_samples_leaf=30, max_features=None).fit(table, SIGNAL)
    assert words.predict_quantiles(pd.DataFrame({"a": [0.0] * 3, "word": ["low", "high", "unseen"]}), 0.9)[0] <= 0


@pytest.mark.parametrize("n_targets", [1, 2])
def test_models_keep_them_in_files_and_pickles(tmp_path, n_targets):
    y = SIGNAL if n_targets == 1 else SEVERAL
    forest, path = make().fit(X, y, WEIGHT), tmp_path / "forest.dtrees"
    wanted = forest.predict_quantiles(ROWS, Q)
    before = pickle.dumps(make().fit(X, y, WEIGHT))
    for mappable in (False, True):
        dtrees.save(forest, path, mappable=mappable)
        loaded = dtrees.load(path)
        assert_array_equal(loaded.predict_quantiles(ROWS, Q), wanted)
        if n_targets == 1:
            assert_array_equal(loaded.predict_interval(ROWS, 0.8), forest.predict_interval(ROWS, 0.8))
    assert_array_equal(pickle.loads(pickle.dumps(forest)).predict_quantiles(ROWS, Q), wanted)
    assert pickle.dumps(forest) == before  # no method has changed it
    slim = make(keep_targets=False).fit(X, y, WEIGHT)
    assert_array_equal(slim.predict(ROWS), forest.predict(ROWS))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("target", lambda a: a[:-1], "targets of leaves are not those"),
        ("target", lambda a: a * np.nan, "not finite"),
        ("leaves", lambda a: a + 1, "leaves are not those that have targets"),
        ("leaves", lambda a: a * 0 - 1, "belong to no leaf"),
        ("leaves", lambda a: a * 0 + (2**31 - 1), "leaves are not those that have targets"),
        ("leaves", lambda a: a[:-1], "targets of leaves are not those"),
        ("weight", lambda a: a[:, :-1], "weights of targets are not those"),
        ("weight", lambda a: a * 0, "leaves are not those that have targets"),
        ("weight", lambda a: a * np.inf, "weights of targets are not those"),
    ],
)
def test_damaged_files(name, change, message):
    metadata, arrays = make().fit(X, SIGNAL)._to_state()
    key = f"leaf_targets.{name}"
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=message):
        RandomForestRegressor._from_state(metadata, {**arrays, key: change(arrays[key])})


def test_more_trees_slices_and_other_leaves():
    grown = make(n_estimators=4, warm_start=True).fit(X, SIGNAL).set_params(n_estimators=9).fit(X, SIGNAL)
    whole = make().fit(X, SIGNAL)
    assert_array_equal(grown.predict_quantiles(ROWS, Q), whole.predict_quantiles(ROWS, Q))
    assert_array_equal(whole[2:4].predict_quantiles(ROWS, Q), make_from(whole, [2, 3]))
    same = make(n_estimators=4, warm_start=True).fit(X, SIGNAL)
    assert_array_equal(whole[:4].predict_quantiles(ROWS, Q), same.predict_quantiles(ROWS, Q))
    assert_array_equal(whole[:1].predict_interval(ROWS, 0.5), make(n_estimators=1).fit(X, SIGNAL).predict_interval(ROWS, 0.5))
    with pytest.raises(ValueError, match="fit it with keep_targets=True"):
        whole.refit_leaves(X, SIGNAL).predict_quantiles(ROWS, 0.5)
    whole.estimators_ = whole.estimators_[:2]
    with pytest.raises(ValueError, match="fit it with keep_targets=True"):
        whole.predict_quantiles(ROWS, 0.5)
    assert not hasattr(grown.set_params(keep_targets=False, n_estimators=10).fit(X, SIGNAL), "_leaf_targets")


def make_from(forest, trees):
    of_rows, weights = forest.apply(X)[:, trees], in_bag(forest)[trees]
    return [[quantile(SIGNAL, distribution(leaves, of_rows, weights), q) for q in Q] for leaves in forest.apply(ROWS)[:, trees]]


def test_cross_validation_of_a_presorted_table():
    def median_loss(forest, X, y):
        return -np.mean(np.abs(y - forest.predict_quantiles(X, 0.5)))

    found = dtrees.cross_validate(make(), X, SIGNAL, cv=3, scoring=median_loss)["test_score"]
    folds = dtrees.cross_validate(make(), X, SIGNAL, cv=3, return_indices=True, return_estimator=True)
    for score, train, test in zip(found, folds["indices"]["train"], folds["indices"]["test"], strict=True):
        assert score == median_loss(make().fit(X[train], SIGNAL[train]), X[test], SIGNAL[test])


def test_refusals():
    with pytest.raises(ValueError, match="RandomForestRegressor does not know the targets in its leaves .*; fit it with keep_targets=True"):
        make(keep_targets=False).fit(X, SIGNAL).predict_quantiles(X, 0.5)
    forest = make().fit(X, SIGNAL)
    for q in (1.5, -0.1, [0.1, np.nan], [], [[0.5]], "half"):
        with pytest.raises(ValueError, match="q .*wants a number from 0 to 1, or several"):
            forest.predict_quantiles(X, q)
    with pytest.raises(ValueError, match="intervals are of one, so fit a forest for each"):
        make().fit(X, SEVERAL).predict_interval(X)
    with pytest.raises(ValueError, match="fit with bootstrap=True"):
        make(bootstrap=False).fit(X, SIGNAL).predict_interval(X)
    with pytest.raises(ValueError, match=r"coverage is 1.0; wants a number between 0 and 1"):
        forest.predict_interval(X, 1.0)
    for coverage, n_rows in ((0.999, "999"), (0.9999, "9,999")):
        with pytest.raises(ValueError, match=f"wants {n_rows} rows at least to calibrate with, but there are"):
            forest.predict_interval(X, coverage)
    with pytest.raises(NotFittedError):
        make().predict_quantiles(X, 0.5)


# --- the package quantile-forest, on its own trees ---


@pytest.fixture(scope="module")
def peer():
    """Return a forest of the package, and the data that dtrees stores for its trees."""
    package = pytest.importorskip("quantile_forest")
    filled = np.nan_to_num(X).astype(np.float32)
    forest = package.RandomForestQuantileRegressor(20, max_samples_leaf=None, min_samples_leaf=4, random_state=0).fit(filled, SIGNAL)
    counts = np.array([np.bincount(rows, minlength=N) for rows in forest.estimators_samples_], np.uint8)
    kept = LeafTargets(SIGNAL[:, np.newaxis], np.ascontiguousarray(forest.apply(filled).T, np.int32), counts)
    return forest, kept, filled


def test_leaves_hold_what_those_of_quantile_forest_do(peer):
    """The rows, and their counts: its proximity counts are sums of these over trees."""
    forest, kept, filled = peer
    leaves = forest.apply(filled)
    for i, counted in enumerate(forest.proximity_counts(filled)[:50]):
        same = (kept.leaves == leaves[i][:, np.newaxis]) * kept.weight
        assert dict(counted) == {row: total for row, total in enumerate(same.sum(axis=0).tolist()) if total}


def test_quantiles_are_those_of_quantile_forest(peer):
    """It interpolates between positions from 0 to n - 1, as numpy.quantile does by default; ours is one of its two neighbours."""
    forest, _, filled = peer
    alone = type(forest)(1, max_samples_leaf=None, min_samples_leaf=4, random_state=0).fit(filled, SIGNAL)
    counts = np.array([np.bincount(drawn, minlength=N) for drawn in alone.estimators_samples_], np.uint8)
    one_tree = LeafTargets(SIGNAL[:, np.newaxis], np.ascontiguousarray(alone.apply(filled).T, np.int32), counts)
    rows = alone.apply(filled)
    q = [0.05, 0.3, 0.5, 0.77]
    found = one_tree.quantiles(rows, q, 1)[:, 0]
    below, above = (alone.predict(filled, quantiles=q, interpolation=how) for how in ("lower", "higher"))
    assert ((below <= found) & (found <= above)).all()
    # Position i of n has the quantile i / (n - 1) there, and here any between i / n and (i + 1) / n.
    for leaf in np.unique(rows):
        n = int(counts[0, one_tree.leaves[0] == leaf].sum())
        here = np.flatnonzero(rows[:, 0] == leaf)[:1]
        exact = alone.predict(filled[here], quantiles=[i / (n - 1) for i in range(n)], interpolation="nearest")[0]
        assert_array_equal(one_tree.quantiles(rows[here], [(i + 0.5) / n for i in range(n)], 1)[0, 0], exact)
