"""Fits that need nearly all kernels, in two parts that take about as long: ``python -m tests.first_fits regression``."""

from __future__ import annotations

import sys

import numpy as np
from scipy.sparse import csr_array

import dtrees
from dtrees.engine.plan.plans import ForestPlan
from tests.engine.shards import grow_sharded, rules
from tests.plain import classifier, regressor


def main(part: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((5000, 4))
    y = X[:, 0] + X[:, 1] ** 2
    if part == "regression":
        regressor(n_estimators=2).fit(X, y).predict(X)
        regressor(n_estimators=2, n_jobs=2).fit(csr_array(X), y)
        dtrees.ExtraTreesRegressor(2, max_depth=4).fit(csr_array(X), y)
        grow("squared_error", X, y)
    else:
        classify(X, (4 * y).astype(int) % 3)
        grow("absolute_error", X, y)


def grow(criterion: str, X: np.ndarray, y: np.ndarray) -> None:
    dtrees.RandomForestRegressor(2, criterion=criterion, max_features=2, max_depth=4).fit(X, y)
    dtrees.ExtraTreesRegressor(2, criterion=criterion, max_depth=4).fit(X, y)
    table = [*X[:, :3].T, np.zeros(len(X))]
    for changes in ({}, {"max_features": 1}, {"random_splits": True}):
        plan = ForestPlan(rules(criterion, 4, max_depth=3, **changes), 0)
        grow_sharded(table, y, None, plan, 1, [[0, 1], [3, 2]])


def classify(X: np.ndarray, label: np.ndarray) -> None:
    for n_classes in (2, 3):
        dtrees.RandomForestClassifier(2, max_depth=4).fit(X, label % n_classes).predict(X)
        dtrees.RandomForestClassifier(2, max_depth=4).fit(csr_array(X), label % n_classes)
    dtrees.ExtraTreesClassifier(2, max_depth=4).fit(X, label)
    classifier(n_estimators=2, max_depth=2).fit(X, label).predict(X)


if __name__ == "__main__":
    main(sys.argv[1])
