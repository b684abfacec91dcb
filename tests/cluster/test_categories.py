"""Columns of categories in Dask collections, whose partitions have dictionaries of their own."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd

from tests.ensemble.samples import assert_same_trees
from tests.ensemble.test_categories import FRAME, NUMBER, Y, sets
from tests.plain import regressor


def test_dask(client):
    frame = FRAME.astype({"level": "category"})
    parts = [
        frame.iloc[first : first + 100].assign(level=lambda part: part["level"].cat.remove_unused_categories())
        for first in (0, 100, 200, 300)
    ]
    X, y = dd.concat([dd.from_pandas(part, npartitions=1) for part in parts]), dd.from_pandas(pd.Series(Y), npartitions=4)
    model = regressor(n_estimators=5, random_state=0)
    assert_same_trees(model.fit(X, y), regressor(n_estimators=5, random_state=0).fit(FRAME, Y))
    by_name = regressor(n_estimators=5, random_state=0, categorical_features=["from_dtype", "number"])
    halves = FRAME.assign(number=np.round(NUMBER))
    X = dd.from_pandas(halves, npartitions=3)
    assert sets(by_name.fit(X, dd.from_pandas(pd.Series(Y), npartitions=3))) > 0
    assert_same_trees(by_name, regressor(n_estimators=5, random_state=0, categorical_features=["from_dtype", "number"]).fit(halves, Y))
