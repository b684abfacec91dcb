import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
import sklearn.tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_array
from sklearn.inspection import partial_dependence

import dtrees
from dtrees.tree.tree import Tree
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, X, every_kind, make, target, trees
from tests.plain import PLAIN


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


KINDS_OF_TREES = ["DecisionTreeRegressor", "DecisionTreeClassifier", "ExtraTreeRegressor", "ExtraTreeClassifier"]


def of_both(kind, **parameters):
    """The same tree of both libraries. scikit-learn grows it from float32."""
    filled = np.nan_to_num(X).astype(np.float32)
    y = LABELS if kind.endswith("Classifier") else SIGNAL
    splitter = {"splitter": "best", "max_features": None, "random_state": 0}
    return [getattr(library, kind)(max_depth=3, **splitter, **parameters).fit(filled, y) for library in (dtrees, sklearn.tree)], filled


@pytest.mark.parametrize("kind", KINDS_OF_TREES)
def test_methods_of_a_tree_are_scikit_learns(kind):
    (ours, theirs), filled = of_both(kind)
    one, other = ours.tree_, theirs.tree_
    assert_array_equal(one.apply(filled), other.apply(filled))
    assert_allclose(one.predict(filled), other.predict(filled), atol=1e-12)
    assert one.predict(filled).shape == other.predict(filled).shape
    assert_array_equal(one.decision_path(filled).toarray(), other.decision_path(filled).toarray())
    for normalize in (True, False):
        assert_allclose(one.compute_feature_importances(normalize), other.compute_feature_importances(normalize), atol=1e-12)
    if kind.endswith("Regressor"):  # scikit-learn's assumes one value for each node
        points, columns = np.ascontiguousarray(filled[:20, [3, 0]]), np.array([3, 0], np.intp)
        sums = np.full(20, 7.0), np.full(20, 7.0)
        for tree, total in zip((one, other), sums, strict=True):
            tree.compute_partial_dependence(points, columns, total)
        assert_allclose(*sums, atol=1e-12)
    with pytest.raises(ValueError, match="X has 4 features, but 5 were seen at fit"):
        one.apply(filled[:, :4])


def test_methods_of_a_tree_know_missing_values():
    model = dtrees.DecisionTreeRegressor(max_depth=5).fit(X, SIGNAL)
    assert np.isnan(X).any()
    assert_array_equal(model.tree_.apply(X), model.apply(X))
    assert_array_equal(model.tree_.predict(X)[:, 0], model.predict(X))
    for form in (csr_array, csc_array):
        assert_array_equal(model.tree_.apply(form(X)), model.apply(X))
        assert_array_equal(model.tree_.decision_path(form(X)).toarray(), model.tree_.decision_path(X).toarray())
    everything = np.zeros(len(X))
    model.tree_.compute_partial_dependence(X, np.arange(5), everything)
    assert_array_equal(everything, model.predict(X))


@pytest.mark.parametrize("kind", KINDS_OF_TREES)
def test_scikit_learn_draws_and_exports_trees(kind):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    models, _ = of_both(kind)
    assert isinstance(models[0], getattr(sklearn.tree, kind))
    names = [f"column {i}" for i in range(5)]
    for export in (
        lambda model: sklearn.tree.export_text(model, feature_names=names, show_weights=True),
        lambda model: sklearn.tree.export_graphviz(model, filled=True, proportion=True, node_ids=True, feature_names=names),
        lambda model: [text.get_text() for text in sklearn.tree.plot_tree(model, filled=True, impurity=False)],
    ):
        ours, theirs = map(export, models)
        assert ours == theirs


def test_scikit_learn_exports_members_of_ensembles():
    for kind in (dtrees.RandomForestClassifier, dtrees.GradientBoostingClassifier):
        model = kind(n_estimators=2, max_depth=2).fit(X, LABELS)
        assert "|---" in sklearn.tree.export_text(np.ravel(model.estimators_)[0])


@pytest.mark.parametrize(
    "kind", ["DecisionTreeRegressor", "RandomForestRegressor", "GradientBoostingRegressor", "GradientBoostingClassifier"]
)
def test_partial_dependence_by_recursion_is_scikit_learns(kind):
    y = LABELS if kind.endswith("Classifier") else SIGNAL
    filled = np.nan_to_num(X).astype(np.float32)
    same = {"max_depth": 3, **({"n_estimators": 4} if "Decision" not in kind else {}), **({"bootstrap": False} if "Forest" in kind else {})}
    own = {**PLAIN, "learning_rate": 0.1, "reg_lambda": 0.0, "min_child_weight": 0.0} if "Boosting" in kind else {}
    ours = getattr(dtrees, kind)(**same, **own).fit(filled, y)
    theirs = getattr(sklearn.tree if "Decision" in kind else sklearn.ensemble, kind)(**same, random_state=0).fit(filled, y)
    found, wanted = (partial_dependence(model, filled, [0, 1], grid_resolution=6, method="recursion").average for model in (ours, theirs))
    assert found.shape == wanted.shape
    assert_array_equal(found, partial_dependence(ours, filled, [0, 1], grid_resolution=6).average)
    if kind != "GradientBoostingClassifier":  # its hessians weigh rows, and its leaves are other steps
        start = ours.init_.predict(filled)[0] if "Boosting" in kind else 0.0  # scikit-learn leaves it out
        assert_allclose(found, wanted + start, atol=1e-12)
    # With all columns, there are no others to average over.
    everything = ours._compute_partial_dependence_recursion(filled, np.arange(5))
    raw = ours.decision_function(filled).T if kind.endswith("Classifier") else ours.predict(filled)
    assert_allclose(np.squeeze(everything), raw, atol=1e-12)


@pytest.mark.parametrize("kind", ["DecisionTreeRegressor", "RandomForestRegressor", "GradientBoostingRegressor"])
def test_partial_dependence_of_categories(kind):
    """The grid holds categories, as X does."""
    frame = pd.DataFrame(
        {
            "code": pd.Categorical(np.repeat([10.0, 20.0, 30.0], 36)),
            "text": np.tile(["low", "high", "middle"], 36),
            "kind": pd.Categorical(np.tile(["x", "x", "x", "y", "y", "y"], 18)),
        }
    )
    level = frame["text"].map({"low": 100.0, "middle": 200.0, "high": 300.0})
    y = frame["code"].astype(float) + level
    some = (
        {"n_estimators": 60} if kind == "GradientBoostingRegressor" else {"n_estimators": 2, "bootstrap": False} if "Forest" in kind else {}
    )
    model = getattr(dtrees, kind)(**some).fit(frame, y)
    # All pairs of categories of the two columns are equally frequent: both ways to average give the same mean.
    for features in (["code"], ["text"], ["code", "text"]):
        names = frame.columns
        fast, slow = (
            partial_dependence(model, frame, features, categorical_features=names, method=method) for method in ("recursion", "brute")
        )
        assert_allclose(fast.average, slow.average, rtol=1e-9)
        if kind != "GradientBoostingRegressor":
            wanted = {"code": [[10.0, 20.0, 30.0]], "text": [[300.0, 100.0, 200.0]]}
            if len(features) == 1:
                assert_allclose(fast.average - fast.average.mean(), wanted[features[0]] - np.mean(wanted[features[0]]), atol=1e-9)
    grid = {"code": [30.0, 10.0, np.nan, 70.0]}
    custom = partial_dependence(model, frame, ["code"], categorical_features=names, method="recursion", custom_values=grid)
    assert custom.average[0, 0] > custom.average[0, 1]
    assert custom.average[0, 2] == custom.average[0, 3]


def test_recursion_is_refused_where_means_of_raw_predictions_mean_something_else():
    model = dtrees.GradientBoostingRegressor(n_estimators=2, loss="poisson").fit(X, np.abs(SIGNAL))
    with pytest.raises(ValueError, match="not predictions with loss='poisson'; pass method='brute'"):
        partial_dependence(model, X, [0])
    assert partial_dependence(model, np.nan_to_num(X), [0], method="brute").average.min() > 0


@pytest.mark.parametrize("kind", [dtrees.DecisionTreeRegressor, dtrees.RandomForestClassifier, dtrees.GradientBoostingClassifier])
def test_importances_by_what_they_count(kind):
    model = make(kind, max_depth=3).fit(X, target(kind), WEIGHT)
    shares = {name: [] for name in ("gain", "split", "cover")}
    for tree in trees(model):
        counted = {name: np.zeros(5) for name in shares}
        for node in range(tree.node_count):
            if tree.feature[node] >= 0:
                for name, amount in (("gain", tree.gain[node]), ("split", 1), ("cover", tree.weighted_n_node_samples[node])):
                    counted[name][tree.feature[node]] += amount
        for name in shares:
            shares[name].append(counted[name] / (1 if kind is dtrees.GradientBoostingClassifier else counted[name].sum()))
    found = {name: model.set_params(importance_type=name).feature_importances_ for name in shares}
    for name, each in shares.items():
        assert_allclose(found[name], np.sum(each, axis=0) / np.sum(each))
    assert len({tuple(importances) for importances in found.values()}) == 3
    with pytest.raises(ValueError, match="'importance_type' parameter of .* must be a str among"):
        make(kind, importance_type="weight").fit(X, target(kind))


def test_methods_of_a_tree_know_categories():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 70, 400)
    frame = pd.DataFrame({"level": pd.Categorical(level), "x": rng.normal(size=400)})
    frame.loc[::9, "level"] = np.nan
    model = dtrees.DecisionTreeRegressor(max_depth=6).fit(frame, rng.normal(size=70)[level] + frame["x"])
    assert model._tree.categories.node.size
    matrix = model._schema.matrix(frame)
    assert_array_equal(model.tree_.apply(matrix), model.apply(frame))
    everything = np.zeros(400)
    model.tree_.compute_partial_dependence(matrix, [0, 1], everything)
    assert_array_equal(everything, model.predict(frame))


@every_kind
def test_a_count_that_there_is_not(kind):
    model = make(kind).fit(X, target(kind)).set_params(importance_type="weight")
    with pytest.raises(ValueError, match="importance_type is 'weight'; wants 'gain', 'split', 'cover'"):
        model.feature_importances_  # noqa: B018


def test_scikit_learn_prints_sets_of_categories():
    frame = pd.DataFrame({"colour": ["red", "green", "blue", "red"] * 9})
    tree = dtrees.DecisionTreeRegressor(max_depth=1, min_samples_category=1).fit(frame, [1.0, 0.0, 1.0, 1.0] * 9)
    left = "{green}" if tree.tree_.categories_left(0).size == 1 else "{blue, red}"
    assert f"colour <= {left}" in sklearn.tree.export_text(tree, feature_names=["colour"])
    assert f"colour <= {left}" in sklearn.tree.export_graphviz(tree, feature_names=["colour"])
    assert f"colour <= {left}" in sklearn.tree.plot_tree(tree, feature_names=["colour"])[0].get_text()
    assert np.isnan(tree.tree_.threshold[0])
    assert np.isnan(tree.tree_.threshold[:1]).all()
    assert np.isnan(np.asarray(tree.tree_.threshold).tolist()[0])
