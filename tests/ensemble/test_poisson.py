"""Trees and forests by Poisson deviance, and Friedman's name for squared error, as scikit-learn has them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import mean_poisson_deviance
from sklearn.tree import DecisionTreeRegressor

import dtrees
from tests.ensemble.samples import SIGNAL, WEIGHT, X, assert_same_trees, make, trees

RATES = np.exp(SIGNAL / 4)
COUNTS = np.random.default_rng(8).poisson(RATES).astype(float)


@pytest.mark.slow  # compiles kernels of its own
def test_trees_are_scikit_learns():
    """As good, that is: where splits tie, scikit-learn takes either."""
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
    assert_same_trees(make(dtrees.RandomForestRegressor, **settings, n_jobs=4).fit(X, COUNTS), model)
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
