from __future__ import annotations

import numpy as np
import pytest
import sklearn.tree
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.tree.tree import Tree
from tests.ensemble.samples import LABELS, SIGNAL, X


@pytest.mark.parametrize("y", [SIGNAL, LABELS], ids=["regression", "classification"])
def test_a_tree_has_the_shapes_of_scikit_learns(y):
    kind = "DecisionTreeRegressor" if y is SIGNAL else "DecisionTreeClassifier"
    filled = np.nan_to_num(X)
    ours = getattr(dtrees, kind)(max_depth=3).fit(filled, y).tree_
    theirs = getattr(sklearn.tree, kind)(max_depth=3, random_state=0).fit(filled, y).tree_
    for name in ("children_left", "children_right", "feature", "n_node_samples", "n_classes"):
        assert_array_equal(getattr(ours, name), getattr(theirs, name))
    for name in ("value", "impurity", "weighted_n_node_samples"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape
        assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)
    for name in ("node_count", "n_leaves", "max_depth", "n_features", "n_outputs", "max_n_classes"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_a_tree_cannot_be_changed_by_its_arrays():
    model = dtrees.DecisionTreeRegressor(max_depth=3).fit(X, SIGNAL)
    for name in (*Tree.ARRAYS, "node_depth"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(model.tree_, name)[:] = 0
    assert model.predict(X).any()
