from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import sklearn.ensemble
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from tests.ensemble.samples import (
    BOOSTING,
    LABELS,
    SIGNAL,
    WEIGHT,
    N,
    X,
    is_classifier,
    make,
    target,
)


def test_shapes_of_leaves_of_boosting():
    assert make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL).apply(X).shape == (N, 8)
    assert make(dtrees.GradientBoostingClassifier).fit(X, SIGNAL > 0).apply(X).shape == (N, 8, 1)
    model = make(dtrees.GradientBoostingClassifier).fit(X, LABELS)
    leaves = model.apply(X)
    assert leaves.shape == (N, 8, 3)
    for i, j in ((0, 0), (3, 1), (7, 2)):
        assert_array_equal(leaves[:, i, j], model.estimators_[i, j].apply(X))


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_boosting_is_the_sum_of_its_trees(kind):
    model = make(kind).fit(X, target(kind))
    raw = model.decision_function(X) if is_classifier(kind) else model.predict(X)[:, np.newaxis]
    steps = [[tree.predict(X) for tree in round_] for round_ in model.estimators_]
    if is_classifier(kind):
        start = np.log(model.init_.predict_proba(X))
        assert_allclose(start, np.tile(model._trees.initial, (N, 1)))
    else:
        start = model.init_.predict(X)[:, np.newaxis]
    assert_allclose(start + model.learning_rate * np.sum(steps, axis=0).T, raw)


def test_members_of_boosting_are_scikit_learns():
    ours = make(dtrees.GradientBoostingRegressor, learning_rate=0.25, reg_lambda=0.0, max_features=None, max_depth=2)
    theirs = sklearn.ensemble.GradientBoostingRegressor(learning_rate=0.25, n_estimators=8, max_depth=2)
    filled = np.nan_to_num(X)
    ours, theirs = ours.fit(filled, SIGNAL), theirs.fit(filled, SIGNAL)
    for one, other in zip(ours.estimators_.ravel(), theirs.estimators_.ravel(), strict=True):
        assert one.tree_.value.shape == other.tree_.value.shape
        assert_allclose(one.predict(filled), other.predict(filled), atol=1e-9)
    assert_allclose(ours.init_.predict(X), theirs.init_.predict(filled))
    model = make(dtrees.GradientBoostingRegressor, learning_rate=0.0).fit(X, SIGNAL)
    assert not np.any([tree.predict(X) for tree in model.estimators_.ravel()])


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_members_of_boosting_cannot_be_assigned(kind):
    model = make(kind).fit(X, target(kind))
    with pytest.raises(AttributeError, match="estimators_ of boosting cannot be assigned"):
        model.estimators_ = model.estimators_[:3]
    with pytest.raises(ValueError, match="read-only"):
        model.estimators_[0, 0] = model.estimators_[1, 0]
    assert model.estimators_[1, 0] is model.estimators_[1, 0]
    before = model.estimators_[1, 0].predict(X)
    assert_allclose(model.set_params(learning_rate=0.3).estimators_[1, 0].predict(X), before / 2)


def test_boosting_with_two_classes():
    model = make(dtrees.GradientBoostingClassifier).fit(X, SIGNAL > 0)
    assert model.estimators_.shape == (8, 1)
    odds = model.decision_function(X)
    assert odds.shape == (N,)
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-odds)))


@pytest.mark.parametrize("y", [SIGNAL, SIGNAL > 0, LABELS], ids=["regression", "binary", "multinomial"])
def test_staged_predictions_end_in_the_prediction(y):
    kind = dtrees.GradientBoostingClassifier if y.dtype.kind in "bU" else dtrees.GradientBoostingRegressor
    model = make(kind).fit(X, y)
    methods = ["predict"] + (["predict_proba", "decision_function"] if is_classifier(kind) else [])
    for method in methods:
        stages = list(getattr(model, f"staged_{method}")(X))
        assert len(stages) == 8
        assert_array_equal(stages[-1], getattr(model, method)(X))
        for n_estimators in (1, 5):
            assert_array_equal(stages[n_estimators - 1], getattr(make(kind, n_estimators=n_estimators).fit(X, y), method)(X))


def test_training_scores_are_mean_losses():
    model = make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, WEIGHT)
    losses = [np.average((stage - SIGNAL) ** 2, weights=WEIGHT) for stage in model.staged_predict(X)]
    assert_allclose(model.train_score_, losses, rtol=1e-9)


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_early_stopping(kind):
    model = make(kind, n_estimators=500, n_iter_no_change=3, learning_rate=0.5, tol=0.0).fit(X, target(kind))
    assert model.n_estimators_ < 500
    assert len(model.estimators_) == len(model.train_score_) == len(model.validation_score_) == model.n_estimators_
    assert model.validation_score_.argmin() == model.n_estimators_ - 4
    assert not hasattr(make(kind).fit(X, target(kind)), "validation_score_")


@pytest.mark.parametrize(
    ("y", "learning_rate"), [(SIGNAL, 1000.0), (SIGNAL, 1e300), (SIGNAL > 0, 1e307), (LABELS, 1e307)], ids=lambda case: str(case)[:10]
)
def test_a_fit_that_diverges_ends_with_an_error_that_names_the_cause(y, learning_rate):
    kind = dtrees.GradientBoostingRegressor if y is SIGNAL else dtrees.GradientBoostingClassifier
    message = rf"boosting has diverged: .*after round \d+.* a smaller learning_rate than {re.escape(str(learning_rate))}"
    model = make(kind, learning_rate=learning_rate, n_estimators=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, eval_set=[(X, y)])
    assert not hasattr(model, "train_score_")


@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_a_leaf_that_is_to_weigh_more_than_any_can():
    for weight in (None, WEIGHT):
        for y, kind in ((SIGNAL, dtrees.GradientBoostingRegressor), (LABELS, dtrees.GradientBoostingClassifier)):
            model = make(kind, min_child_weight=1e300).fit(X, y, weight)
            assert all(tree.tree_.node_count == 1 for tree in model.estimators_.ravel())


def test_a_penalty_that_leaves_no_room_for_hessians():
    for weight in (None, WEIGHT):
        total = len(X) if weight is None else weight.sum()
        model = make(dtrees.GradientBoostingRegressor, max_depth=2, reg_lambda=1e15 * total).fit(X, SIGNAL, weight)
        like = make(dtrees.GradientBoostingRegressor, max_depth=2, reg_lambda=1e9).fit(X, SIGNAL, weight)
        tree, twin = model.estimators_[0, 0].tree_, like.estimators_[0, 0].tree_
        assert_array_equal(tree.threshold, twin.threshold)
        assert_array_equal(tree.weighted_n_node_samples, twin.weighted_n_node_samples)
        with pytest.raises(ValueError, match=r"reg_lambda is 1e\+140, but all rows together weigh .*; wants at most 1e\+15 times"):
            model.set_params(reg_lambda=1e140).fit(X, SIGNAL, weight)
    with pytest.raises(ValueError, match="reg_lambda is 5, but all rows together weigh 3e-20"):
        make(dtrees.GradientBoostingClassifier, class_weight=dict.fromkeys(np.unique(LABELS), 1e-22)).fit(X, LABELS)


@pytest.mark.parametrize("max_leaf_nodes", [None, 20])
def test_columns_of_a_level_are_drawn_once(max_leaf_nodes):
    """Two of six, of the eight that a tree sees; another two on the next level, and in the next tree."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(2000, 8))
    model = dtrees.GradientBoostingRegressor(
        n_estimators=12, max_leaf_nodes=max_leaf_nodes, colsample_bytree=0.75, colsample_bylevel=0.4, random_state=1
    ).fit(columns, np.sin(columns).sum(axis=1))
    seen = set()
    for (member,) in model:
        tree, inner = member.tree_, member.tree_.feature >= 0
        used = [frozenset(tree.feature[inner & (tree.node_depth == depth)]) for depth in range(1, 6)]
        assert max(map(len, used)) <= 2
        assert len(set(used)) > 2
        assert len(frozenset.union(*used)) <= 6
        seen |= set(used)
    assert len(seen) > 10
    assert model.max_features_ == 2
    by_node = dtrees.GradientBoostingRegressor(n_estimators=1, max_features=2, random_state=1).fit(columns, columns.sum(axis=1))
    tree = by_node.estimators_[0, 0].tree_
    assert len(set(tree.feature[(tree.node_depth == 4) & (tree.feature >= 0)])) > 2


def test_columns_are_drawn_for_levels_or_for_nodes():
    with pytest.raises(ValueError, match="max_features=3 draws columns for each node, colsample_bylevel=0.5 for each level"):
        make(dtrees.GradientBoostingRegressor, colsample_bylevel=0.5).fit(X, SIGNAL)
    with pytest.raises(ValueError, match="'colsample_bylevel' parameter of .* must be a float in the range"):
        make(dtrees.GradientBoostingClassifier, colsample_bylevel=0.0).fit(X, LABELS)
