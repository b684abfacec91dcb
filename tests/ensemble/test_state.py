from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dtrees
from tests.ensemble.samples import (
    SIGNAL,
    X,
    assert_same_trees,
    every_kind,
    is_classifier,
    make,
    target,
)


@every_kind
def test_pickle_and_state(kind):
    frame = pd.DataFrame({"x": X[:, 0], "c": np.where(X[:, 1] > 0, "a", "b")})
    model = make(kind).fit(frame, target(kind))
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
        (metadata, {**arrays, "trees.children_left": arrays["trees.children_left"][:-1]}),
        (metadata, {**arrays, "trees.children_right": np.zeros_like(arrays["trees.children_right"])}),
        (metadata, {**arrays, "trees.node_counts": arrays["trees.node_counts"] + 1}),
        (metadata, {**arrays, "trees.node_counts": -arrays["trees.node_counts"]}),
        (metadata, {**arrays, "trees.value": arrays["trees.value"][:, :0]}),
        (metadata, {**arrays, "trees.value": arrays["trees.value"] * np.nan}),
        (metadata, {**arrays, "initial": np.full(9, 0.0)}),
    ]
    if is_classifier(kind):
        damages.append(({**metadata, "classes": {"dtype": "<U4", "values": []}}, arrays))
        damages.append(({**metadata, "classes": {"dtype": "<U4", "values": [[1], [2], [3]]}}, arrays))
    for damaged in damages:
        with pytest.raises(ValueError, match=r"damaged|model's|tree"):
            kind._from_state(*damaged)
