import copy
import io
import json
import pickle

import joblib
import numpy as np
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
    is_classifier,
    make,
    target,
)


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


@pytest.mark.parametrize("n_nodes", ["few", "many"])
def test_a_pickle_is_a_few_arrays(n_nodes):
    """joblib opens a file for each array that it maps into memory."""
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
