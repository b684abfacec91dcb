"""Forests: weights, out-of-bag scores, warm starts, and the rows that their trees are grown on."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_array
from sklearn.metrics import accuracy_score, f1_score, r2_score

import dtrees
from tests.ensemble.samples import (
    BOOSTING,
    FORESTS,
    LABELS,
    SIGNAL,
    WEIGHT,
    N,
    X,
    assert_same_trees,
    every_ensemble,
    every_forest,
    is_classifier,
    make,
    target,
    trees,
)
from tests.slow import thorough_for


def test_balanced_counts_rows_in_trees_and_weights_in_forests():
    """As in scikit-learn 1.9, whose trees and forests differ here."""
    weight = np.where(LABELS == "low", 5.0, 1.0)
    rows = {label: N / (3 * np.sum(label == LABELS)) for label in set(LABELS)}
    sums = {label: weight.sum() / (3 * weight[label == LABELS].sum()) for label in set(LABELS)}
    for kind, factors in ((dtrees.DecisionTreeClassifier, rows), (dtrees.RandomForestClassifier, sums)):
        assert_same_trees(
            make(kind, class_weight="balanced").fit(X, LABELS, weight), make(kind, class_weight=factors).fit(X, LABELS, weight)
        )


def test_balanced_subsample():
    model = make(dtrees.RandomForestClassifier, class_weight="balanced_subsample").fit(X, LABELS)
    for tree in trees(model):
        assert_allclose(tree.value[0], 1 / 3)
    model = make(dtrees.ExtraTreesClassifier, class_weight="balanced_subsample").fit(X, LABELS)  # without bootstrap equal to balanced
    assert_same_trees(model, make(dtrees.ExtraTreesClassifier, class_weight="balanced").fit(X, LABELS))


@pytest.mark.parametrize(
    ("max_samples", "weight", "expected"),
    [(None, None, N), (40, None, 40), (0.5, None, 150), (0.5, 3.0, 150), (None, 1e-3, N), (1.0, 1e16, N), (1.0, 1e-3, N)],
)
def test_max_samples(max_samples, weight, expected):
    weights = None if weight is None else np.full(N, weight)
    model = make(dtrees.RandomForestRegressor, max_samples=max_samples).fit(X, SIGNAL, weights)
    assert {tree.weighted_n_node_samples[0] for tree in trees(model)} == {expected}
    assert all(tree.n_node_samples[0] < expected for tree in trees(model))


def test_few_draws_are_warned_of():
    with pytest.warns(UserWarning, match="draws only 3 of them"):
        make(dtrees.RandomForestRegressor, max_samples=0.01).fit(X, SIGNAL)


def test_more_draws_than_anybody_could_wait_for():
    for max_samples in (2**32 + 1, 1e10):
        with pytest.raises(ValueError, match=r"max_samples=.* draws .* rows; wants at most 4,294,967,296"):
            make(dtrees.RandomForestRegressor, max_samples=max_samples).fit(X, SIGNAL)


@every_forest
def test_a_forest_is_the_mean_of_its_trees(kind):
    model = make(kind).fit(X, target(kind))
    assert len(model.estimators_) == 8
    assert all(isinstance(tree, kind._TREE) for tree in model.estimators_)
    assert model.estimators_[3] is model.estimators_[3]
    assert {tree.max_depth for tree in model.set_params(max_depth=2).estimators_} == {make(kind).max_depth}
    method = "predict_proba" if is_classifier(kind) else "predict"
    assert_allclose(np.mean([getattr(tree, method)(X) for tree in model.estimators_], axis=0), getattr(model, method)(X))
    assert b"estimators_" not in pickle.dumps(model)


@every_forest
def test_trees_can_be_assigned(kind):
    model = make(kind, n_estimators=12, bootstrap=True, oob_score=True, warm_start=True).fit(X, target(kind))
    kept = model.estimators_[:5]
    model.estimators_ = kept
    assert_same_trees(model, make(kind, n_estimators=5, bootstrap=True).fit(X, target(kind)))
    assert len(model.estimators_) == 5
    assert not hasattr(model, "oob_score_")
    method = "predict_proba" if is_classifier(kind) else "predict"
    assert_allclose(np.mean([getattr(tree, method)(X) for tree in kept], axis=0), getattr(model, method)(X))
    with pytest.raises(ValueError, match="warm_start=True cannot go on from this model.* estimators_ was assigned"):
        model.fit(X, target(kind))
    other = make(kind, n_estimators=2).fit(X[:, :4], target(kind))
    for wrong in (other.estimators_, [make(kind._TREE)], [model], []):
        with pytest.raises(ValueError, match="estimators_ is given .*; wants"):
            model.estimators_ = wrong
    assert len(model.estimators_) == 5


@every_ensemble
def test_warm_start_adds_what_one_fit_would_have_grown(kind):
    y = target(kind)
    parameters = {"subsample": 0.7} if kind in BOOSTING else {}
    model = make(kind, n_estimators=3, warm_start=True, **parameters).fit(X, y, WEIGHT)
    first = trees(model)[0]
    model.set_params(n_estimators=8).fit(X, y, WEIGHT)
    assert trees(model)[0] is first
    assert_same_trees(model, make(kind, **parameters).fit(X, y, WEIGHT))
    assert len(model.estimators_) == 8
    with pytest.raises(ValueError, match="n_estimators=4 must be larger or equal to .*=8 when warm_start==True"):
        model.set_params(n_estimators=4).fit(X, y)
    assert_same_trees(model.set_params(n_estimators=5, warm_start=False).fit(X, y), make(kind, n_estimators=5, **parameters).fit(X, y))


# Random thresholds with sets of categories have kernels of their own.
@pytest.mark.parametrize("kind", thorough_for(FORESTS[2:], FORESTS + BOOSTING), ids=lambda kind: kind.__name__)
def test_warm_start_with_other_data(kind):
    frame = pd.DataFrame({"x": X[:, 0], "c": np.where(X[:, 1] > 0, "a", "b")})
    y = target(kind)
    model = make(kind, warm_start=True).fit(frame, y)
    model.set_params(n_estimators=10)
    with pytest.raises(ValueError, match="categories of X column 'c' by their numbers, but it has 'z' and lacks 'a', 'b' now"):
        model.fit(frame.assign(c="z"), y)
    weight = np.arange(len(y)) > 0.0  # as the message says
    copy.deepcopy(model).fit(frame.assign(c=["a", *"b" * (len(y) - 1)]), y, weight)
    with pytest.warns(UserWarning, match="valid feature names"), pytest.raises(ValueError, match="X has 1 features"):
        model.fit(frame[["x"]].to_numpy(), y)
    if is_classifier(kind):
        with pytest.raises(ValueError, match="y had the classes"):
            model.fit(frame, np.where(y == "mid", "low", y))


@every_forest
def test_warm_start_without_more_trees(kind):
    model = make(kind, warm_start=True).fit(X, target(kind))
    grown = model._trees
    with pytest.warns(UserWarning, match="does not fit new trees"):
        model.fit(X, target(kind))
    assert model._trees is grown


@every_forest
def test_out_of_bag(kind):
    y = target(kind)
    model = make(kind, n_estimators=60, bootstrap=True, oob_score=True).fit(X, y)
    fresh = make(kind, n_estimators=60, bootstrap=True).fit(X[:200], y[:200]).score(X[200:], y[200:])
    assert model.oob_score_ == pytest.approx(fresh, abs=0.12)
    if is_classifier(kind):
        assert_allclose(model.oob_decision_function_.sum(axis=1), 1.0)
        assert model.oob_score_ == accuracy_score(y, model.classes_[model.oob_decision_function_.argmax(axis=1)])
    else:
        assert model.oob_score_ == r2_score(y, model.oob_prediction_)
    own = {"max_depth": 2} if is_classifier(kind) else {}
    metric = (lambda truth, predicted: f1_score(truth, predicted, average="macro")) if is_classifier(kind) else r2_score
    assert 0 < make(kind, n_estimators=60, bootstrap=True, oob_score=metric, **own).fit(X, y).oob_score_ < 1
    assert_same_trees(model, make(kind, n_estimators=60, bootstrap=True).fit(X, y))


@every_forest
@pytest.mark.parametrize("from_the_start", [True, False])
def test_out_of_bag_with_warm_start(kind, from_the_start):
    y = target(kind)
    whole = make(kind, n_estimators=40, bootstrap=True, oob_score=True).fit(X, y)
    model = make(kind, n_estimators=25, bootstrap=True, oob_score=from_the_start, warm_start=True).fit(X, y)
    model.set_params(n_estimators=40, oob_score=True).fit(X, y)
    assert model.oob_score_ == whole.oob_score_
    attribute = "oob_decision_function_" if is_classifier(kind) else "oob_prediction_"
    assert_array_equal(getattr(model, attribute), getattr(whole, attribute))


def test_rows_that_are_never_out_of_bag_are_warned_of():
    with pytest.warns(UserWarning, match="Some inputs do not have OOB scores"):
        model = make(dtrees.RandomForestRegressor, n_estimators=1, oob_score=True).fit(X, SIGNAL)
    assert (model.oob_prediction_ == 0).sum() > N / 2


# --- the training rows of trees in forests: which they are, balanced draws of classes, importances on the others ---


RARE = np.where(np.arange(N) % 15 == 0, "rare", np.where(SIGNAL > 0, "high", "low"))


@every_forest
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["no weights", "weights"])
@pytest.mark.parametrize("parameters", [{"bootstrap": True}, {"bootstrap": True, "max_samples": 40}, {"bootstrap": False}], ids=str)
def test_trees_are_grown_on_their_samples(kind, parameters, weight):
    """The root of a tree of one level shows its rows: counts, weights and values."""
    model = make(kind, max_depth=1, **parameters).fit(X, target(kind), weight)
    assert len(model.estimators_samples_) == len(model) == 8
    for tree, rows in zip(trees(model), model.estimators_samples_, strict=True):
        each = np.ones(len(rows)) if parameters["bootstrap"] or weight is None else weight[rows]
        assert (np.diff(rows) >= 0).all()
        assert tree.n_node_samples[0] == len(np.unique(rows[each > 0]))
        assert_allclose(tree.weighted_n_node_samples[0], each.sum())
        if is_classifier(kind):
            shares = np.bincount(np.searchsorted(model.classes_, target(kind)[rows]), weights=each, minlength=3) / each.sum()
            assert_allclose(tree.value[0], shares)
        else:
            assert_allclose(tree.value[0, 0], np.average(SIGNAL[rows], weights=each))
    if weight is not None and parameters["bootstrap"]:
        assert (weight[np.concatenate(model.estimators_samples_)] > 0).all()


def test_samples_by_classes_of_their_own_weights():
    model = make(dtrees.RandomForestClassifier, max_depth=1, class_weight={"low": 0, "mid": 5, "high": 1}).fit(X, LABELS)
    for tree, rows in zip(trees(model), model.estimators_samples_, strict=True):
        assert_allclose(tree.value[0], np.mean(LABELS[rows, np.newaxis] == model.classes_, axis=0))
        assert tree.value[0, 1] == 0


@every_forest
def test_samples_of_warm_starts(kind):
    whole = make(kind, bootstrap=True).fit(X, target(kind), WEIGHT)
    model = make(kind, bootstrap=True, n_estimators=3, warm_start=True).fit(X, target(kind), WEIGHT).set_params(n_estimators=8)
    model = pickle.loads(pickle.dumps(model)).fit(X, target(kind), WEIGHT)
    for one, other in zip(model.estimators_samples_, whole.estimators_samples_, strict=True):
        assert_array_equal(one, other)


def test_samples_that_are_not_known(tmp_path):
    model = make(dtrees.RandomForestRegressor, warm_start=True).fit(X, SIGNAL)
    dtrees.save(model, tmp_path / "model")
    loaded = dtrees.load(tmp_path / "model")
    later = dtrees.load(tmp_path / "model").set_params(n_estimators=10).fit(X, SIGNAL)
    model.estimators_ = model.estimators_[:2]
    for one in (model, loaded, later):
        with pytest.raises(AttributeError, match="estimators_samples_ are not known: the model is from a file"):
            one.estimators_samples_  # noqa: B018
    assert len(later) == 10


@every_ensemble
def test_an_ensemble_is_a_sequence_of_its_members(kind):
    model = make(kind)
    assert model  # also if there are no trees to count
    model.fit(X, target(kind))
    assert len(model) == 8
    for number, member in enumerate(model):
        assert np.array_equal(member, model[number])
        assert np.array_equal(member, model.estimators_[number])
    assert np.shape(model[-1]) == ((3,) if kind is dtrees.GradientBoostingClassifier else (1,) if kind in BOOSTING else ())
    with pytest.raises(IndexError):
        model[8]


@pytest.mark.parametrize("kind", [dtrees.RandomForestClassifier, dtrees.ExtraTreesClassifier], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["no weights", "weights"])
def test_balanced_draws(kind, weight):
    """As many rows of each class as the smallest has; within a class by weight, and rows of weight 0 have no effect."""
    model = make(kind, n_estimators=200, bootstrap="balanced", max_depth=1, oob_score=True).fit(X, RARE, weight)
    there = np.ones(N, bool) if weight is None else weight > 0
    smallest = min(np.sum(RARE[there] == label) for label in model.classes_)
    drawn = np.zeros(N)
    for tree, rows in zip(trees(model), model.estimators_samples_, strict=True):
        assert {label: np.sum(RARE[rows] == label) for label in model.classes_} == dict.fromkeys(model.classes_, smallest)
        assert_allclose(tree.value[0], 1 / 3)
        drawn += np.bincount(rows, minlength=N)
    for label in model.classes_:
        mine = label == RARE
        expected = np.where(mine, 1.0 if weight is None else weight, 0.0)
        expected *= 200 * smallest / expected.sum()
        assert_allclose(drawn[mine], expected[mine], atol=6 * np.sqrt(expected.max()))
        assert not drawn[mine & (expected == 0)].any()
    assert len({tuple(rows) for rows in model.estimators_samples_}) == 200


def test_a_class_without_weight_is_not_drawn():
    weight = np.where(RARE == "rare", 0.0, 1.0)
    model = make(dtrees.RandomForestClassifier, bootstrap="balanced").fit(X, RARE, weight)
    assert model.classes_.tolist() == ["high", "low", "rare"]
    for tree in trees(model):
        assert_allclose(tree.value[0], [0.5, 0.5, 0.0])


def test_what_makes_no_sense_with_balanced_draws():
    with pytest.raises(ValueError, match="class_weight=.* cannot be set if bootstrap='balanced'"):
        make(dtrees.RandomForestClassifier, bootstrap="balanced", class_weight={"low": 2}).fit(X, LABELS)
    with pytest.raises(ValueError, match="'bootstrap' parameter of RandomForestRegressor"):
        make(dtrees.RandomForestRegressor, bootstrap="balanced").fit(X, SIGNAL)


@every_forest
def test_importances_on_rows_out_of_bag(kind):
    """Compared with a slow implementation; and a column of noise has no importance."""
    rng = np.random.default_rng(3)
    columns = np.column_stack([SIGNAL + rng.normal(size=N), rng.normal(size=N)])
    y = target(kind)
    model = make(kind, n_estimators=30, bootstrap=True, max_features=None).fit(columns, y)
    found = model.oob_permutation_importances(columns, y, seed=5)
    increases = np.zeros((30, 2))
    for number, (member, rows) in enumerate(zip(model, model.estimators_samples_, strict=True)):
        outside = [row for row in range(N) if row not in set(rows.tolist())]
        for column in range(2):
            changed = columns[outside]
            changed[:, column] = np.random.default_rng([5, number, column]).permutation(changed[:, column])
            before, after = member.predict(columns[outside]), member.predict(changed)
            wrong = [(p != y[outside]) if is_classifier(kind) else (p - y[outside]) ** 2 for p in (before, after)]
            increases[number, column] = np.mean(wrong[1]) - np.mean(wrong[0])
    assert_allclose(found, increases.mean(axis=0), atol=1e-12)
    assert found[0] > 5 * abs(found[1])
    with pytest.raises(ValueError, match="X has 299 rows and y 299; wants the rows that the forest was fitted on"):
        model.oob_permutation_importances(columns[1:], y[1:])
    with pytest.raises(ValueError, match="fit with bootstrap=True"):
        make(kind, bootstrap=False).fit(X, y).oob_permutation_importances(X, y)


def test_importances_on_rows_out_of_bag_of_a_sparse_table():
    sparse = np.where(np.nan_to_num(X) > 0.5, X, 0.0)
    forest = make(dtrees.RandomForestRegressor).fit(csc_array(sparse), SIGNAL)
    assert_array_equal(forest.oob_permutation_importances(csr_array(sparse), SIGNAL), forest.oob_permutation_importances(sparse, SIGNAL))
