"""Fits that need nearly all kernels, for columns of a type: ``python -m tests.first_fits float32``."""

from __future__ import annotations

import sys

import numpy as np

import dtrees
from dtrees.engine.plan.plans import ForestPlan
from tests.engine.shards import grow_sharded, rules


def main(dtype: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((5000, 4)).astype(dtype)
    y = X[:, 0] + X[:, 1] ** 2
    label = (4 * y).astype(int) % 3
    dtrees.GradientBoostingRegressor(n_estimators=2).fit(X, y).predict(X)
    dtrees.GradientBoostingClassifier(n_estimators=2, max_depth=2).fit(X, label).predict(X)
    for criterion in ("squared_error", "absolute_error"):
        dtrees.RandomForestRegressor(2, criterion=criterion, max_features=2, max_depth=4).fit(X, y).predict(X)
        dtrees.ExtraTreesRegressor(2, criterion=criterion, max_depth=4).fit(X, y)
    dtrees.RandomForestClassifier(2, max_depth=4).fit(X, label).predict(X)
    table = [*X[:, :3].T, np.zeros(len(X), dtype)]
    for criterion in ("squared_error", "absolute_error"):
        for changes in ({}, {"max_features": 1}, {"random_splits": True}):
            plan = ForestPlan(rules(criterion, 4, max_depth=3, **changes), 0)
            grow_sharded(table, y.astype(np.float64), None, plan, 1, [[0, 1], [3, 2]])


if __name__ == "__main__":
    main(sys.argv[1])
