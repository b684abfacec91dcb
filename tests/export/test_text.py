"""Trees as text, against scikit-learn's text and against the rows that go each way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import sklearn.tree
from sklearn.exceptions import NotFittedError

import dtrees
from dtrees import export_text
from dtrees.node_texts import Branches
from tests.ensemble.samples import LABELS, SIGNAL, X

KINDS = ["DecisionTreeRegressor", "DecisionTreeClassifier", "ExtraTreeRegressor", "ExtraTreeClassifier"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_depth": 0},
        {"max_depth": 1, "spacing": 1},
        {"decimals": 0},
        {"show_weights": True, "decimals": 4},
        {"feature_names": list("abcde")},
    ],
)
def test_trees_of_numbers_read_as_scikit_learns(kind, depth, options):
    tree = getattr(dtrees, kind)(max_depth=depth, random_state=0).fit(np.nan_to_num(X), LABELS if kind.endswith("Classifier") else SIGNAL)
    assert export_text(tree, **options) == sklearn.tree.export_text(tree, **options)


def test_large_thresholds_are_short():
    tree = dtrees.DecisionTreeRegressor().fit([[1.0], [np.inf]], [1.0, 2.0])
    assert export_text(tree).splitlines()[0] == "|--- feature_0 <= 9e+307"


def test_class_names():
    tree = dtrees.DecisionTreeClassifier(max_depth=2).fit(X, LABELS)
    names = [f"kind {k}" for k in range(len(tree.classes_))]
    assert "class: kind 0" in export_text(tree, class_names=names)
    with pytest.raises(ValueError, match=r"class_names has shape \(1,\); wants"):
        export_text(tree, class_names=["one"])


def people(seed=0, n=400):
    """Columns of text, of ordered categories and of numbers, all with missing values."""
    rng = np.random.default_rng(seed)
    job = rng.choice(["baker", "cook", "miller", "smith", "tailor", None], n)
    size = pd.Categorical(rng.choice(["large", "medium", "small"], n), ["small", "medium", "large"], ordered=True)
    frame = pd.DataFrame({"job": job, "size": size, "age": np.where(rng.random(n) < 0.2, np.nan, rng.integers(20, 60, n))})
    y = (
        frame["job"].isin(["cook", "smith"]) * 3.0
        + frame["job"].isna() * 5
        + frame["age"].isna() * 2
        + (frame["size"] == "large")
        + rng.random(n)
    )
    return frame, y.to_numpy()


def goes(frame, text):
    """Tell which rows a branch is taken by, as its text says."""
    name, test = text.split(" ", 1)
    or_missing, column = test.endswith(" or missing"), frame[name]
    test = test.removesuffix(" or missing")
    if test in ("is missing", "is not missing"):
        return (column.isna() if test == "is missing" else column.notna()).to_numpy()
    missing = column.isna().to_numpy()
    if "{" in test:
        word, names = test.split(" {")
        taken = column.isin(names.rstrip("}").split(", ")).to_numpy() == (word == "in")
    else:
        sign, threshold = test.split()
        taken = (column <= float(threshold)) if sign == "<=" else (column > float(threshold))
        taken = taken.to_numpy()
    return np.where(missing, or_missing, taken)


@pytest.mark.parametrize("categorical_features", ["from_dtype", None, ["job"]])
def test_rows_go_where_the_text_says(categorical_features):
    frame, y = people()
    every_set = {"min_samples_category": 1, "cat_smooth": 0} if categorical_features is not None else {}
    tree = dtrees.DecisionTreeRegressor(categorical_features=categorical_features, **every_set).fit(frame, y)
    branches = Branches(tree, None, "{:.17f}".format, True, 100)
    path = tree.decision_path(frame).toarray().astype(bool)
    nodes = tree.tree_
    kinds = set()
    lines = export_text(tree, max_depth=100, decimals=17, show_missing=True, max_categories=100)
    for node in np.flatnonzero(nodes.feature >= 0):
        left, right = branches.of(node)
        inside = path[:, node]
        np.testing.assert_array_equal(goes(frame, left) & inside, path[:, nodes.children_left[node]])
        np.testing.assert_array_equal(goes(frame, right) & inside, path[:, nodes.children_right[node]])
        kinds.add("{" in left)
        assert f" {left}\n" in lines
        assert f" {right}\n" in lines
    assert kinds == {True, False}
    assert "nan" not in lines


def test_long_sets_are_cut_short():
    rng = np.random.default_rng(0)
    code = rng.permutation(np.arange(1000) % 200)
    frame = pd.DataFrame({"place": [f"p{c:03}" for c in code]})
    tree = dtrees.DecisionTreeRegressor(max_depth=1, max_cat_threshold=200, min_samples_category=1).fit(frame, (code >= 100) * 1.0)
    text = export_text(tree, max_categories=3)
    assert text.splitlines()[0] == "|--- place in {p000, p001, p002, 97 more}"
    assert tree.tree_.categories_left(0).tolist() == list(range(100))
    assert tree.tree_.categories_left(1) is None
    with pytest.raises(ValueError, match="the nodes of this tree are 0 to 2"):
        tree.tree_.categories_left(3)


def test_members_of_ensembles():
    frame, y = people()
    for kind in (dtrees.RandomForestRegressor, dtrees.GradientBoostingRegressor):
        model = kind(n_estimators=2, max_depth=2, random_state=0).fit(frame, y)
        members = np.ravel(model.estimators_)
        assert "job in {" in "".join(export_text(tree) for tree in members)
        assert [export_text(model, tree_index=i) for i in range(2)] == [export_text(tree) for tree in members]
        with pytest.raises(ValueError, match="tree_index is 2; wants 0 to 1, as there are 2 trees"):
            export_text(model, tree_index=2)


def test_a_deep_tree_needs_no_deep_stack():
    n = 3000
    tree = dtrees.DecisionTreeRegressor().fit(np.arange(n)[:, np.newaxis], 2.0 ** -np.minimum(np.arange(n), 1000.0))
    assert export_text(tree, max_depth=10**6).count("value:") == tree.get_n_leaves()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"feature_names": ["a"]}, ValueError, r"feature_names has shape \(1,\); wants \(5,\)"),
        ({"max_depth": -1}, ValueError, "max_depth is -1; wants at least 0"),
        ({"max_depth": 1.5}, TypeError, "max_depth is 1.5; wants an integer of at least 0"),
        ({"spacing": 0}, ValueError, "spacing is 0; wants at least 1"),
        ({"decimals": True}, TypeError, "decimals is True; wants an integer of at least 0"),
        ({"max_categories": 0}, ValueError, "max_categories is 0; wants at least 1"),
    ],
)
def test_what_cannot_be_used(options, error, message):
    tree = dtrees.DecisionTreeRegressor(max_depth=1).fit(X, SIGNAL)
    with pytest.raises(error, match=message):
        export_text(tree, **options)


def test_what_is_no_tree():
    with pytest.raises(TypeError, match="decision_tree is of type DecisionTreeRegressor; wants an estimator of dtrees"):
        export_text(sklearn.tree.DecisionTreeRegressor())
    with pytest.raises(TypeError, match=r"of type BaggingRegressor; wants .* of a bag, one of its boosters \(estimators_\)"):
        export_text(dtrees.BaggingRegressor())
    with pytest.raises(NotFittedError):
        export_text(dtrees.DecisionTreeRegressor())
