"""Trees and forests by quantile and by Poisson deviance, and Friedman's name for squared error."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import mean_pinball_loss, mean_poisson_deviance
from sklearn.tree import DecisionTreeRegressor

import dtrees
from tests.ensemble.samples import SIGNAL, WEIGHT, X, assert_same_trees, make, trees
from tests.slow import thorough_for

# --- trees and forests by quantile: leaf values and gains compared with NumPy's quantiles; ``alpha``, files, text ---


KINDS = [dtrees.DecisionTreeRegressor, dtrees.ExtraTreeRegressor, dtrees.RandomForestRegressor, dtrees.ExtraTreesRegressor]
#: Fits compile kernels that no quick test needs.
of_their_own = pytest.mark.slow
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def quantile(y, weight, alpha):
    """NumPy's weighted quantile, the midpoint to the next target if it is exact."""
    one = np.quantile(y, alpha, weights=weight, method="inverted_cdf")
    order = np.argsort(y)
    upto = np.cumsum(weight[order])
    beyond = y[order][np.flatnonzero(upto > float(Fraction(str(alpha)) * int(upto[-1])))[0]]
    return (one + beyond) / 2 if one != beyond else one


def pinball(y, weight, alpha):
    """The weighted sum of pinball losses about the quantile; 0 without rows."""
    return mean_pinball_loss(y, np.full(len(y), quantile(y, weight, alpha)), alpha=alpha, sample_weight=weight) * weight.sum()


@of_their_own
@pytest.mark.parametrize("alpha", [0.5, 0.9, 0.25, 0.01])
def test_leaves_hold_quantiles(alpha):
    rated = WEIGHT > 0
    tree = make(dtrees.DecisionTreeRegressor, criterion="quantile", alpha=alpha, min_samples_leaf=7).fit(X, SIGNAL, WEIGHT)
    leaf = tree.apply(X)
    for number in np.unique(leaf[rated]):
        rows = rated & (leaf == number)
        assert tree.tree_.value[number, 0, 0] == quantile(SIGNAL[rows], WEIGHT[rows], alpha)
        assert tree.tree_.impurity[number] == pytest.approx(pinball(SIGNAL[rows], WEIGHT[rows], alpha) / WEIGHT[rows].sum())
    assert np.mean(tree.predict(X) >= SIGNAL) == pytest.approx(alpha, abs=0.12)


@of_their_own
@pytest.mark.parametrize("alpha", [0.5, 0.9, 0.25, 0.01])
def test_no_cut_gains_more(alpha):
    """Every threshold of every column, with missing values on either side, compared by NumPy's quantiles."""
    rated = WEIGHT > 0
    table, y, weight = X[rated][:90], SIGNAL[rated][:90], WEIGHT[rated][:90]
    tree = dtrees.DecisionTreeRegressor(criterion="quantile", alpha=alpha, max_depth=1).fit(table, y, weight)
    best, whole = 0.0, pinball(y, weight, alpha)
    for column in table.T:
        for threshold in np.unique(column[~np.isnan(column)]):
            for missing_left in (True, False):
                left = np.where(np.isnan(column), missing_left, column <= threshold)
                if 0 < left.sum() < len(y):
                    best = max(best, whole - pinball(y[left], weight[left], alpha) - pinball(y[~left], weight[~left], alpha))
    assert tree._tree.gain[0] == pytest.approx(best, rel=1e-9)


@of_their_own
@pytest.mark.parametrize("kind", thorough_for(KINDS[1::2], KINDS), ids=lambda kind: kind.__name__)
def test_half_is_absolute_error(kind):
    settings = {"max_depth": 6, "random_state": 1}
    half = make(kind, criterion="quantile", alpha=0.5, **settings).fit(X, SIGNAL, WEIGHT)
    median = make(kind, criterion="absolute_error", **settings).fit(X, SIGNAL, WEIGHT)
    for one, other in zip(trees(half), trees(median), strict=True):
        np.testing.assert_array_equal(one.threshold, other.threshold)
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(2 * one.gain, other.gain)
        np.testing.assert_allclose(2 * one.impurity, other.impurity, rtol=1e-12)


@of_their_own
def test_forests_predict_the_mean_of_their_trees_quantiles():
    forest = make(dtrees.RandomForestRegressor, criterion="quantile", alpha=0.8, oob_score=True, n_estimators=30).fit(X, SIGNAL)
    np.testing.assert_allclose(forest.predict(X), np.mean([tree.predict(X) for tree in forest.estimators_], axis=0))
    assert forest.estimators_[0].alpha == 0.8
    assert mean_pinball_loss(SIGNAL, forest.oob_prediction_, alpha=0.8) < 0.5 * pinball(SIGNAL, np.ones(len(X)), 0.8) / len(X)


@of_their_own
def test_pruned_best_first_and_in_order():
    whole = make(dtrees.DecisionTreeRegressor, criterion="quantile", alpha=0.7, max_features=None)
    path = whole.cost_complexity_pruning_path(X, SIGNAL)
    assert path.ccp_alphas[0] == 0
    assert np.all(np.diff(path.impurities) >= -1e-12)
    alpha = path.ccp_alphas[-3]
    assert whole.set_params(ccp_alpha=alpha).fit(X, SIGNAL).get_n_leaves() <= 4
    few = make(dtrees.DecisionTreeRegressor, criterion="quantile", alpha=0.7, max_leaf_nodes=5).fit(X, SIGNAL)
    assert few.get_n_leaves() == 5
    table = np.nan_to_num(X)
    rising = make(dtrees.DecisionTreeRegressor, criterion="quantile", alpha=0.7, monotonic_cst=[-1, 0, 0, 1, 0]).fit(table, SIGNAL)
    grid = np.repeat(table[:40], 50, axis=0).reshape(40, 50, 5)
    for column, sign in ((0, -1), (3, 1)):
        moved = grid.copy()
        moved[:, :, column] = np.linspace(-3, 3, 50)
        assert np.all(sign * np.diff(rising.predict(moved.reshape(-1, 5)).reshape(40, 50), axis=1) >= 0)


@every_kind
def test_alpha_that_cannot_be_or_has_no_effect(kind):
    for alpha in (0.0, 1.0, 2.0):
        with pytest.raises(ValueError, match="The 'alpha' parameter of"):
            make(kind, criterion="quantile", alpha=alpha).fit(X, SIGNAL)
    with pytest.raises(ValueError, match=r"alpha=1e-05 cannot be used with criterion='quantile'; wants 0.0001 to 0.9999"):
        make(kind, criterion="quantile", alpha=1e-5).fit(X, SIGNAL)
    with pytest.warns(UserWarning, match="alpha=0.3 has no effect: it is for criterion='quantile', but criterion is 'friedman_mse'"):
        make(kind, criterion="friedman_mse", alpha=0.3, max_depth=2).fit(X, SIGNAL)


def test_categories_are_taken_for_numbers():
    with pytest.raises(ValueError, match=r"criterion='quantile' cannot be used with categorical_features=\[0\]"):
        dtrees.DecisionTreeRegressor(criterion="quantile", categorical_features=[0]).fit(X, SIGNAL)


@of_their_own
def test_a_file_says_which_quantile():
    model = make(dtrees.RandomForestRegressor, criterion="quantile", alpha=0.2).fit(X, SIGNAL)
    metadata, arrays = model._to_state()
    assert metadata["batches"][0][0]["alpha"] == 0.2
    assert "alpha" not in make(dtrees.RandomForestRegressor).fit(X, SIGNAL)._to_state()[0]["batches"][0][0]
    metadata["batches"][0][0]["alpha"] = 1.0
    with pytest.raises(ValueError, match="alpha=1.0 cannot be used"):
        type(model)._from_state(metadata, arrays)


# --- trees and forests by Poisson deviance, and Friedman's name for squared error, compared with scikit-learn's ---


RATES = np.exp(SIGNAL / 4)
COUNTS = np.random.default_rng(8).poisson(RATES).astype(float)


@pytest.mark.slow  # compiles kernels of its own
def test_trees_are_scikit_learns():
    """They are equally good: if splits tie, scikit-learn may take either."""
    rated, whole = WEIGHT > 0, np.nan_to_num(X)
    for settings in ({"max_depth": 4}, {"min_samples_leaf": 10}, {"max_leaf_nodes": 9}, {"min_impurity_decrease": 0.02}):
        tree = dtrees.DecisionTreeRegressor(criterion="poisson", random_state=0, **settings).fit(whole, COUNTS, WEIGHT)
        theirs = DecisionTreeRegressor(criterion="poisson", random_state=0, **settings).fit(whole[rated], COUNTS[rated], WEIGHT[rated])
        ours, wanted = (mean_poisson_deviance(COUNTS, model.predict(whole), sample_weight=WEIGHT) for model in (tree, theirs))
        assert ours == pytest.approx(wanted, rel=0.02)
        assert tree.tree_.impurity[0] == pytest.approx(theirs.tree_.impurity[0], rel=1e-12)
        leaf = tree.tree_.children_left < 0
        half = np.average(tree.tree_.impurity[leaf], weights=tree.tree_.weighted_n_node_samples[leaf])
        assert 2 * half == pytest.approx(ours, rel=1e-9)


@pytest.mark.slow
def test_forests():
    settings = {"criterion": "poisson", "min_samples_leaf": 5, "n_estimators": 30, "oob_score": True}
    model = make(dtrees.RandomForestRegressor, **settings).fit(X, COUNTS)
    assert mean_poisson_deviance(COUNTS, model.predict(X)) < 0.8 * mean_poisson_deviance(COUNTS, np.full(len(X), COUNTS.mean()))
    random = make(dtrees.ExtraTreesRegressor, criterion="poisson", min_samples_leaf=5).fit(X, COUNTS, WEIGHT)
    assert min(tree.value[tree.n_node_samples >= 5].min() for tree in trees(random)) > 0


def test_targets_that_have_no_deviance_are_refused():
    low = COUNTS.copy()
    low[2] = -1.0
    weight = np.ones(len(X))
    weight[2] = 0.0
    for kind in (dtrees.DecisionTreeRegressor, dtrees.RandomForestRegressor):
        with pytest.raises(ValueError, match=r"criterion='poisson' is for targets that are not negative, but y contains -1.0"):
            make(kind, criterion="poisson").fit(X, low)
        with pytest.raises(ValueError, match="criterion='poisson' is for targets with a mean above zero, but y is zero wherever"):
            make(kind, criterion="poisson").fit(X, 0 * COUNTS)


def test_friedmans_name():
    for kind in (dtrees.DecisionTreeRegressor, dtrees.ExtraTreesRegressor):
        assert_same_trees(make(kind, criterion="friedman_mse").fit(X, SIGNAL, WEIGHT), make(kind).fit(X, SIGNAL, WEIGHT))
