import ast
import inspect
import logging
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix

import dtrees
from tests.ensemble.samples import (
    BOOSTING,
    FORESTS,
    KINDS,
    LABELS,
    SIGNAL,
    WEIGHT,
    N,
    X,
    assert_same_trees,
    every_ensemble,
    every_kind,
    is_classifier,
    make,
    sklearns,
    target,
    trees,
)
from tests.slow import one_of_each

LEFT_OUT = {"set_predict_request", "oob_scores_"}


@every_kind
def test_the_interface_is_sklearns(kind):
    """All public names of scikit-learn's exist, except those that only make sense with its own generators."""
    theirs = {name for name in dir(sklearns(kind)) if not name.startswith("_")} - LEFT_OUT
    assert theirs - set(dir(kind)) == set()


@every_kind
def test_parameters_are_sklearns(kind):
    theirs, ours = sklearns(kind)().get_params(), kind().get_params()
    left_out: set[str] = set()
    assert set(theirs) - set(ours) == left_out & set(theirs)
    if kind not in BOOSTING:
        assert {name: ours[name] for name in ours if name in theirs} == {name: theirs[name] for name in ours if name in theirs}


@pytest.mark.parametrize(("kind", "max_features"), one_of_each(KINDS, [None, "sqrt", "log2", 0.5, 2], others=pytest.mark.thorough))
def test_max_features_is_sklearns(kind, max_features):
    ours = make(kind, max_features=max_features).fit(X, target(kind))
    theirs = make(sklearns(kind), max_features=max_features).fit(np.nan_to_num(X), target(kind))
    if kind in FORESTS:
        theirs = theirs.estimators_[0]
    assert ours.max_features_ == theirs.max_features_


@every_kind
def test_scores_are_like_sklearns(kind):
    train, test = slice(0, 200), slice(200, None)
    parameters = {"n_estimators": 60} if kind in FORESTS + BOOSTING else {"min_samples_leaf": 5}
    ours = make(kind, **parameters).fit(X[train], target(kind)[train]).score(X[test], target(kind)[test])
    theirs = make(sklearns(kind), **parameters).fit(np.nan_to_num(X[train]), target(kind)[train])
    assert ours > theirs.score(np.nan_to_num(X[test]), target(kind)[test]) - 0.12


@every_kind
@pytest.mark.parametrize("generator", [np.random.RandomState, np.random.default_rng])
def test_random_state(kind, generator):
    fits = [make(kind, random_state=seed).fit(X, target(kind)) for seed in (0, 0, 1, generator(5))]
    assert_same_trees(fits[0], fits[1])
    with pytest.raises(AssertionError):
        assert_same_trees(fits[0], fits[2])
    shared = generator(5)
    assert_same_trees(make(kind, random_state=shared).fit(X, target(kind)), fits[3])
    with pytest.raises(AssertionError):  # a generator advances
        assert_same_trees(make(kind, random_state=shared).fit(X, target(kind)), fits[3])


@every_kind
def test_input_of_all_kinds_gives_the_same_trees(kind):
    y = target(kind)
    columns = {f"c{j}": X[:, j] for j in range(X.shape[1])}
    expected = make(kind).fit(X, y)
    for table in (np.asfortranarray(X), X.tolist(), pd.DataFrame(columns), pl.DataFrame(columns)):
        model = make(kind).fit(table, pd.Series(y) if isinstance(table, pd.DataFrame) else list(y))
        assert_same_trees(model, expected)
        assert_array_equal(model.predict(table), expected.predict(X))
    frozen = X.copy()
    frozen.setflags(write=False)
    assert_same_trees(make(kind).fit(frozen, y), expected)


#: Random thresholds with sets of categories have kernels of their own.
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow if "Extra" in kind.__name__ else ()) for kind in KINDS])
def test_text_and_categories(kind):
    colour = np.array(["red", "green", "blue"])[np.random.default_rng(1).integers(0, 3, N)]
    values = (colour == "red") * 3.0 + (colour == "blue") * 1.0
    y = np.where(values > 1, "yes", "no") if is_classifier(kind) else values
    frame = pd.DataFrame({"x": X[:, 0], "colour": colour})
    parameters = {"n_estimators": 60} if kind in BOOSTING else {"bootstrap": False} if kind in FORESTS else {}
    model = make(kind, max_features=None, **parameters).fit(frame, y)
    assert model.score(frame, y) > 0.99
    assert_array_equal(model.predict(frame), model.predict(pl.DataFrame(frame.to_dict("list"))))
    assert_array_equal(model.predict(frame), model.predict(frame.astype({"colour": "category"})))
    unseen = model.predict(frame.assign(colour="violet"))
    assert_array_equal(unseen, model.predict(frame.assign(colour=None)))


@every_kind
def test_weights_count_rows(kind):
    """Rows of weight two equal rows given twice, and those of weight zero are absent, except for bootstrap draws."""
    parameters = {"bootstrap": False} if kind in FORESTS else {"min_child_weight": 0.0} if kind in BOOSTING else {}
    if kind in (dtrees.ExtraTreeRegressor, dtrees.ExtraTreeClassifier, dtrees.ExtraTreesRegressor, dtrees.ExtraTreesClassifier):
        parameters["max_depth"] = 3
    parameters["max_features"] = None
    y = target(kind)
    weighted = make(kind, **parameters).fit(X, y, WEIGHT)
    repeated = np.repeat(np.arange(N), WEIGHT.astype(int))
    expected = make(kind, **parameters).fit(X[repeated], y[repeated])
    for one, other in zip(trees(weighted), trees(expected), strict=True):
        assert_array_equal(one.feature, other.feature)
        assert_array_equal(one.threshold, other.threshold)
        assert_allclose(one.value, other.value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if is_classifier(kind)], ids=lambda kind: kind.__name__)
def test_class_weights_are_sample_weights(kind):
    factors = {"low": 1.0, "mid": 3.0, "high": 0.5}
    weight = np.array([factors[label] for label in LABELS])
    assert_same_trees(make(kind, class_weight=factors).fit(X, LABELS), make(kind).fit(X, LABELS, weight))
    counts = {label: np.sum(label == LABELS) for label in factors}
    balanced = {label: N / (3 * count) for label, count in counts.items()}
    assert_same_trees(make(kind, class_weight="balanced").fit(X, LABELS), make(kind, class_weight=balanced).fit(X, LABELS))


def test_colsample_bytree():
    for kind in FORESTS + BOOSTING:
        model = make(kind, colsample_bytree=0.4, max_features=None).fit(X, target(kind))
        used = [set(tree.feature[tree.feature >= 0].tolist()) for tree in trees(model)]
        assert all(len(columns) <= 2 for columns in used)
        assert set().union(*used) == set(range(5))
        assert model.max_features_ == 2


@every_kind
def test_probabilities(kind):
    if not is_classifier(kind):
        return
    model = make(kind).fit(X, LABELS)
    probabilities = model.predict_proba(X)
    assert model.classes_.tolist() == sorted(set(LABELS))
    assert model.n_classes_ == 3
    assert_allclose(probabilities.sum(axis=1), 1.0)
    assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X))
    assert_allclose(np.exp(model.predict_log_proba(X)), probabilities)


@every_kind
def test_importances(kind):
    informative = make(kind, max_features=None).fit(X, target(kind)).feature_importances_
    assert informative.shape == (5,)
    assert informative.sum() == pytest.approx(1.0)
    assert set(np.argsort(informative)[-2:]) == {0, 1}
    stump = make(kind, min_samples_leaf=N, max_features=None).fit(X, target(kind))
    assert_array_equal(stump.feature_importances_, np.zeros(5))


@pytest.mark.parametrize("kind", KINDS[:8], ids=lambda kind: kind.__name__)
def test_paths_lead_to_leaves(kind):
    model = make(kind).fit(X, target(kind))
    leaves = model.apply(X)
    if kind in FORESTS:
        paths, ends = model.decision_path(X)
        assert leaves.shape == (N, 8)
        assert ends[-1] == paths.shape[1] == sum(tree.node_count for tree in trees(model))
    else:
        assert leaves.shape == (N,)
        leaves, paths, ends = leaves[:, np.newaxis], model.decision_path(X), [0, model.tree_.node_count]
    assert paths.has_sorted_indices
    for i, tree in enumerate(trees(model)):
        path = paths[:, ends[i] : ends[i + 1]].toarray()
        assert_array_equal(tree.children_left[leaves[:, i]], -1)
        assert_array_equal(path.sum(axis=1), tree.node_depth[leaves[:, i]] + 1)
        assert_array_equal(path[np.arange(N), leaves[:, i]], 1)
        # Every node on a path, except the root, has its parent on it.
        for child in (tree.children_left, tree.children_right):
            inner = np.flatnonzero(child >= 0)
            assert np.all(path[:, inner] >= path[:, child[inner]])


@pytest.mark.parametrize("kind", KINDS[:4], ids=lambda kind: kind.__name__)
def test_depth_and_leaves(kind):
    model = make(kind, max_depth=3).fit(X, target(kind))
    assert model.get_depth() == 3
    assert model.get_n_leaves() == model.tree_.n_leaves <= 8
    assert make(kind, max_leaf_nodes=5).fit(X, target(kind)).get_n_leaves() == 5


@every_ensemble
def test_callbacks(kind):
    seen = []
    model = make(kind).fit(X, target(kind), callbacks=[seen.append, lambda progress: progress.done == 3])
    assert [progress.done for progress in seen] == [1, 2, 3]
    assert {progress.total for progress in seen} == {8}
    assert len(model.estimators_) == 3
    if kind in BOOSTING:
        assert [progress.train_score for progress in seen] == model.train_score_.tolist()


@every_ensemble
def test_progress_is_told_on_standard_error(kind, capsys):
    make(kind).fit(X, target(kind))
    assert capsys.readouterr() == ("", "")
    make(kind, verbose=1, n_estimators=30).fit(X, target(kind))
    out, lines = capsys.readouterr()
    assert out == ""
    what = "round" if kind in BOOSTING else "tree"
    assert [line.partition(" after ")[0] for line in lines.splitlines()] == [f"{what} {done} of 30" for done in range(3, 31, 3)]
    make(kind, verbose=2).fit(X, target(kind))
    assert len(capsys.readouterr().err.splitlines()) == 8


@every_ensemble
def test_progress_is_logged_where_somebody_listens(kind, caplog, capsys):
    with caplog.at_level(logging.INFO, logger="dtrees"):
        make(kind).fit(X, target(kind))
        assert not caplog.records
        make(kind, verbose=2).fit(X, target(kind))
    assert len(caplog.records) == 8
    assert "8 of 8" in caplog.messages[-1]
    assert capsys.readouterr() == ("", "")


@every_kind
def test_every_parameter_is_described(kind):
    """In the order of the signature, and with its default."""
    text = inspect.getdoc(kind)
    section = text.split("Parameters\n----------\n")[1].split("\n\n")[0]
    described = dict(re.findall(r"^(\w+) : .*default=(.+)$", section, flags=re.MULTILINE))
    defaults = {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
    assert list(described) == list(defaults)
    assert {name: ast.literal_eval(default) for name, default in described.items()} == defaults
    assert not re.search(r"^ *\{\w+", text, flags=re.MULTILINE)
    public = {name for name in vars(make(kind).fit(X, target(kind))) if name.endswith("_")}
    attributes = set(re.findall(r"^(\w+_) : ", text.split("Attributes\n----------\n")[1], flags=re.MULTILINE))
    assert public <= attributes


@every_kind
def test_rows_of_weight_zero_are_as_good_as_absent(kind):
    """For shares of rows, defaults of categories, and the scales of targets."""
    present, r = WEIGHT > 0, np.random.default_rng(1)
    table = np.column_stack([X, r.integers(0, 30, N)])
    y = target(kind) if is_classifier(kind) else np.where(present, SIGNAL, 1e30)
    given = {"min_samples_leaf": 0.02, "min_samples_split": 0.1, "categorical_features": [5]}
    if kind in FORESTS:
        given["bootstrap"] = True
    model, alone = make(kind, **given), make(kind, **given)
    assert_same_trees(model.fit(table, y, WEIGHT), alone.fit(table[present], y[present], WEIGHT[present]))


@every_kind
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinities_are_the_largest_and_the_smallest_values(kind, dtype, tmp_path):
    rng = np.random.default_rng(1)
    infinite = rng.choice([-np.inf, np.inf, 0.0, 1.0], X.shape, p=[0.1, 0.1, 0.3, 0.5])
    table = np.where(np.isinf(infinite), infinite, np.round(X, 1)).astype(dtype)
    table[:, 1] = np.where(table[:, 1] < 0, -np.inf, np.inf)  # nothing else to split on
    y = target(kind) if is_classifier(kind) else np.clip(np.nan_to_num(table[:, 0]), -2, 2) + (table[:, 1] > 0)
    model = make(kind).fit(table, y)
    assert {0, 1} <= {column for tree in trees(model) for column in tree.feature.tolist()}
    finite = np.nan_to_num(table, nan=np.nan)
    assert_same_trees(model, make(kind).fit(finite, y))
    predicted = model.predict(table)
    for same in (finite, table.astype(np.float64), csr_matrix(table)):
        assert_array_equal(model.predict(same), predicted)
    assert_same_trees(make(kind).fit(csr_matrix(table), y), model)
    dtrees.save(model, tmp_path / "model")
    assert_array_equal(dtrees.load(tmp_path / "model").predict(table), predicted)
