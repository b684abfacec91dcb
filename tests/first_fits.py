"""Fits that need nearly all kernels of quick tests: ``python -m tests.first_fits FOLDER front``, and ``back`` in parallel.

One process starts with the first, the other with the last; ``FOLDER``, initially empty, gets a file for each fit that has begun.
"""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

import dtrees
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.run.boosting_rounds import boost
from dtrees.ensemble.objective.regression import SquaredError
from tests.engine.shards import ShardedExecutor, grow_sharded, rules
from tests.plain import classifier, regressor

RNG = np.random.default_rng(0)
X = RNG.random((5000, 4))
Y = X[:, 0] + X[:, 1] ** 2
LABEL = (4 * Y).astype(int) % 3
SPREAD = [[0, 1], [3, 2]]
#: A small table, whose large nodes are not searched by zones.
FEW, Y_OF_FEW, LABEL_OF_FEW = X[:300], Y[:300], LABEL[:300]
WITH_TEXT = pd.DataFrame(FEW, columns=list("abcd")).assign(word=RNG.choice(["ash", "elm", "oak"], 300))


def boosting() -> None:
    regressor(n_estimators=2).fit(X, Y).predict(X)
    regressor(n_estimators=2, n_jobs=2).fit(csr_array(X), Y)


def squared_error() -> None:
    for table in (X, csr_array(X)):
        dtrees.ExtraTreesRegressor(2, max_depth=4).fit(table, Y)
    dtrees.RandomForestRegressor(2, max_features=2, max_depth=4).fit(X, Y)
    columns = [*X[:, :3].T, np.zeros(len(X))]
    for changes in ({}, {"max_features": 1}, {"random_splits": True}):
        grow_sharded(columns, Y, None, ForestPlan(rules("squared_error", 4, max_depth=3, **changes), 0), 1, SPREAD)


def categories() -> None:
    regressor(n_estimators=2).fit(WITH_TEXT, Y_OF_FEW).predict(WITH_TEXT)
    table = [np.arange(300.0) % 7, *FEW.T]
    some = rules("newton", 5, max_depth=4, categorical=(0,), cat_smooth=1.0, min_samples_category=(1,), max_cat_threshold=(9,))
    boost(ShardedExecutor(table, Y_OF_FEW, None, [[0, 1], [2, 3, 4]]), BoostingPlan(some, 0, SquaredError(), n_rounds=2))
    grow_sets("squared_error", Y_OF_FEW, 0)


def grow_sets(criterion: str, target: np.ndarray, n_classes: int) -> None:
    some = {"categorical": (0,), "cat_smooth": 1.0, "min_samples_category": (1,), "max_cat_threshold": (9,)}
    for max_features in (5, 2):
        plan = ForestPlan(rules(criterion, 5, max_depth=4, max_features=max_features, **some), 0, n_classes=n_classes)
        grow_sharded([np.arange(300.0) % 7, *FEW.T], target, None, plan, 1, [[0, 1], [2, 3, 4]])


def categories_of_classes() -> None:
    dtrees.DecisionTreeClassifier().fit(WITH_TEXT, LABEL_OF_FEW).predict(WITH_TEXT)
    grow_sets("gini", LABEL_OF_FEW, 3)


def boosting_in_order() -> None:
    regressor(n_estimators=2, monotonic_cst=[1, 0, 0, -1]).fit(FEW, Y_OF_FEW)
    some = rules("newton", 4, max_depth=4, monotonic=(1, 0, 0, -1))
    boost(ShardedExecutor(list(FEW.T), Y_OF_FEW, None, SPREAD), BoostingPlan(some, 0, SquaredError(), n_rounds=2))


def classes() -> None:
    for n_classes in (2, 3):
        dtrees.RandomForestClassifier(2, max_depth=4).fit(X, LABEL % n_classes).predict(X)
        dtrees.RandomForestClassifier(2, max_depth=4).fit(csr_array(X), LABEL % n_classes)
    dtrees.ExtraTreesClassifier(2, max_depth=4).fit(X, LABEL)
    dtrees.ExtraTreesClassifier(2, max_depth=4).fit(csr_array(FEW), LABEL_OF_FEW)
    classifier(n_estimators=2, max_depth=2).fit(X, LABEL).predict(X)


FITS: list[Callable[[], Any]] = [boosting, squared_error, categories, boosting_in_order, categories_of_classes, classes]


def main(folder: str, end: str) -> None:
    gc.disable()  # compiled kernels stay, millions of objects, which would be traversed again and again
    for fit in FITS if end == "front" else FITS[::-1]:
        try:
            (Path(folder) / fit.__name__).touch(exist_ok=False)
        except FileExistsError:
            continue
        fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # freeing everything would take many seconds
