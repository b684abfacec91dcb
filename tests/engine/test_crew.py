"""The threads that grow subtrees, where one of them fails."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from dtrees import GradientBoostingRegressor
from dtrees.engine import crew
from dtrees.split.board import claim_work
from dtrees.split.kernel import bind, kernel


@kernel
def claim(team: Any) -> None:
    claim_work(team)


@pytest.mark.parametrize("in_helper", [False, True])
def test_a_thread_that_fails(monkeypatch: pytest.MonkeyPatch, in_helper: bool) -> None:
    """It has claimed work, which the other thread would wait for."""
    both, came = threading.Barrier(2), []

    def bind_what_fails(*arguments: Any) -> Any:
        run = bind(*arguments)

        def fail_or_run(columns: Any, team: Any, task: Any) -> None:
            came.append(threading.current_thread() is threading.main_thread())
            if came[-1] == in_helper:
                both.wait(60)
                run(columns, team, task)
            else:
                claim(team)
                both.wait(60)
                raise ZeroDivisionError("mine")

        return fail_or_run

    monkeypatch.setattr(crew, "bind", bind_what_fails)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 8))
    with pytest.raises(ZeroDivisionError, match="mine"):
        GradientBoostingRegressor(n_estimators=2, n_jobs=2).fit(X, X[:, 0] + rng.normal(size=30_000))
    assert sorted(came) == [False, True]
