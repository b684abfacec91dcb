"""Fits on a cluster, depending on the placement: in tasks with whole tables, or over shards on several workers. The model is the same.

On one worker, boosting is a single task with all threads of the worker; messages to a shard would only add latency. If the worker is lost,
Dask runs the task elsewhere. Over shards, many trees of a forest grow side by side. With whole tables, forests and bags grow by tasks: each
grows a batch of trees, or a booster, from the table on its worker. The result does not depend on which worker grows a batch, on the
batches, or on repetitions (the tasks of a lost worker are simply run again).

Batches are assigned during the fit. Each thread has one batch in growth and one waiting, so that it is never idle while a message is on its
way. Batches get smaller towards the end, so that all threads end at about the same time. Workers that join receive batches if they have the
memory for the table. Each batch is sent to a specific worker, since Dask would send all of them to the one that holds the table at first;
any other worker may take over batches of a lost or slow one.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.data.columns import ClusterColumns
from dtrees.cluster.data.memory import BATCHES_PER_THREAD_OUT_OF_BAG, SUMMED_AT_ONCE, WorkerCapacity, running, worker_capacities
from dtrees.cluster.data.placement import Plan, needed_for_all, nthreads
from dtrees.cluster.errors import exits_as_errors
from dtrees.cluster.growing.evaluation import ClusterEvaluation
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.shards import WorkerShards
from dtrees.cluster.reliability.fit import Fit, Reporting, WholeTables, current_fit, log_of
from dtrees.cluster.reliability.waiting import Tasks
from dtrees.cluster.transport.clients import own_client
from dtrees.cluster.transport.events import publish
from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.rows.tree import trees_at_once
from dtrees.engine.run import boosting_rounds as boosting
from dtrees.engine.run.lasting import LastingForest, trees_side_by_side
from dtrees.engine.run.local_executor import LocalExecutor
from dtrees.engine.run.local_executor import grow_forest as grow_here
from dtrees.engine.run.saving import grow_in_batches, without_checkpoint
from dtrees.engine.threads import available_cores
from dtrees.ensemble.backend import GrowOne, Table
from dtrees.ensemble.evaluation_sets import LocalEvaluation, LocalSets
from dtrees.ensemble.metrics import Block
from dtrees.split.table.columns import Columns
from dtrees.tree.tree import Tree

logger = logging.getLogger("dtrees.cluster")

#: Number of batches that are assigned to a thread: one in growth, the others waiting.
_AT_A_TIME = 2
#: A batch has this fraction (1 / 3) of the remaining trees for each thread.
_SHARE = 3


def boost(
    table: Table, plan: BoostingPlan, previous: Sequence[Sequence[Tree]], initial: NDArray[np.float64] | None, callback: Callback | None
) -> BoostingResult:
    """Boost; see :func:`dtrees.engine.run.boosting_rounds.boost`.

    Raises
    ------
    WorkerLost
        If lost workers cannot be replaced.
    SchedulerLost
        If the scheduler is lost.
    FitCancelled
        If the fit is no longer wanted.
    """
    columns, sets, fit = table.columns, table.evaluation, current_fit()
    if columns.plan.placement.kind == "one-worker":
        boost_here = partial(_boost_here, plan, previous, initial, callback, (fit.name, fit.turn), None if sets is None else sets.about)
        data = *columns.blocks, columns.target, columns.weight, [] if sets is None else sets.blocks
        with Tasks(columns.client) as tasks:
            return tasks.waiter.gather([tasks.submit("boost", boost_here, *data, on=columns.workers[0])])[0]
    with contextlib.ExitStack() as stack:
        shards = stack.enter_context(contextlib.closing(WorkerShards(columns)))
        evaluation = None if sets is None else stack.enter_context(contextlib.closing(ClusterEvaluation(sets)))
        log = log_of(fit, columns.client, plan)
        return boosting.boost(shards, plan, previous, initial, Reporting(fit, "round", callback, shards.timings), log, evaluation)


def _boost_here(
    plan: BoostingPlan, previous: Any, initial: Any, callback: Callback | None, run: tuple[str, int], about: LocalSets | None,
    columns: Columns, target: NDArray[Any], weight: NDArray[np.float64] | None, evaluated: list[Block],
) -> BoostingResult:  # fmt: skip
    """Boost in a task; ``run`` has the name of the fit and the turn."""
    share_kernels()
    fit = Fit(run[0], current_fit().settings, run[1])
    n_threads = available_cores()
    evaluation = None if about is None else LocalEvaluation(replace(about, blocks=tuple(evaluated)), n_threads)
    log = log_of(fit, own_client(), plan)
    with LocalExecutor(columns, target, weight, n_threads) as executor, exits_as_errors():
        return boosting.boost(executor, plan, previous, initial, WholeTables(fit, "round", callback), log, evaluation)


def grow_forest(table: Table, plan: ForestPlan, first: int, last: int, callback: Callback | None) -> ForestResult:
    """Grow the trees ``first`` to ``last - 1``; raises as :func:`boost` does."""
    bare, fit = without_checkpoint(plan), current_fit()
    with contextlib.ExitStack() as stack:
        if table.columns.plan.placement.kind not in ("sharded", "rows"):

            def grow(first: int, last: int, callback: Callback | None) -> ForestResult:
                return _grow_by_tasks(table, bare, first, last, Reporting(fit, "tree", callback))

        else:
            shards = stack.enter_context(contextlib.closing(WorkerShards(table.columns)))
            # With out-of-bag sums, restored trees would have to be grown again.
            log = None if plan.out_of_bag else log_of(fit, table.columns.client, plan)
            n = _side_by_side(table, plan)
            logger.info("growing up to %d trees side by side over %d shards", n, shards.n_shards)

            def grow(first: int, last: int, callback: Callback | None) -> ForestResult:
                report = Reporting(fit, "tree", callback, shards.timings)
                return LastingForest(shards, bare, first, last, n).run(report, log)

        return grow_in_batches(grow, plan, first, last, callback)


def _side_by_side(table: Table, plan: ForestPlan) -> int:
    """Return the number of trees of a forest to grow side by side over shards."""
    columns, spare = table.columns, min(table.columns.plan.spare.values())
    if not columns.places_rows:
        return trees_side_by_side(plan, columns.n_rows, table.weight is not None, spare)
    threads, n_rows = nthreads(columns.client), max(columns.share(i)[1] for i in range(len(columns.blocks)))
    return trees_at_once(plan, n_rows, max((threads[worker] for worker in columns.workers if worker in threads), default=1), spare)


@dataclass(frozen=True)
class Batch:
    """The trees ``first`` to ``last - 1``, the preferred worker, and the number of threads."""

    first: int
    last: int
    worker: str
    n_threads: int


class Batches:
    """The trees that are not yet assigned to workers.

    Parameters
    ----------
    first, last : int
        The trees to grow are ``first`` to ``last - 1``.
    per_thread : int or None, default=None
        Number of batches for each thread, all of the same size and assigned at once; None for batches that get smaller.
    size : int or None, default=None
        Number of trees of each batch; batches are assigned as threads become free.

    Examples
    --------
    >>> batches = Batches(0, 24)
    >>> [(batch.first, batch.last, batch.worker) for batch in batches.give({"a": 1, "b": 1})]
    [(0, 4, 'a'), (4, 7, 'b'), (7, 9, 'a'), (9, 11, 'b')]
    >>> batches.done(1)
    >>> batches.give({"a": 1, "b": 1})
    [Batch(first=11, last=13, worker='b', n_threads=1)]
    >>> Batches(0, 1).give({"a": 4})
    [Batch(first=0, last=1, worker='a', n_threads=4)]
    """

    def __init__(self, first: int, last: int, per_thread: int | None = None, size: int | None = None) -> None:
        self._left = range(first, last)
        self._per_thread = per_thread
        self._size = size
        self._given: list[Batch] = []
        self._under_way: Counter[str] = Counter()

    def give(self, threads: Mapping[str, int]) -> list[Batch]:
        """Assign batches to workers that have too few; ``threads`` has the current workers."""
        n_threads = sum(threads.values())
        if self._per_thread is not None and self._size is None:
            self._size = -(-len(self._left) // (self._per_thread * n_threads))
        given: list[tuple[int, int, str]] = []
        while self._left:
            worker = min(threads, key=lambda worker: (self._under_way[worker] / threads[worker], worker))
            if self._per_thread is None and self._under_way[worker] >= _AT_A_TIME * threads[worker]:
                break
            size = self._size or max(1, len(self._left) // (_SHARE * n_threads))
            given.append((self._left[0], self._left[:size][-1] + 1, worker))
            self._left = self._left[size:]
            self._under_way[worker] += 1
        # With fewer trees than threads, a tree gets several threads.
        batches = [Batch(first, last, worker, max(1, threads[worker] // self._under_way[worker])) for first, last, worker in given]
        self._given += batches
        return batches

    def done(self, i: int) -> None:
        """Record that the ``i``-th assigned batch is done."""
        self._under_way[self._given[i].worker] -= 1


class ForestWorkers:
    """The workers that grow the trees of a forest.

    Parameters
    ----------
    plan : Plan
    n_trees : int
    """

    def __init__(self, plan: Plan, n_trees: int) -> None:
        self._plan, self._n_trees = plan, n_trees
        self._able = set(plan.placement.workers)
        self._threads: dict[str, int] = {}

    def threads(self, capacities: Mapping[str, WorkerCapacity]) -> dict[str, int]:
        """Return the number of threads of the current workers that can hold the table; if there are none, of the previous ones."""
        for worker, capacity in capacities.items() if self._plan.placement.kind == "replicated" else ():
            if needed_for_all(self._plan.sizes, capacity.threads, self._n_trees) <= capacity.free:
                self._able.add(worker)
        # If all workers for which the table was made are lost, any other is used.
        able = self._able & capacities.keys() or capacities.keys()
        self._threads = {worker: capacities[worker].threads for worker in sorted(able)} or self._threads
        return self._threads


def _completed(tasks: Tasks, columns: ClusterColumns, batches: Batches, n: int, submit: Callable[[Batch], Future]) -> Iterator[Any]:
    """Assign batches to workers with free threads; yield the results of all, in the order of the batches."""
    workers, futures = ForestWorkers(columns.plan, n), list[Future]()

    def give(capacities: Mapping[str, WorkerCapacity]) -> None:
        futures.extend(submit(batch) for batch in batches.give(workers.threads(capacities)))

    give(worker_capacities(columns.client))
    waiting: dict[int, Any] = {}
    following = 0
    for i, result in tasks.waiter.as_completed(futures):
        batches.done(i)
        give(running(tasks.waiter.workers))
        waiting[i] = result
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _until_stopped(grown: Iterator[Any], n: int, callback: Callback) -> list[Any]:
    """Return what has grown until the callback, called after each of the ``n``, ends the fit."""
    began, found = time.perf_counter(), []
    for one in grown:
        found.append(one)
        if callback(Progress(len(found), n, time.perf_counter() - began)):
            break
    return found


def _submit(tasks: Tasks, stage: str, grow: Callable[..., Any], table: Table, batch: Batch) -> Future:
    """Submit a batch; ``grow`` gets the batch, columns, target, weights, and a callback to be called after each tree."""
    data = *table.columns.blocks, table.columns.target, table.columns.weight
    return tasks.submit(stage, _grow_batch, grow, batch, *data, current_fit().name, on=batch.worker, priority=-batch.first)


def _grow_batch(grow: Callable[..., Any], batch: Batch, columns: Columns, target: Any, weight: Any, name: str) -> Any:
    share_kernels()
    began = time.perf_counter()
    # Without the check, its threads might grow unwanted trees for hours.
    result = grow(batch, columns, target, weight, current_fit().check)
    publish(name, "batch", worker=get_worker().address, seconds=time.perf_counter() - began, trees=batch.last - batch.first)
    return result


def _grow_by_tasks(table: Table, plan: ForestPlan, first: int, last: int, callback: Callback) -> ForestResult:
    """Grow trees from columns in one block.

    The callback is called for trees in order. When it ends the fit, later trees are left out even if they are already grown, so that the
    forest does not depend on timing.
    """
    columns = table.columns
    batches = Batches(first, last, BATCHES_PER_THREAD_OUT_OF_BAG if plan.out_of_bag else None)
    started: list[tuple[Batch, Future]] = []
    with Tasks(columns.client) as tasks:
        submit = partial(_submit, tasks, "trees", partial(_grow_trees, plan), table)

        def start(batch: Batch) -> Future:
            result = submit(batch)
            started.append((batch, result))
            return tasks.submit("unpack", _without_sums, result) if plan.out_of_bag else result

        in_order = _completed(tasks, columns, batches, last - first, start)
        grown = _until_stopped((tree for result in in_order for tree in result.trees), last - first, callback)
        if not plan.out_of_bag:
            return ForestResult(grown)
        end = first + len(grown)
        used = [result for batch, result in started if batch.last <= end]
        used += [submit(replace(batch, last=end)) for batch, _ in started if batch.first < end < batch.last]
        while len(used) > SUMMED_AT_ONCE:
            groups = [used[i : i + SUMMED_AT_ONCE] for i in range(0, len(used), SUMMED_AT_ONCE)]
            used = [tasks.submit("oob", _sum_out_of_bag, group) for group in groups]
        (result,) = tasks.waiter.gather([tasks.submit("oob", _sum_out_of_bag, used)])
        return replace(result, trees=grown)


def _grow_trees(plan: ForestPlan, batch: Batch, columns: Columns, target: Any, weight: Any, callback: Callback) -> ForestResult:
    return grow_here(columns, target, weight, plan, batch.first, batch.last, batch.n_threads, callback)


def _without_sums(result: ForestResult) -> ForestResult:
    return ForestResult(result.trees)


def _sum_out_of_bag(results: list[ForestResult]) -> ForestResult:
    """Add up sums in fixed point, whose total does not depend on the order."""
    total, count = np.zeros_like(results[0].oob_sum), np.zeros_like(results[0].oob_count)
    for result in results:  # one at a time: np.sum would make an array of all
        total += result.oob_sum
        count += result.oob_count
    return ForestResult([], total, count, results[0].oob_exponent)


def grow_bag(table: Table, grow: GrowOne, n: int, callback: Callback | None) -> list[Any]:
    """Return the boosters with numbers below ``n``, each grown by a task on a worker that has the table.

    The callback is called for them in order; when it ends the fit, later ones are left out even if they are already grown.
    """
    columns = table.columns
    about = replace(table, columns=None, target=None, weight=None)
    with Tasks(columns.client) as tasks:
        start = partial(_submit, tasks, "booster", partial(_grow_booster, grow, about), table)
        return _until_stopped(_completed(tasks, columns, Batches(0, n, size=1), n, start), n, Reporting(current_fit(), "tree", callback))


def _grow_booster(grow: GrowOne, about: Table, batch: Batch, columns: Columns, target: Any, weight: Any, callback: Callback) -> Any:
    table = replace(about, columns=columns, target=target, weight=weight, n_jobs=batch.n_threads)
    return grow(table, batch.first, callback)
