"""Models as ONNX: labels, infinities, names of columns, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import dtrees
from dtrees import to_onnx
from tests.interop.cases import FULL, PEOPLE, SIGNAL, WAGE, X
from tests.interop.test_predictions import check_onnx

pytestmark = pytest.mark.slow
pytest.importorskip("onnx")


@pytest.mark.parametrize("labels", [np.array([3, 7]), np.array([False, True]), np.array(["b", "ä"], dtype=object)])
def test_labels_of_every_kind(labels: np.ndarray) -> None:
    check_onnx(dtrees.DecisionTreeClassifier(max_depth=3).fit(X, labels[(SIGNAL > 0).astype(int)]), X)


def test_infinities() -> None:
    for dtype in (np.float32, np.float64):
        table = np.where(X > 1, np.inf, np.where(X < -1, -np.inf, X)).astype(dtype)
        check_onnx(dtrees.DecisionTreeRegressor(max_depth=5).fit(table, SIGNAL), table)


def test_names_and_categories_are_in_the_metadata() -> None:
    made = to_onnx(dtrees.DecisionTreeRegressor().fit(PEOPLE, WAGE))
    found = {entry.key: entry.value for entry in made.metadata_props}
    assert found["columns"] == '["job", "age", "town"]'
    assert '"job 39"], null, ["Aachen", "Bonn", "Celle"]]' in found["categories"]


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"starts from an estimator \(init=LinearRegression\), which ONNX cannot carry"):
        to_onnx(dtrees.GradientBoostingRegressor(n_estimators=2, init=LinearRegression()).fit(FULL, SIGNAL))
