from __future__ import annotations

import copy
import io
import json
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dtrees
from tests.ensemble.samples import (
    FORESTS,
    LABELS,
    SIGNAL,
    WEIGHT,
    X,
    assert_same_trees,
    every_ensemble,
    every_forest,
    every_kind,
    is_classifier,
    make,
    target,
)


@every_kind
def test_pickle_and_state(kind):
    frame = pd.DataFrame({"x": X[:, 0], "c": np.where(X[:, 1] > 0, "a", "b")})
    sets = {"categorical_features": None} if "Extra" in kind.__name__ else {}  # few kernels: no sets beside random thresholds
    model = make(kind, **sets).fit(frame, target(kind))
    metadata, arrays = model._to_state()
    restored = kind._from_state(json.loads(json.dumps(metadata)), arrays)
    for twin in (pickle.loads(pickle.dumps(model)), restored):
        assert_same_trees(twin, model)
        assert_array_equal(twin.predict(frame), model.predict(frame))
        assert twin.get_params() == model.get_params()
        assert_array_equal(twin.feature_names_in_, model.feature_names_in_)
        assert_array_equal(twin.feature_importances_, model.feature_importances_)
        assert set(vars(twin)) <= set(vars(model))
        if is_classifier(kind):
            assert_array_equal(twin.classes_, model.classes_)
            assert twin.classes_.dtype == model.classes_.dtype


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
@every_ensemble
@pytest.mark.parametrize("random_state", [3, np.random.RandomState(3), np.random.default_rng(3)], ids=["integer", "state", "generator"])
def test_going_on_from_a_restored_model(kind, random_state):
    """The model of three fits is the same if one of them was in another process: trees, out-of-bag predictions, losses."""
    forest, boosting = {"bootstrap": True, "oob_score": True, "max_samples": 0.7}, {"subsample": 0.7, "n_iter_no_change": 90}
    own = forest if kind in FORESTS else boosting
    if is_classifier(kind):
        own["class_weight"] = {"low": 2.0}
    model = make(kind, warm_start=True, random_state=copy.deepcopy(random_state), **own).fit(X, target(kind), WEIGHT)
    model.set_params(n_estimators=20, max_depth=3).fit(X, target(kind), WEIGHT)
    metadata, arrays = model._to_state()
    restored = kind._from_state(json.loads(json.dumps(metadata)), arrays)
    for goes_on in (model, restored):
        goes_on.set_params(n_estimators=25, max_depth=None).fit(X, target(kind), WEIGHT)
    assert_same_trees(restored, model)
    for name in ("oob_score_", "oob_prediction_", "oob_decision_function_", "train_score_", "validation_score_"):
        assert hasattr(restored, name) == hasattr(model, name)
        assert_array_equal(getattr(restored, name, 0), getattr(model, name, 0))


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
@every_ensemble
def test_a_continued_fit_is_saved_as_one_in_one_go(kind, tmp_path):
    def saved(model):
        dtrees.save(model, tmp_path / "model")
        return (tmp_path / "model").read_bytes()

    own = {"bootstrap": True, "oob_score": True} if kind in FORESTS else {"subsample": 0.7}
    whole = make(kind, warm_start=True, **own).fit(X, target(kind), WEIGHT)
    model = make(kind, warm_start=True, n_estimators=3, **own).fit(X, target(kind), WEIGHT)
    saved(model)
    for one in (model, dtrees.load(tmp_path / "model")):
        assert saved(one.set_params(n_estimators=8).fit(X, target(kind), WEIGHT)) == saved(whole)


@every_forest
def test_trees_on_other_rows_are_a_batch_of_their_own(kind):
    model = make(kind, warm_start=True, bootstrap=True, n_estimators=3).fit(X, target(kind))
    first = model.estimators_samples_
    model.set_params(n_estimators=8).fit(X, target(kind), np.where(WEIGHT > 0, 1.0, 0.0)).set_params(n_estimators=9).fit(X, target(kind))
    assert [batch[1:] for batch in model._batches] == [(0, 3), (3, 8), (8, 9)]
    assert_array_equal(np.concatenate(model.estimators_samples_[:3]), np.concatenate(first))


@every_ensemble
def test_going_on_from_a_model_that_did_not_keep_how_it_was_grown(kind):
    metadata, arrays = make(kind, warm_start=True).fit(X, target(kind))._to_state()
    del metadata["seed"]
    restored = kind._from_state(metadata, arrays)
    with pytest.raises(ValueError, match="warm_start=True cannot go on from this model"):
        restored.set_params(n_estimators=20).fit(X, target(kind))
    restored.set_params(warm_start=False).fit(X, target(kind))


def damaged_plan(metadata, **changes):
    (plan, first, last), *rest = metadata["batches"]
    return {**metadata, "batches": [[plan | changes, first, last], *rest]}


@every_forest
def test_damaged_plans(kind):
    metadata, arrays = make(kind).fit(X, target(kind))._to_state()
    for damage in (
        damaged_plan(metadata, n_classes=7),
        damaged_plan(metadata, max_features=6),
        damaged_plan(metadata, columns_per_tree=0),
        damaged_plan(metadata, criterion=77),
        damaged_plan(metadata, class_weight=[1.0]),
        {**metadata, "batches": [[metadata["batches"][0][0], 0, 5]]},
        {**metadata, "batches": [[metadata["batches"][0][0], 1, 8]]},
        {**metadata, "batches": [[{}, 0, 8]]},
        {**metadata, "batches": 3},
        {**metadata, "seed": "x"},
    ):
        with pytest.raises(ValueError, match="the model's|the state|criterion|Criterion|invalid literal|seed"):
            kind._from_state(damage, arrays)


@pytest.mark.parametrize(
    "labels", [[0, 1], [-1.0, 2.0], [False, True], ["a", "b"], np.array(["a", "b"], dtype=object), pd.array(["a", "b"])]
)
def test_labels_of_all_types_survive(labels):
    y = np.asarray(labels)[(SIGNAL > 0).astype(int)]
    model = make(dtrees.RandomForestClassifier, class_weight={labels[0]: 2.0, labels[1]: 1.0}).fit(X, y)
    metadata, arrays = model._to_state()
    restored = dtrees.RandomForestClassifier._from_state(json.loads(json.dumps(metadata)), arrays)
    assert_array_equal(restored.predict(X), model.predict(X))
    assert restored.predict(X).dtype == model.predict(X).dtype == y.dtype


@every_kind
def test_damaged_states(kind):
    model = make(kind).fit(X, target(kind))
    metadata, arrays = model._to_state()
    damages = [
        ({**metadata, "schema": metadata["schema"][:2]}, arrays),
        ({key: value for key, value in metadata.items() if key != "parameters"}, arrays),
        ({**metadata, "parameters": {"no_such": 1}}, arrays),
        ({**metadata, "attributes": {"__class__": 1}}, arrays),
        (metadata, {key: value for key, value in arrays.items() if key != "trees.feature"}),
        (metadata, {**arrays, "trees.feature": arrays["trees.feature"] + 7}),
        (metadata, {**arrays, "trees.threshold": arrays["trees.threshold"][:-1]}),
        (metadata, {**arrays, "trees.node_counts": arrays["trees.node_counts"] + 1}),
        (metadata, {**arrays, "trees.node_counts": -arrays["trees.node_counts"]}),
        (metadata, {**arrays, "trees.value": arrays["trees.value"][:, :0]}),
        (metadata, {**arrays, "trees.value": arrays["trees.value"] * np.nan}),
        (metadata, {**arrays, "initial": np.full(9, 0.0)}),
    ]
    if "trees.children_right" in arrays:  # it is left out where trees are large
        damages.append((metadata, {**arrays, "trees.children_right": np.zeros_like(arrays["trees.children_right"])}))
    if is_classifier(kind):
        damages.append(({**metadata, "classes": {"dtype": "<U4", "values": []}}, arrays))
        damages.append(({**metadata, "classes": {"dtype": "<U4", "values": [[1], [2], [3]]}}, arrays))
    for damaged in damages:
        with pytest.raises(ValueError, match=r"damaged|model's|tree"):
            kind._from_state(*damaged)


@pytest.mark.parametrize("n_nodes", ["few", "many"])
def test_a_pickle_is_a_few_arrays(n_nodes):
    """joblib keeps a file open for each array that it maps into memory."""
    arrays = []

    class Counting(pickle.Pickler):
        def reducer_override(self, thing):
            arrays.extend([thing] * isinstance(thing, np.ndarray))
            return NotImplemented

    depth = {"few": 2, "many": None}[n_nodes]
    rows = np.tile(X, (4, 1)) + np.arange(4 * len(X))[:, np.newaxis] % 7
    for kind, y in ((dtrees.RandomForestRegressor, np.tile(SIGNAL, 4)), (dtrees.GradientBoostingClassifier, np.tile(LABELS, 4))):
        model = make(kind, max_depth=depth, n_estimators=20).fit(rows, y)
        arrays.clear()
        Counting(file := io.BytesIO()).dump(model)
        assert len(arrays) < 20
        again = pickle.loads(file.getvalue())
        assert_same_trees(again, model)
        assert pickle.dumps(model) == pickle.dumps(make(kind, max_depth=depth, n_estimators=20).fit(rows, y))


def test_a_pickle_mapped_into_memory(tmp_path):
    model = make(dtrees.RandomForestClassifier).fit(X, LABELS)
    joblib.dump(model, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r")
    assert_array_equal(mapped.predict_proba(X), model.predict_proba(X))
    assert_same_trees(mapped, model)
