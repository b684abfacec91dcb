"""The threads that grow subtrees, where one of them fails."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dtrees import DecisionTreeRegressor, GradientBoostingRegressor, RandomForestRegressor
from dtrees.engine.shard import dense_runner as runner
from dtrees.engine.shard import runner as runner_module
from dtrees.split.compile.kernels import bind, kernel
from dtrees.split.grow import work_pool as work_pool_module
from dtrees.split.grow.best_first import was_given_up
from dtrees.split.grow.work_pool import DONE, OPEN, add_pieces, claim_work, give_up, make_work_pool, opening, wait_for_work_pool
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.columns import presort


@kernel
def claim(work_pool: Any) -> None:
    claim_work(work_pool)


@kernel
def claim_kind(work_pool: Any) -> Any:
    return claim_work(work_pool)[0]


@kernel
def add_piece(work_pool: Any) -> None:
    add_pieces(work_pool, OPEN, 0, 1)


def test_nobody_begins_work_after_a_failure() -> None:
    """Nor waits for any, whatever other threads add to it afterwards."""
    work_pool = make_work_pool(1, 1, 100, 199, 2, 2)
    start = opening(work_pool, [(0, 100, 100, 0)], [199])
    work_pool.pieces[:1] = start.pieces
    work_pool = work_pool._replace(control=start.control)
    assert claim_kind(work_pool) == OPEN
    give_up(start.control)
    add_piece(work_pool)
    assert claim_kind(work_pool) == DONE
    wait_for_work_pool(start.control)


def test_a_tree_of_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_pool_module, "MOST_NODES", 5)
    X = np.arange(40.0)[:, None]
    with pytest.raises(OverflowError, match="a tree of 79 nodes is too large"):
        DecisionTreeRegressor().fit(X, X[:, 0])


@pytest.mark.parametrize("in_helper", [False, True])
def test_a_thread_that_fails(monkeypatch: pytest.MonkeyPatch, in_helper: bool) -> None:
    """It has claimed work, which the other thread would wait for."""
    both, came = threading.Barrier(2), []

    def bind_what_fails(*arguments: Any) -> Any:
        run = bind(*arguments)

        def fail_or_run(columns: Any, work_pool: Any, task: Any) -> None:
            came.append(threading.current_thread() is threading.main_thread())
            if came[-1] == in_helper:
                both.wait(60)
                run(columns, work_pool, task)
            else:
                claim(work_pool)
                both.wait(60)
                raise ZeroDivisionError("mine")

        return fail_or_run

    monkeypatch.setattr(runner, "bound", lambda *arguments: None)
    monkeypatch.setattr(runner, "bind", bind_what_fails)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 8))
    with pytest.raises(ZeroDivisionError, match="mine"):
        GradientBoostingRegressor(n_estimators=2, n_jobs=2).fit(X, X[:, 0] + rng.normal(size=30_000))
    assert sorted(came) == [False, True]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_trees_that_other_threads_grow_are_the_same(monkeypatch: pytest.MonkeyPatch, sparse: bool, n_jobs: int) -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    y = X[:, 0] * X[:, 1]
    table = csr_array(X) if sparse else X
    expected = [kind(n_estimators=4, random_state=0).fit(X, y).predict(X) for kind in (GradientBoostingRegressor, RandomForestRegressor)]
    monkeypatch.setattr(runner_module, "INTERRUPTIBLE_CELLS", 0)
    kinds = GradientBoostingRegressor, RandomForestRegressor
    grown = [kind(n_estimators=4, random_state=0, n_jobs=n_jobs).fit(table, y).predict(X) for kind in kinds]
    assert np.array_equal(grown, expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_gives_up_the_trees_under_way(monkeypatch: pytest.MonkeyPatch, n_jobs: int) -> None:
    """Kernels begin when it has been pressed, and would not end before somebody told them to."""
    monkeypatch.setattr(runner_module, "INTERRUPTIBLE_CELLS", 0)
    ended = []

    def bind_what_waits(*arguments: Any) -> Any:
        def run(columns: Any, work_pool: Any, task: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT) if not ended else None
            while not was_given_up(task.budget.control):
                time.sleep(0.001)
            kernel_of(columns, work_pool, task)
            ended.append(work_pool.parts.records["column"][0])

        kernel_of = bind(*arguments)
        return run

    monkeypatch.setattr(runner, "bound", bind_what_waits)
    model = RandomForestRegressor(n_estimators=4, random_state=0, n_jobs=n_jobs)
    X = np.random.default_rng(0).normal(size=(500, 3))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, 0])
    assert ended
    assert not model.__sklearn_is_fitted__()


def test_scratch_space_of_threads_that_come_later() -> None:
    """Where the space of the first thread is large enough for a tree, so is that of others, whichever trees they came with."""
    threads = runner.SubtreeRunner(presort([np.arange(200.0)]))

    def scratch(thread: int, n_rows: int, categories: bool = False) -> Scratch:
        make = lambda n, n_distinct: make_scratch(n, n_distinct, 0, np.empty(0, np.int64), categories)  # noqa: E731
        return threads.scratch_for(thread, n_rows, categories, make)

    first = scratch(0, 100)
    assert scratch(1, 50).keys.shape[0] >= first.keys.shape[0]
    assert scratch(0, 100) is first
    assert scratch(0, 101) is not first
    assert scratch(0, 100, True).groups is not None
