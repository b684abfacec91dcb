"""The rows that trees of forests are grown on: which they are, balanced draws of classes, importances on the others."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_array

import dtrees
from tests.ensemble.samples import (
    BOOSTING,
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

RARE = np.where(np.arange(N) % 15 == 0, "rare", np.where(SIGNAL > 0, "high", "low"))


@every_forest
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["no weights", "weights"])
@pytest.mark.parametrize("parameters", [{"bootstrap": True}, {"bootstrap": True, "max_samples": 40}, {"bootstrap": False}], ids=str)
def test_trees_are_grown_on_their_samples(kind, parameters, weight):
    """A tree of one level says what its rows are: counts, weights and values of its root."""
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
    assert model  # also where there are no trees to count
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
    """As many rows of each class as the smallest has; within a class by weight, and rows without any are as good as absent."""
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


def test_balanced_draws_find_a_rare_class():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(2000, 4))
    y = (columns[:, 0] + rng.normal(size=2000) > 2.8).astype(int)
    recall = {}
    for bootstrap in (True, "balanced"):
        model = dtrees.RandomForestClassifier(60, bootstrap=bootstrap, oob_score=True, random_state=0).fit(columns, y)
        recall[bootstrap] = np.mean(model.oob_decision_function_.argmax(axis=1)[y == 1])
    assert recall["balanced"] > recall[True] + 0.3


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
def test_balanced_draws_of_threads_partitions_and_warm_starts():
    wanted = make(dtrees.RandomForestClassifier, bootstrap="balanced", oob_score=True).fit(X, RARE, WEIGHT)
    others = [
        make(dtrees.RandomForestClassifier, bootstrap="balanced", oob_score=True, n_jobs=3).fit(X, RARE, WEIGHT),
        make(dtrees.RandomForestClassifier, bootstrap="balanced", oob_score=True).fit(
            *(da.from_array(part, chunks=(90, 5)[: part.ndim]) for part in (X, RARE, WEIGHT))
        ),
    ]
    for other in others:
        assert_same_trees(other, wanted)
        assert_array_equal(other.oob_decision_function_, wanted.oob_decision_function_)


def test_what_makes_no_sense_with_balanced_draws():
    for name, value in (("max_samples", 0.5), ("class_weight", "balanced"), ("class_weight", {"low": 2})):
        with pytest.raises(ValueError, match=f"{name}=.* cannot be set if bootstrap='balanced'"):
            make(dtrees.RandomForestClassifier, bootstrap="balanced", **{name: value}).fit(X, LABELS)
    with pytest.raises(ValueError, match="'bootstrap' parameter of RandomForestRegressor"):
        make(dtrees.RandomForestRegressor, bootstrap="balanced").fit(X, SIGNAL)


@every_forest
def test_importances_on_rows_out_of_bag(kind):
    """Beside a slow twin, and a column of noise does not matter."""
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
