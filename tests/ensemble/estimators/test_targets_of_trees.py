"""Trees and forests of several targets, compared with scikit-learn's."""

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
import sklearn.tree
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.inspection import partial_dependence
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.class_weight import compute_sample_weight

import dtrees
from tests.ensemble.samples import LABELS, RNG, SIGNAL, WEIGHT, N, X, every_forest, is_classifier, make, sklearns, trees
from tests.slow import thorough_for
from tests.tree.trees import naive_leaf

FILLED = np.nan_to_num(X).astype(np.float32).astype(np.float64)
Y = np.column_stack([SIGNAL, 5 * np.sin(3 * FILLED[:, 2]) + FILLED[:, 0], 0.3 * FILLED[:, 3] * FILLED[:, 4] + RNG.normal(size=N)])
#: Targets of three classes, of two, and of four with gaps between their numbers.
CLASSES = np.column_stack([np.digitize(SIGNAL, [0, 2]), SIGNAL[::-1] > 1, 3 * np.digitize(Y[:, 1], [-3, 0, 3])])
MIXED = pd.DataFrame({"size": LABELS, "high": SIGNAL > 1, "steps": CLASSES[:, 2]})
SINGLE = [dtrees.DecisionTreeRegressor, dtrees.DecisionTreeClassifier]
FORESTS = [dtrees.RandomForestRegressor, dtrees.RandomForestClassifier, dtrees.ExtraTreesRegressor]
RANDOM = [dtrees.ExtraTreeRegressor, dtrees.ExtraTreeClassifier]


def targets(kind):
    return CLASSES if is_classifier(kind) else Y


def assert_same_tree(ours, theirs, rounding=1e-10):
    """Compare with scikit-learn's tree, whose thresholds are midpoints in float32."""
    assert_array_equal(ours.feature, theirs.feature)
    assert_array_equal(ours.children_right, theirs.children_right)
    assert_allclose(ours.threshold, theirs.threshold, rtol=1e-6, atol=1e-6)
    assert ours.value.shape == theirs.value.shape
    assert_allclose(ours.value, theirs.value, atol=rounding)
    assert_allclose(ours.impurity, theirs.impurity, atol=rounding)
    assert_array_equal(ours.n_classes, theirs.n_classes)
    assert (ours.n_outputs, ours.max_n_classes) == (theirs.n_outputs, theirs.max_n_classes)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("weight", [None, WEIGHT, WEIGHT + 0.37], ids=["none", "whole", "broken"])
@pytest.mark.parametrize("kind", SINGLE, ids=lambda kind: kind.__name__)
def test_a_tree_is_scikit_learns(kind, weight):
    # Three columns of many values: no two splits tie.
    table, parameters = FILLED[:, :3], {"max_depth": 4, "min_samples_leaf": 5, "random_state": 0}
    ours, theirs = kind(**parameters).fit(table, targets(kind), weight), sklearns(kind)(**parameters).fit(table, targets(kind), weight)
    assert_same_tree(ours.tree_, theirs.tree_)
    assert_allclose(ours.score(table, Y if kind is SINGLE[0] else CLASSES), _score(theirs, kind, table))
    assert ours.n_outputs_ == theirs.n_outputs_ == 3
    assert_allclose(ours.feature_importances_, theirs.feature_importances_, atol=1e-10)
    assert_array_equal(ours.apply(table), theirs.apply(table))
    assert_array_equal(ours.decision_path(table).toarray(), theirs.decision_path(table).toarray())
    path, wanted = (model.cost_complexity_pruning_path(table, targets(kind), weight) for model in (ours, theirs))
    assert_allclose(path.ccp_alphas, wanted.ccp_alphas, atol=1e-10)
    alpha = float(np.median(path.ccp_alphas)) * 1.0001
    pruned = [model.set_params(ccp_alpha=alpha).fit(table, targets(kind), weight).tree_ for model in (ours, theirs)]
    assert_same_tree(*pruned)
    assert 1 < pruned[0].node_count < len(path.ccp_alphas) * 2 + 1


def _score(model, kind, table):
    predicted = model.predict(table)
    return np.mean(np.all(predicted == CLASSES, axis=1)) if is_classifier(kind) else r2_score(Y, predicted)


@pytest.mark.slow  # kernels of their own
def test_medians_and_text():
    ours = dtrees.DecisionTreeRegressor(criterion="absolute_error", max_depth=3, min_samples_leaf=9).fit(FILLED[:, :3], Y)
    theirs = sklearn.tree.DecisionTreeRegressor(criterion="absolute_error", max_depth=3, min_samples_leaf=9, random_state=0)
    assert_same_tree(ours.tree_, theirs.fit(FILLED[:, :3], Y).tree_)
    assert dtrees.export_text(ours) == sklearn.tree.export_text(theirs)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("kind", thorough_for(FORESTS[:1], SINGLE + FORESTS), ids=lambda kind: kind.__name__)
def test_predictions(kind):
    model = make(kind).fit(X, targets(kind))
    assert all(map(lambda one, other: one.equals(other), trees(model), trees(make(kind).fit(X, targets(kind).tolist()))))
    predicted = model.predict(X)
    assert predicted.shape == (N, 3)
    if is_classifier(kind):
        shares, logarithms = model.predict_proba(X), model.predict_log_proba(X)
        assert [labels.tolist() for labels in model.classes_] == [[0, 1, 2], [0, 1], [0, 3, 6, 9]]
        assert model.n_classes_ == [3, 2, 4]
        for k in range(3):
            assert_array_equal(predicted[:, k], model.classes_[k][shares[k].argmax(axis=1)])
            assert_allclose(shares[k].sum(axis=1), 1)
            assert_array_equal(logarithms[k], np.log(shares[k], where=shares[k] > 0, out=np.full_like(shares[k], -np.inf)))
        assert model.score(X, CLASSES) == np.mean(np.all(predicted == CLASSES, axis=1))
    if kind not in SINGLE:
        assert_array_equal(model.estimators_[0].predict(X), kind._TREE.predict(model.estimators_[0], X))
        assert model.estimators_[0].n_outputs_ == 3
        with pytest.raises(ValueError, match=r"keeps the trees of 3 target\(s\), but y has 2 now"):
            model.set_params(warm_start=True, n_estimators=9).fit(X, targets(kind)[:, :2])


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("kind", FORESTS, ids=lambda kind: kind.__name__)
def test_rows_out_of_bag(kind):
    model = make(kind, n_estimators=40, bootstrap=True, oob_score=True).fit(X, targets(kind))
    samples, drawn = model.estimators_samples_, np.zeros((40, N), np.bool_)
    for tree, rows in enumerate(samples):
        drawn[tree, rows] = True
    members = [tree.predict_proba(X) if is_classifier(kind) else [tree.predict(X)] for tree in model.estimators_]
    means = [np.mean([members[tree][k][row] for tree in np.flatnonzero(~drawn[:, row])], axis=0) for row in range(N) for k in range(1)]
    if is_classifier(kind):
        assert model.oob_decision_function_.shape == (N, 4, 3)
        assert_allclose(model.oob_decision_function_[:, :3, 0], means, atol=1e-9)
        assert_array_equal(model.oob_decision_function_[:, 2:, 1], 0)
        assert 0.3 < model.oob_score_ < 1
    else:
        assert_allclose(model.oob_prediction_, means, atol=1e-9)
        assert model.oob_score_ == pytest.approx(r2_score(Y, model.oob_prediction_))
    importances = model.oob_permutation_importances(X, targets(kind))
    assert importances.argmax() in (0, 2)
    with pytest.raises(ValueError, match=r"wants \(n, 3\), as the y that is fitted has 3 targets"):
        model.oob_permutation_importances(X, targets(kind)[:, 0])


@pytest.mark.slow  # kernels of their own
def test_partial_dependence():
    model = make(dtrees.RandomForestRegressor).fit(FILLED, Y)
    brute = partial_dependence(model, FILLED, [2], method="brute", grid_resolution=5)["average"]
    recursion = partial_dependence(model, FILLED, [2], method="recursion", grid_resolution=5)["average"]
    assert recursion.shape == brute.shape == (3, 5)
    assert_allclose(recursion, brute, atol=1.0)
    assert np.ptp(recursion[1]) > 4 * np.ptp(recursion[2])


@pytest.mark.slow  # kernels of their own
def test_class_weights():
    few = {"max_depth": 4, "min_samples_leaf": 5, "random_state": 0}
    given = [{0: 2.0, 1: 1.0, 2: 3.0}, {0: 1.0, 1: 4.0}, {}]
    present = WEIGHT > 0  # the other rows count in scikit-learn's balance
    rows = FILLED[present, :3], CLASSES[present], WEIGHT[present]
    for class_weight in ("balanced", given):
        ours = dtrees.DecisionTreeClassifier(class_weight=class_weight, **few).fit(*rows)
        theirs = sklearn.tree.DecisionTreeClassifier(class_weight=class_weight, **few).fit(*rows)
        assert_same_tree(ours.tree_, theirs.tree_)
    forest = make(dtrees.RandomForestClassifier, n_estimators=2, class_weight="balanced_subsample", max_features=None).fit(X, CLASSES)
    counts = np.bincount(forest.estimators_samples_[0], minlength=N)
    weight = counts * compute_sample_weight("balanced", CLASSES, indices=np.repeat(np.arange(N), counts))
    alone = dtrees.DecisionTreeClassifier().fit(X, CLASSES, weight)
    assert_array_equal(trees(alone)[0].feature, trees(forest)[0].feature)


@pytest.mark.slow  # kernels of their own
def test_labels_of_several_kinds(tmp_path):
    model = make(dtrees.RandomForestClassifier, class_weight=[{"low": 2.0}, {}, {}]).fit(X, MIXED)
    predicted = model.predict(X)
    assert predicted.dtype == object
    assert [labels.dtype.kind for labels in model.classes_] == ["O", "b", "i"]
    assert set(predicted[:, 0]) == {"low", "mid", "high"}
    assert model.score(X, MIXED) > 0.9
    dtrees.save(model, tmp_path / "mixed.dtrees")
    loaded = dtrees.load(tmp_path / "mixed.dtrees")
    assert_array_equal(loaded.predict(X), predicted)
    assert loaded.class_weight == [{"low": 2.0}, {}, {}]
    # Several targets of two classes each are what scikit-learn calls multilabel.
    two = CLASSES[:, :2].clip(0, 1)
    labels = make(dtrees.RandomForestClassifier).fit(X, two)
    assert labels.score(X, two) == accuracy_score(two, labels.predict(X))


@pytest.mark.thorough  # kernels of their own
def test_interactions_and_drawings():
    model = dtrees.DecisionTreeRegressor(interaction_cst=[(0, 1), (2,), (3, 4)], max_depth=5).fit(X, Y)
    tree = model.tree_
    for row in model.decision_path(X).toarray().astype(bool):
        used = {int(column) for column in tree.feature[row] if column >= 0}
        assert used <= {0, 1} or used <= {2} or used <= {3, 4}
    np.testing.assert_array_equal(dtrees.to_sklearn(model, X).predict(X), model.predict(X))
    drawn = dtrees.export_graphviz(dtrees.DecisionTreeClassifier(max_depth=2).fit(X, MIXED), class_names=None)
    assert "class = " in str(drawn)


LEVEL = np.random.default_rng(7).integers(0, 12, N)
FRAME = pd.DataFrame({"number": FILLED[:, 0], "level": np.array([f"level {i:02d}" for i in range(12)])[LEVEL]})
FRAME.loc[::9, "level"] = None
EFFECTS = np.random.default_rng(8).normal(size=(12, 2))[LEVEL] + 0.3 * FILLED[:, :2]


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("kind", thorough_for(RANDOM, SINGLE + RANDOM), ids=lambda kind: kind.__name__)
def test_sets_of_categories(kind):
    y = EFFECTS > 0.2 if is_classifier(kind) else EFFECTS
    model = kind(max_depth=5, min_samples_leaf=3, random_state=0).fit(FRAME, y)
    sets = [node for node in range(model.tree_.node_count) if model.tree_.categories_left(node) is not None]
    assert len(sets) > 3
    numbers = np.column_stack([FRAME["number"], np.where(FRAME["level"].isna(), np.nan, LEVEL)])
    leaves = np.array([naive_leaf(model._tree, row) for row in numbers])
    assert_array_equal(model.apply(FRAME), leaves)
    if is_classifier(kind):
        for k, shares in enumerate(model.predict_proba(FRAME)):
            assert_array_equal(shares, model.tree_.value[leaves, k])
    else:
        assert_array_equal(model.predict(FRAME), model.tree_.value[leaves, :, 0])
        for leaf in np.unique(leaves):
            assert_allclose(model.tree_.value[leaf, :, 0], y[leaves == leaf].mean(axis=0))


@pytest.mark.slow  # the same kernels
def test_a_set_that_is_best_for_no_target_alone():
    """The best of all sets of six categories is found, though the sets of either target are worse."""
    means = np.array([[0.2, 1.5], [-0.8, 0.1], [-0.3, -1.1], [0.4, -0.8], [1.7, 0.0], [-0.2, 0.0]])
    level = np.repeat(np.arange(6), 20)
    few = {"max_depth": 1, "cat_smooth": 0.0, "min_samples_category": 1, "categorical_features": [0]}

    def worth(y):
        left = dtrees.DecisionTreeRegressor(**few).fit(level[:, np.newaxis], y).tree_.categories_left(0)
        return _between(means, set(left.tolist()))

    every = [{k for k in range(6) if bits >> k & 1} for bits in range(1, 63)]
    best = max(_between(means, some) for some in every)
    assert worth(means[level]) == pytest.approx(best)
    assert max(worth(means[level, 0]), worth(means[level, 1])) < 0.99 * best


def _between(means, left):
    """Return the reduction of squared error by a set of categories of equal weight."""
    some, others = means[sorted(left)], means[sorted(set(range(6)) - left)]
    return len(some) * len(others) * ((some.mean(axis=0) - others.mean(axis=0)) ** 2).sum()


def _bad(parameters, message, kind=dtrees.RandomForestClassifier, y=CLASSES, table=X):
    return pytest.param(kind, parameters, y, table, message, id=message[:40])


@pytest.mark.parametrize(
    ("kind", "parameters", "y", "table", "message"),
    [
        _bad({"monotonic_cst": [1, 0, 0, 0, 0]}, "monotonic_cst is given, and y has 3 targets"),
        _bad({"bootstrap": "balanced"}, "bootstrap='balanced' draws by the classes of one target, but y has 3"),
        _bad({"class_weight": {0: 2.0}}, "For multi-output, class_weight should be a list of dicts"),
        _bad({"class_weight": [{0: 2.0}]}, "number of elements in class_weight should match number of outputs"),
        _bad({"class_weight": [{0: -2.0}, {}, {}]}, "wants finite factors of at least 0"),
        _bad({"class_weight": [{0: 2.0}]}, "class_weight is the list", y=CLASSES[:, 0]),
        _bad({}, r"y contains NaN.*y\[:, 1\]", dtrees.DecisionTreeRegressor, np.where(np.arange(3) == 1, np.nan, Y)),
        _bad({}, r"Unknown label type.*y\[:, 2\]", y=np.where(np.arange(3) == 2, Y, CLASSES)),
        _bad({"criterion": "poisson"}, "targets that are not negative", dtrees.DecisionTreeRegressor, Y),
    ],
)
def test_what_is_refused(kind, parameters, y, table, message):
    with pytest.raises(ValueError, match=message):
        make(kind, **parameters).fit(table, y)


def test_sparse_classes():
    with pytest.raises(TypeError, match="y is a sparse table"):
        make(dtrees.DecisionTreeClassifier).fit(X, csr_array(CLASSES))


@every_forest
def test_tags(kind):
    tags = kind().__sklearn_tags__()
    assert tags.target_tags.multi_output
    assert not is_classifier(kind) or tags.classifier_tags.multi_label
