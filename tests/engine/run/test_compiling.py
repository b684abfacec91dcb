"""What is compiled before it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dtrees
from dtrees.engine.run.compiling import compile_division
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.node.partition import divide_many, mark_many
from dtrees.split.search.column import search_many
from tests.slow import level_by_level


def test_division() -> None:
    compile_division()
    assert mark_many.signatures
    assert divide_many.signatures


def test_columns_of_both_precisions_begin_with_the_same_kernels() -> None:
    """A table of the other precision does not make a user wait again."""
    X = np.random.default_rng(0).normal(size=(500, 3))
    y = X[:, 0] + X[:, 1] ** 2
    with level_by_level():
        dtrees.RandomForestRegressor(2, max_features=2, max_depth=4).fit(X, y)
        before = [len(kernel.overloads) for kernel in (search_many, mark_many, divide_many)]
        dtrees.RandomForestRegressor(2, max_features=2, max_depth=4).fit(X.astype(np.float32), y)
    assert [len(kernel.overloads) for kernel in (search_many, mark_many, divide_many)] == before


@pytest.mark.parametrize(
    "model", [dtrees.GradientBoostingRegressor(n_estimators=2), dtrees.RandomForestRegressor(2), dtrees.ExtraTreesRegressor(2)]
)
def test_columns_of_both_precisions_go_on_with_the_same_kernels(model: Any) -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    y = X[:, 0] + X[:, 1] ** 2
    model.fit(X, y)
    before = len(grow_together.overloads)
    model.fit(X.astype(np.float32), y)
    assert len(grow_together.overloads) == before
