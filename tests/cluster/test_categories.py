"""Columns of categories in Dask collections, whose partitions have dictionaries of their own."""

from __future__ import annotations

from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from tests.cluster.cases import CASES, fit, outcome
from tests.ensemble.samples import assert_same_trees, trees
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


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("placement", ["sharded", "replicated"])
def test_sets_of_several_targets(five_threads: Client, tmp_path: Path, placement: str) -> None:
    case = CASES["forest of several targets by sets"]
    here = fit(case, n_jobs=1)
    assert len({int(column) for tree in trees(here) for column in tree.feature[tree.categories.node]}) > 5
    with dask.config.set({"dtrees.placement": placement}):
        assert outcome(fit(case, 7), tmp_path) == outcome(here, tmp_path)
