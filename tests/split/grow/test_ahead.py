"""What a helper compiles is what is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dtrees
from dtrees.engine.shard import subtree_runner
from dtrees.split.grow.ahead import kernels_apart


@pytest.mark.parametrize("criterion", ["newton", "gini", "absolute_error"])
def test_kernels_are_compiled_for_the_types_they_are_needed_for(monkeypatch: pytest.MonkeyPatch, criterion: str) -> None:
    apart: list[tuple[Any, tuple[Any, ...]]] = []
    monkeypatch.setattr(subtree_runner, "compile_apart", lambda *arguments: apart.extend(kernels_apart(*arguments)))
    X = np.random.default_rng(0).normal(size=(20_000, 4))
    y = X[:, 0] + X[:, 1] ** 2
    if criterion == "newton":
        dtrees.GradientBoostingRegressor(n_estimators=2, n_jobs=2).fit(X, y)
    elif criterion == "gini":
        dtrees.RandomForestClassifier(2, max_depth=3, n_jobs=2).fit(X, y > 1)
    else:
        dtrees.RandomForestRegressor(2, criterion="absolute_error", max_depth=3, n_jobs=2).fit(X, y)
    assert {kernel.__name__ for kernel, _ in apart} == {
        "newton": {"do_piece"},
        "gini": {"search_by_sums"},
        "absolute_error": set(),
    }[criterion]
    for kernel, argument_types in apart:
        assert argument_types in kernel.overloads
