"""``ccp_alpha``: as in scikit-learn, for its trees and its boosting; out-of-bag predictions use the pruned trees."""

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
import sklearn.tree
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.tree.pruning import cost, kept_nodes, pruned
from tests.ensemble.samples import KINDS, LABELS, SIGNAL, WEIGHT, X, every_forest, is_classifier, make, target, trees
from tests.plain import regressor
from tests.slow import KERNELS_OF_THEIR_OWN, slow_for

FILLED = np.nan_to_num(X).astype(np.float32)
ALPHAS = {"squared_error": 0.02, "absolute_error": 0.01, "poisson": 0.02, "gini": 0.004, "entropy": 0.01}


def of_both(criterion, **parameters):
    """Return trees of both libraries by a criterion, and their target. They are small: deeper, ties are resolved differently."""
    y = LABELS if criterion in ("gini", "entropy") else SIGNAL - SIGNAL.min() if criterion == "poisson" else SIGNAL
    kind = "DecisionTreeClassifier" if y is LABELS else "DecisionTreeRegressor"
    ours = getattr(dtrees, kind)(criterion=criterion, min_samples_leaf=6, **parameters)
    return ours, getattr(sklearn.tree, kind)(criterion=criterion, min_samples_leaf=6, random_state=0, **parameters), y


@pytest.mark.parametrize("criterion", slow_for(KERNELS_OF_THEIR_OWN, ALPHAS))
def test_the_path_of_a_tree_is_scikit_learns(criterion):
    ours, theirs, y = of_both(criterion)
    path, wanted = (tree.cost_complexity_pruning_path(FILLED, y, WEIGHT) for tree in (ours, theirs))
    assert_allclose(path.ccp_alphas, wanted.ccp_alphas, atol=1e-12)
    assert_allclose(path.impurities, wanted.impurities, atol=1e-12)
    assert path.keys() == wanted.keys()
    assert not hasattr(ours, "tree_")


@pytest.mark.parametrize("criterion", slow_for(KERNELS_OF_THEIR_OWN, ALPHAS))
def test_a_pruned_tree_is_scikit_learns(criterion):
    ours, theirs, y = of_both(criterion, ccp_alpha=ALPHAS[criterion])
    found, wanted = (tree.fit(FILLED, y, WEIGHT).tree_ for tree in (ours, theirs))
    assert 3 < found.node_count < of_both(criterion)[0].fit(FILLED, y, WEIGHT).tree_.node_count
    for name in ("children_left", "children_right", "feature", "n_node_samples"):
        assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert_allclose(found.value, wanted.value, atol=1e-12)


@pytest.mark.parametrize("max_leaf_nodes", [None, 10])
def test_boosting_is_scikit_learns(max_leaf_nodes):
    common = {"n_estimators": 12, "max_depth": 4, "max_leaf_nodes": max_leaf_nodes, "ccp_alpha": 0.06}
    ours = regressor(**common, reg_lambda=0, learning_rate=0.1).fit(FILLED, SIGNAL)
    theirs = sklearn.ensemble.GradientBoostingRegressor(**common).fit(FILLED, SIGNAL)
    sizes = [member.tree_.node_count for member in ours.estimators_.ravel()]
    assert sizes == [member.tree_.node_count for member in theirs.estimators_.ravel()]
    assert min(sizes) < max(sizes)
    assert_allclose(ours.predict(FILLED), theirs.predict(FILLED), atol=1e-12)
    assert_allclose(ours.train_score_, theirs.train_score_, atol=1e-12)


@pytest.mark.parametrize("loss", ["absolute_error", "quantile", "huber", "poisson"])
@pytest.mark.parametrize("max_leaf_nodes", [None, 8])
def test_training_scores_of_boosting_are_those_of_pruned_trees(loss, max_leaf_nodes):
    y = SIGNAL - SIGNAL.min() if loss == "poisson" else SIGNAL
    model = make(
        dtrees.GradientBoostingRegressor, loss=loss, ccp_alpha=0.01, subsample=0.6, max_leaf_nodes=max_leaf_nodes, learning_rate=0.5
    ).fit(X, y)
    whole = make(dtrees.GradientBoostingRegressor, loss=loss, subsample=0.6, max_leaf_nodes=max_leaf_nodes, learning_rate=0.5).fit(X, y)
    assert sum(tree.node_count for tree in trees(model)) < sum(tree.node_count for tree in trees(whole))
    if loss == "absolute_error":
        scores = [np.mean(np.abs(stage - y)) for stage in model.staged_predict(X)]
        assert_allclose(model.train_score_, scores, rtol=1e-9)


@pytest.mark.parametrize(("loss", "q"), [("absolute_error", 0.5), ("quantile", 0.9)])
@pytest.mark.parametrize("max_leaf_nodes", [None, 30])
def test_leaves_that_pruning_made_hold_medians_of_their_rows_in_sample(loss, q, max_leaf_nodes):
    weight = (WEIGHT > 1).astype(float)
    common = {"loss": loss, "learning_rate": 1.0, "n_estimators": 1, "max_leaf_nodes": max_leaf_nodes}
    model = make(dtrees.GradientBoostingRegressor, ccp_alpha=0.03 if q == 0.5 else 0.002, **common).fit(X, SIGNAL, weight)
    (tree,), (whole,) = trees(model), trees(make(dtrees.GradientBoostingRegressor, **common).fit(X, SIGNAL, weight))
    assert 1 < tree.node_count < whole.node_count
    leaves, predicted = model.apply(X)[:, 0], model.predict(X)
    for leaf in np.unique(leaves):
        mine = SIGNAL[(leaves == leaf) & (weight > 0)]
        lower, upper = (np.quantile(mine, q, method=method) for method in ("inverted_cdf", "higher"))
        assert lower - 1e-9 <= predicted[leaves == leaf][0] <= max(lower, upper) + 1e-9


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
@every_forest
@pytest.mark.parametrize("max_leaf_nodes", [None, 30])
def test_a_forest_is_one_of_pruned_trees(kind, max_leaf_nodes):
    """Each is the full tree, pruned; and out-of-bag predictions are the sums of its leaves."""
    common = {"bootstrap": True, "n_estimators": 30, "max_leaf_nodes": max_leaf_nodes}
    whole = make(kind, **common).fit(X, target(kind), WEIGHT)
    alpha = 0.01 if is_classifier(kind) else 0.06
    model = make(kind, **common, ccp_alpha=alpha, oob_score=True).fit(X, target(kind), WEIGHT)
    for tree, small in zip(trees(whole), trees(model), strict=True):
        assert small.equals(pruned(tree, kept_nodes(tree.children_left, tree.children_right, cost(tree), alpha)))
        assert 1 < small.node_count < tree.node_count
    sums = np.zeros((len(X), trees(model)[0].value.shape[1]))
    n_outside = np.zeros(len(X))
    for tree, samples, leaves in zip(trees(model), model.estimators_samples_, model.apply(X).T, strict=True):
        outside = np.setdiff1d(np.arange(len(X)), samples)
        sums[outside] += tree.value[leaves[outside]]
        n_outside[outside] += 1
    sums /= np.maximum(n_outside, 1)[:, np.newaxis]
    assert_allclose(model.oob_decision_function_ if hasattr(model, "classes_") else model.oob_prediction_[:, np.newaxis], sums, atol=1e-9)


def test_members_of_a_forest_have_its_alpha():
    model = make(dtrees.RandomForestRegressor, ccp_alpha=0.1).fit(X, SIGNAL)
    assert model.estimators_[0].ccp_alpha == 0.1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_tree_may_be_pruned_to_its_root_without_a_warning(kind, recwarn):
    model = make(kind, ccp_alpha=1e9).fit(X, target(kind))
    assert {tree.node_count for tree in trees(model)} == {1}
    assert not recwarn.list
    with pytest.raises(ValueError, match="'ccp_alpha' parameter of .* must be a float in the range"):
        make(kind, ccp_alpha=-0.1).fit(X, target(kind))


@pytest.mark.parametrize("kind", [dtrees.RandomForestRegressor, dtrees.GradientBoostingRegressor], ids=lambda kind: kind.__name__)
def test_splits_of_categories_are_pruned(kind):
    rng = np.random.default_rng(0)
    level = rng.integers(0, 40, 4000)
    frame = pd.DataFrame({"level": pd.Categorical(level), "x": rng.normal(size=4000)})
    y = rng.normal(size=40)[level] + frame["x"] + rng.normal(scale=0.3, size=4000)
    own, alpha = {"n_estimators": 3, "random_state": 0}, 0.05 if kind is dtrees.RandomForestRegressor else 0.005
    whole, model = kind(**own).fit(frame, y), kind(ccp_alpha=alpha, **own).fit(frame, y)
    for tree in trees(model):
        tree.validate(2)
    assert any(tree.categories.node.size for tree in trees(model))
    assert trees(model)[0].node_count < trees(whole)[0].node_count
    if kind is dtrees.RandomForestRegressor:
        for tree, small in zip(trees(whole), trees(model), strict=True):
            assert small.equals(pruned(tree, kept_nodes(tree.children_left, tree.children_right, cost(tree), alpha)))
    else:
        assert_allclose(model.train_score_[-1], np.mean((model.predict(frame) - y) ** 2), rtol=1e-9)
