"""Warnings point at the line of the user's that they are about."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.pipeline import make_pipeline

import dtrees
from dtrees.ensemble.input.warning import collected_warnings

X = np.arange(40.0)[:, None]


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (dtrees.RandomForestRegressor(1, oob_score=True, random_state=0), X[:, 0]),
        (dtrees.RandomForestRegressor(1, max_samples=0.02), X[:, 0]),
        (dtrees.DecisionTreeRegressor(), X),
        (make_pipeline(dtrees.GradientBoostingRegressor(n_estimators=1)), X),
    ],
)
def test_warnings_point_at_the_users_line(model: Any, y: Any) -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.warns((UserWarning, DataConversionWarning)) as warned:
        model.fit(X, y)
    assert {(warning.filename, warning.lineno) for warning in warned} == {(__file__, line)}


def test_warnings_that_are_collected_keep_their_kind() -> None:
    with collected_warnings() as found:
        dtrees.DecisionTreeRegressor().fit(X, X)
    assert [type(warning) for warning in found] == [DataConversionWarning]
