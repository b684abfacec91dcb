"""``min_split_gain`` and ``reg_alpha`` of the boosting estimators."""

from __future__ import annotations

import numpy as np
import pytest

import dtrees
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, X, assert_same_trees, make, trees

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier


def kept(tree, least):
    """What of a tree remains if splits of less gain are not made: columns and thresholds, -2 for leaves, in preorder."""

    def walk(node):
        if tree.feature[node] < 0 or tree.gain[node] < least:
            return [(-2, -2.0)]
        own = (int(tree.feature[node]), float(tree.threshold[node]))
        return [own, *walk(tree.children_left[node]), *walk(tree.children_right[node])]

    return walk(0)


@pytest.mark.parametrize("least", [0.5, 3.0, 20.0, 1e6])
@pytest.mark.parametrize(("kind", "y"), [(Regressor, SIGNAL), (Classifier, LABELS)], ids=["values", "classes"])
@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_splits_of_less_gain_are_not_made(kind, y, least):
    """Which split of a node is best does not depend on the least gain: the tree is the top of the one without."""
    free = make(kind, n_estimators=1, max_features=None).fit(X, y, WEIGHT)
    bound = make(kind, n_estimators=1, max_features=None, min_split_gain=least).fit(X, y, WEIGHT)
    for tree, whole in zip(trees(bound), trees(free), strict=True):
        assert list(zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True)) == kept(whole, least)
    several = make(kind, min_split_gain=least).fit(X, y, WEIGHT)
    gains = np.concatenate([tree.gain[tree.feature >= 0] for tree in trees(several)])
    assert (gains >= least * (1 - 1e-12)).all()


def test_the_larger_of_two_bounds_counts():
    weight = float(len(X))
    for absolute, relative in ((8.0, 1.0 / weight), (1.0, 8.0 / weight)):
        both = make(Regressor, min_split_gain=absolute, min_impurity_decrease=relative).fit(X, SIGNAL)
        assert_same_trees(both, make(Regressor, min_split_gain=8.0).fit(X, SIGNAL))


def test_no_penalty_is_no_other_criterion():
    plain = make(Regressor).fit(X, SIGNAL)
    assert_same_trees(make(Regressor, reg_alpha=0.0, min_split_gain=0.0, min_weight_fraction_leaf=0.0).fit(X, SIGNAL), plain)
    for name in ("reg_alpha", "min_split_gain"):
        with pytest.raises(ValueError, match=f"The '{name}' parameter"):
            make(Regressor, **{name: -1.0}).fit(X, SIGNAL)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "y"), [(Regressor, SIGNAL), (Classifier, LABELS)], ids=["values", "classes"])
def test_values_are_moved_towards_zero(kind, y):
    model = make(kind, reg_alpha=5.0, reg_lambda=1.0, n_estimators=1, learning_rate=1.0, max_features=None).fit(X, y)
    free = make(kind, reg_alpha=1e9, n_estimators=2)
    with pytest.warns(UserWarning, match="no tree found a split"):
        free.fit(X, y)
    assert all(tree.node_count == 1 and tree.value[0, 0] == 0.0 for tree in trees(free))
    if kind is Regressor:
        (tree,) = trees(model)
        at = model.apply(X)[:, 0]
        for leaf in np.unique(at):
            g = (SIGNAL.mean() - SIGNAL)[at == leaf].sum()
            wanted = -np.sign(g) * max(abs(g) - 5.0, 0.0) / ((at == leaf).sum() + 1.0)
            assert tree.value[leaf, 0] == pytest.approx(wanted, rel=1e-9, abs=1e-12)
