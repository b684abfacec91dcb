"""The number of threads, an ordered pool, and threads that grow subtrees, one of which may fail."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import joblib
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from dtrees import DecisionTreeRegressor, GradientBoostingRegressor, RandomForestRegressor
from dtrees.engine.plan import node_limits
from dtrees.engine.shard import dense_runner as runner
from dtrees.engine.shard import runner as runner_module
from dtrees.engine.shard.node_search import NodeSearch
from dtrees.engine.threads import Threads, available_cores, effective_n_jobs, in_main_thread
from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.work_queue import claim, finish, wait_for
from dtrees.split.grow import work_pool as work_pool_module
from dtrees.split.grow.best_first import was_given_up
from dtrees.split.grow.work_pool import DONE, OPEN, add_chunks, claim_work, give_up, make_work_pool, opening, wait_for_work_pool
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.columns import presort

# --- the number of threads, and an ordered pool ---


def test_effective_n_jobs() -> None:
    cores = available_cores()
    assert cores >= 1
    assert effective_n_jobs(None) == 1
    assert effective_n_jobs(5) == 5
    assert effective_n_jobs(10**30) == 1024
    assert effective_n_jobs(-1) == cores
    assert effective_n_jobs(-cores) == 1
    assert effective_n_jobs(-cores - 100) == 1
    with pytest.raises(ValueError, match="n_jobs is 0; use a positive number of threads, or -1"):
        effective_n_jobs(0)


@pytest.mark.slow  # they import everything
def test_what_joblib_leaves_to_its_processes() -> None:
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(available_cores)() for _ in range(4)) == [1] * 4


@pytest.mark.parametrize(("limit", "expected"), [("1", 1), ("0", 1), ("1000", None), ("", None), ("many", None)])
def test_a_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch, limit: str, expected: int | None) -> None:
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    cores = available_cores()
    monkeypatch.setenv("NUMBA_NUM_THREADS", limit)
    assert available_cores() == (expected or cores)


def test_a_limit_of_openmp() -> None:
    with threadpool_limits(1):
        assert available_cores() == effective_n_jobs(-1) == 1
        assert effective_n_jobs(3) == 3
    with threadpool_limits(1, "blas"):
        cores = available_cores()
    assert available_cores() == cores


@pytest.mark.parametrize("n_threads", [0, 1, 4])
def test_results_come_in_order(n_threads: int) -> None:
    last_began = threading.Event()

    def slow_first(i: int) -> int:
        if i == 0 and n_threads > 1:
            assert last_began.wait(timeout=30)
        if i == 19:
            last_began.set()
        return -i

    with Threads(n_threads) as threads:
        assert threads.n_threads == max(n_threads, 1)
        assert threads.map(slow_first, iter(range(20))) == [-i for i in range(20)]
        assert threads.map(slow_first, []) == []


@pytest.mark.parametrize(
    ("n_threads", "n_rows", "least", "expected"),
    [(1, 10, 3, [10]), (4, 0, 3, [0]), (4, 3, 3, [3]), (4, 10, 3, [3, 3, 3, 1]), (2, 10, 3, [5, 5]), (3, 100, 1, [34, 34, 32])],
)
def test_ranges_of_rows(n_threads: int, n_rows: int, least: int, expected: list[int]) -> None:
    with Threads(n_threads) as threads:
        ranges = threads.map_ranges(lambda rows: rows, n_rows, least)
    assert [rows.stop - rows.start for rows in ranges] == expected
    assert [row for rows in ranges for row in range(rows.start, rows.stop)] == list(range(n_rows))


def test_several_threads_work_at_once() -> None:
    barrier = threading.Barrier(3, timeout=10)
    with Threads(3) as threads:
        assert sorted(threads.map(lambda _: barrier.wait(), range(3))) == [0, 1, 2]


def test_work_that_is_not_worth_all_threads() -> None:
    with Threads(4) as threads:
        assert set(threads.map(lambda _: threading.get_ident(), range(50), most=1)) == {threading.get_ident()}
        assert len(set(threads.map(lambda _: threading.get_ident(), range(50), most=2))) <= 2
        called: list[int] = []

        def claim_all(queue: NDArray[np.int64], thread: int) -> None:
            called.append(thread)
            queue[8] = 5

        threads.share(5, claim_all, most=1)
        assert called == [0]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_errors_are_passed_on(n_threads: int) -> None:
    with Threads(n_threads) as threads, pytest.raises(ZeroDivisionError):
        threads.map(lambda i: 1 // (i - 2), range(4))


@kernel
def take_task(queue: Any) -> Any:
    return claim(queue)


@kernel
def end_task(queue: Any) -> None:
    finish(queue)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_thread_that_fails_while_tasks_are_shared(failing: int) -> None:
    """It has claimed a task that the others wait for. Its error is raised, and the helpers survive."""
    came = threading.Barrier(3)

    def work(queue: NDArray[np.int64], thread: int) -> None:
        take_task(queue)
        came.wait(60)
        if thread == failing:
            raise ZeroDivisionError("mine")
        end_task(queue)
        wait_for(queue, 5)
        assert take_task(queue) > 5

    with Threads(3) as threads:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="mine"):
                threads.share(5, work)


def test_threads_end() -> None:
    before = threading.active_count()
    with Threads(4) as threads:
        threads.map(time.sleep, [0.01] * 8)
    assert threading.active_count() == before


def test_helpers_start_when_they_are_wanted() -> None:
    before = threading.active_count()
    with Threads(4) as threads:
        threads.map(abs, [1])
        threads.share(1, lambda queue, _: None)
        assert threading.active_count() == before
        threads.map(abs, [1, 2])
        assert threading.active_count() == before + 1
        threads.together(3, lambda _: None, lambda: None, lambda: None)
        assert threading.active_count() == before + 2


def interrupt() -> None:
    """Simulate Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_what_is_done_apart() -> None:
    given_up = threading.Event()

    def work(thread: int) -> None:
        if thread == 0:
            interrupt()
        assert given_up.wait(60.0)

    with Threads(2) as threads, pytest.raises(KeyboardInterrupt):
        threads.run_interruptibly(2, work, given_up.set)
    assert given_up.is_set()


def test_ctrl_c_does_not_wait_for_what_goes_on() -> None:
    goes_on, ended = threading.Event(), threading.Event()

    def work(thread: int) -> None:
        interrupt()
        assert goes_on.wait(60.0)
        ended.set()

    with Threads(1) as threads, pytest.raises(KeyboardInterrupt):
        threads.run_interruptibly(1, work, lambda: None)
    assert not ended.is_set()
    goes_on.set()
    assert ended.wait(60.0)


def test_an_error_of_what_is_done_apart_is_raised() -> None:
    given_up = threading.Event()

    def work(thread: int) -> None:
        if thread == 1:
            raise ValueError("no")
        assert given_up.wait(60.0)

    with Threads(2) as threads, pytest.raises(ValueError, match="no"):
        threads.run_interruptibly(2, work, given_up.set)


def test_ctrl_c_ends_a_map() -> None:
    given_up, seen = threading.Event(), []

    def work(i: int) -> None:
        seen.append(i)
        if i == 1:
            interrupt()
        if in_main_thread():
            for _ in range(600):  # a signal right before a wait does not end it
                time.sleep(0.1)
        else:
            assert given_up.wait(60.0)

    with Threads(2) as threads, pytest.raises(KeyboardInterrupt):
        threads.map(work, range(100), give_up=given_up.set)
    assert len(seen) == 2


# --- threads that grow subtrees, one of which fails ---


@kernel
def claim_kind(work_pool: Any) -> Any:
    return claim_work(work_pool)[0]


@kernel
def add_chunk(work_pool: Any) -> None:
    add_chunks(work_pool, OPEN, 0, 1)


def test_nobody_begins_work_after_a_failure() -> None:
    """Nor waits for any, whatever other threads add afterwards."""
    work_pool = make_work_pool(1, 1, 100, 199, 2, 2)
    control, work_pool.chunks[:1], _, _ = opening(work_pool, [(0, 100, 100, 0)], [199])
    work_pool = work_pool._replace(control=control)
    assert claim_kind(work_pool) == OPEN
    give_up(control)
    add_chunk(work_pool)
    assert claim_kind(work_pool) == DONE
    wait_for_work_pool(control)


def test_a_tree_of_too_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_pool_module, "MOST_NODES", 5)
    X = np.arange(40.0)[:, None]
    with pytest.raises(OverflowError, match="a tree of 79 nodes is too large"):
        DecisionTreeRegressor().fit(X, X[:, 0])


@pytest.mark.parametrize("in_helper", [False, True])
def test_a_thread_that_fails(monkeypatch: pytest.MonkeyPatch, in_helper: bool) -> None:
    """It has claimed work that the other thread would wait for."""
    both, came = threading.Barrier(2), []

    def kernel_that_fails(*arguments: Any) -> Any:
        run, *rest = prepare(*arguments)

        def fail_or_run(columns: Any, work_pool: Any, task: Any) -> None:
            came.append(threading.current_thread() is threading.main_thread())
            if came[-1] == in_helper:
                both.wait(60)
                run(columns, work_pool, task)
            else:
                claim_kind(work_pool)
                both.wait(60)
                raise ZeroDivisionError("mine")

        return fail_or_run, *rest

    prepare: Any = runner.SubtreeRunner._prepare
    monkeypatch.setattr(runner.SubtreeRunner, "_prepare", kernel_that_fails)
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
@pytest.mark.parametrize("rare", [0.5, 0.003])
def test_columns_drawn_for_nodes_are_searched_by_zone_sums(monkeypatch: pytest.MonkeyPatch, n_jobs: int, rare: float) -> None:
    """The trees equal those grown without. If all columns drawn for a node are constant, drawing continues."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((40_000, 9)) < rare, rng.normal(size=(40_000, 9)), 0.0)
    X[::50, 3], X[:, 8] = np.nan, rng.integers(0, 9, 40_000)
    y = np.nan_to_num(X) @ np.arange(9.0) + rng.normal(size=40_000)
    summed, sum_slots, grown = list[int](), NodeSearch.sum_slots, list[Any]()

    def note(search: NodeSearch, n_threads: int, most_splits: int) -> Any:
        summed.append(n_threads)
        return sum_slots(search, n_threads, most_splits)

    monkeypatch.setattr(NodeSearch, "sum_slots", note)
    for share in (0.0, 2.0):
        monkeypatch.setattr(node_limits, "SUMMED_SHARE", share)
        model = GradientBoostingRegressor(
            n_estimators=4, max_depth=7, max_features=2, categorical_features=[8], random_state=0, n_jobs=n_jobs
        )
        grown.append(model.fit(X, y).predict(X))
        assert bool(summed) == (share == 0.0)
        summed.clear()
    assert np.array_equal(*grown)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_gives_up_the_trees_under_way(monkeypatch: pytest.MonkeyPatch, n_jobs: int) -> None:
    """Kernels begin after it has been pressed, and would not end unless they were stopped."""
    monkeypatch.setattr(runner_module, "INTERRUPTIBLE_CELLS", 0)
    ended = []

    def kernel_that_waits(*arguments: Any) -> Any:
        def run(columns: Any, work_pool: Any, task: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT) if not ended else None
            while not was_given_up(task.budget.control):
                time.sleep(0.001)
            kernel_of(columns, work_pool, task)
            ended.append(work_pool.parts.records["column"][0])

        kernel_of, *rest = prepare(*arguments)
        return run, *rest

    prepare: Any = runner.SubtreeRunner._prepare
    monkeypatch.setattr(runner.SubtreeRunner, "_prepare", kernel_that_waits)
    model = RandomForestRegressor(n_estimators=4, random_state=0, n_jobs=n_jobs)
    X = np.random.default_rng(0).normal(size=(500, 3))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, 0])
    assert ended
    assert not model.__sklearn_is_fitted__()


def test_scratch_space_of_threads_that_come_later() -> None:
    """If the space of the first thread is large enough for a tree, so is that of others, whichever trees they were created for."""
    threads = runner.SubtreeRunner(presort([np.arange(200.0)]), Threads(1))

    def scratch(thread: int, n_rows: int, categories: bool = False) -> Scratch:
        make = lambda n, n_distinct: make_scratch(n, n_distinct, 0, np.empty(0, np.int64), categories)  # noqa: E731
        return threads.scratch_for(thread, n_rows, categories, make)

    first = scratch(0, 100)
    assert scratch(1, 50).keys.shape[0] >= first.keys.shape[0]
    assert scratch(0, 100) is first
    assert scratch(0, 101) is not first
    assert scratch(0, 100, True).groups is not None
