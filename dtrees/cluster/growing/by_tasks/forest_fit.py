"""Forests by tasks: each grows a batch of trees, with one thread, from the whole table that its worker holds.

Or, where columns are spread over workers, over shards: many trees side by side (:mod:`dtrees.engine.run.lockstep`). Where workers keep
rows, over shards as well, side by side too (:mod:`dtrees.engine.rows.forests`).

A tree is a function of its number, the plan and the table. Which worker grows it, in which batch, and how often (a lost worker's tasks
are simply run again) leaves no trace in the result.

Each batch is sent to a certain worker (:mod:`dtrees.cluster.growing.by_tasks.tree_batches`), since Dask would send all of them to the one
that holds the table at first; any other worker may take them over when one is lost or slow.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.data.memory import BATCHES_PER_THREAD_OUT_OF_BAG, SUMMED_AT_ONCE, running, worker_capacities
from dtrees.cluster.data.placement import nthreads
from dtrees.cluster.data.row_blocks import ClusterRows
from dtrees.cluster.growing.by_tasks.tree_batches import Batch, Batches, ForestWorkers
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.reporting import Reporting
from dtrees.cluster.growing.shards.column_executor import DaskExecutor
from dtrees.cluster.growing.shards.row_executor import DaskRowsExecutor
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.reliability.tree_log import log_of
from dtrees.cluster.transport.events import tell
from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.rows.fit import grow_forest_on_rows
from dtrees.engine.rows.forests.tree import trees_at_once
from dtrees.engine.rows.refusal import rows_placement_refusal
from dtrees.engine.run.lockstep import grow_forest_on_shards, trees_side_by_side
from dtrees.engine.run.saving import without_checkpoint
from dtrees.split.table.columns import Columns
from dtrees.tree.tree import Tree

logger = logging.getLogger("dtrees.cluster")

#: Grows the trees from the first number to before the second one.
Grow = Callable[[int, int, Callback | None], ForestResult]


@contextlib.contextmanager
def forest_grower(columns: ClusterColumns, target: Future, weight: Future | None, plan: ForestPlan) -> Iterator[Grow]:
    """Give a function that grows trees on the cluster, for as long as the with block lasts.

    Parameters
    ----------
    columns : ClusterColumns
    target : Future of ndarray, shape (n_rows,)
    weight : Future of ndarray, shape (n_rows,), or None
    plan : ForestPlan
        What it says of checkpoints is the caller's business.
    """
    bare, fit = without_checkpoint(plan), current_fit()
    if columns.placement.kind != "sharded":
        yield lambda first, last, callback: grow_forest(columns, target, weight, bare, first, last, Reporting(fit, "tree", callback))
        return
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(DaskExecutor(columns, target, weight))
        # Trees that are brought back would have to be grown again for their out-of-bag sums.
        log = None if plan.out_of_bag else stack.enter_context(log_of(fit, columns.client, plan))
        side_by_side = trees_side_by_side(plan, columns.n_rows, weight is not None, min(columns.spare.values()))
        logger.info("growing up to %d trees side by side over %d shards", side_by_side, executor.n_shards)
        yield lambda first, last, callback: grow_forest_on_shards(
            executor, bare, first, last, side_by_side, Reporting(fit, "tree", callback, executor.timings), log
        )


@contextlib.contextmanager
def forest_grower_on_rows(rows: ClusterRows, plan: ForestPlan, n_trees: int) -> Iterator[Grow]:
    """Give such a function where rows stay where they are, for so many trees in all.

    Raises
    ------
    ValueError
        If the plan wants what shards of rows cannot do.
    """
    refusal = rows_placement_refusal(plan)
    if refusal is not None:
        raise ValueError(refusal)
    bare, fit = without_checkpoint(plan), current_fit()
    with contextlib.ExitStack() as stack:
        executor = DaskRowsExecutor(rows, n_trees, replays=plan.out_of_bag)
        stack.callback(executor.close)
        log = None if plan.out_of_bag else stack.enter_context(log_of(fit, rows.client, plan))
        threads, n_rows = nthreads(rows.client), max(map(rows.rows_of, range(len(rows.blocks))))
        most = max((threads[worker] for worker in rows.workers if worker in threads), default=1)
        side_by_side = trees_at_once(plan, n_rows, most, min(rows.spare.values()))
        logger.info("growing up to %d trees side by side over %d shards", side_by_side, executor.n_shards)
        yield lambda first, last, callback: grow_forest_on_rows(
            executor, bare, first, last, Reporting(fit, "tree", callback, executor.timings), log, n_side_by_side=side_by_side
        )


def grow_forest(
    columns: ClusterColumns,
    target: Future,
    weight: Future | None,
    plan: ForestPlan,
    first: int,
    last: int,
    callback: Callback | None,
) -> ForestResult:
    """Grow the trees ``first`` to ``last - 1`` on the cluster, from columns in one block.

    The callback hears of trees in their order; when it ends the fit, later ones are left out even where they are grown already, so that
    the forest does not depend on timing.
    """
    client = columns.client
    (table,) = columns.blocks
    began = time.perf_counter()
    forest_workers = ForestWorkers(columns, last - first)
    batches = Batches(first, last, BATCHES_PER_THREAD_OUT_OF_BAG if plan.out_of_bag else None)
    with Tasks(client) as tasks:
        grow = _Grow(tasks, table, target, weight, plan)
        grow.start(batches.give(forest_workers.threads(worker_capacities(client))))

        def finished() -> Iterator[tuple[int, ForestResult]]:
            for i, result in tasks.waiter.as_completed(grow.trees):
                batches.done(i)
                grow.start(batches.give(forest_workers.threads(running(tasks.waiter.workers))))
                yield i, result

        grown: list[Tree] = []
        stopped = False
        for batch in in_order(finished()):
            for tree in batch.trees:
                grown.append(tree)
                progress = Progress(len(grown), last - first, time.perf_counter() - began)
                if callback is not None and callback(progress):
                    stopped = True
                    break
            if stopped:
                break
        if not plan.out_of_bag:
            return ForestResult(grown)
        return ForestResult(grown, *grow.out_of_bag(first + len(grown)))


class _Grow:
    """Makes the tasks of one forest.

    Attributes
    ----------
    batches : list of Batch
        What was started, in order.
    results : list of Future
        Of each batch: its trees and its out-of-bag sums.
    trees : list of Future
        Of each batch: its trees alone.
    """

    def __init__(self, tasks: Tasks, table: Future, target: Future, weight: Future | None, plan: ForestPlan) -> None:
        self._tasks = tasks
        self._data = table, target, weight
        self._plan = plan
        self.batches: list[Batch] = []
        self.results: list[Future] = []
        self.trees: list[Future] = []

    def start(self, batches: Iterable[Batch]) -> None:
        """Have batches grown."""
        for batch in batches:
            result = self._submit(batch)
            self.batches.append(batch)
            self.results.append(result)
            self.trees.append(self._tasks.submit("unpack", _without_sums, result) if self._plan.out_of_bag else result)

    def _submit(self, batch: Batch) -> Future:
        return self._tasks.submit(
            "trees", _grow_batch, *self._data, self._plan, batch.first, batch.last, batch.n_threads, current_fit().name,
            workers=[batch.worker], allow_other_workers=True, priority=-batch.first,
        )  # fmt: skip

    def out_of_bag(self, last: int) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None, int]:
        """Return the sums for rows out of bag over the trees up to ``last - 1``."""
        used = [result for batch, result in zip(self.batches, self.results, strict=True) if batch.last <= last]
        used += [self._submit(replace(batch, last=last)) for batch in self.batches if batch.first < last < batch.last]
        while len(used) > 1:
            groups = [used[i : i + SUMMED_AT_ONCE] for i in range(0, len(used), SUMMED_AT_ONCE)]
            used = [self._tasks.submit("oob", _sum_out_of_bag, group) for group in groups]
        (result,) = self._tasks.waiter.gather(self._tasks.map("oob", _without_trees, used))
        return result.oob_sum, result.oob_count, result.oob_exponent


def in_order(completed: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """Yield the values of ``(position, value)`` pairs by position, each as soon as those before it are there."""
    waiting: dict[int, Any] = {}
    following = 0
    for position, value in completed:
        waiting[position] = value
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def _grow_batch(
    columns: Columns,
    target: NDArray[Any],
    weight: NDArray[np.float64] | None,
    plan: ForestPlan,
    first: int,
    last: int,
    n_threads: int,
    name: str,
) -> ForestResult:
    from dtrees.engine.run.forest_growth import grow_forest as grow

    share_kernels()
    # Its threads might else grow trees for hours that nobody wants any more.
    began = time.perf_counter()
    result = grow(columns, target, weight, plan, first, last, n_threads, current_fit().check_after_tree)
    tell(name, "batch", worker=get_worker().address, seconds=time.perf_counter() - began, trees=last - first)
    return result


def _without_sums(result: ForestResult) -> ForestResult:
    return ForestResult(result.trees)


def _without_trees(result: ForestResult) -> ForestResult:
    return ForestResult([], result.oob_sum, result.oob_count, result.oob_exponent)


def _sum_out_of_bag(results: list[ForestResult]) -> ForestResult:
    """Add up sums in fixed point, which is the same in any order."""
    total, count = np.zeros_like(results[0].oob_sum), np.zeros_like(results[0].oob_count)
    for result in results:  # one after the other: np.sum would make an array of all
        total += result.oob_sum
        count += result.oob_count
    return ForestResult([], total, count, results[0].oob_exponent)
