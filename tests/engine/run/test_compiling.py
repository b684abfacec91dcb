"""What is compiled before it is needed."""

from __future__ import annotations

import numpy as np

import dtrees
from dtrees.engine.run.compiling import compile_division
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.node.partition import divide_many, mark_many


def test_division() -> None:
    compile_division()
    assert mark_many.signatures
    assert divide_many.signatures


def test_columns_of_both_precisions_take_the_same_kernels() -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    y = X[:, 0] + X[:, 1] ** 2
    dtrees.RandomForestRegressor(2, max_features=2, max_depth=4).fit(X, y)
    before = len(grow_together.overloads)
    dtrees.RandomForestRegressor(2, max_features=2, max_depth=4).fit(X.astype(np.float32), y)
    assert len(grow_together.overloads) == before
