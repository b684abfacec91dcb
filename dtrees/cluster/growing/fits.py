"""Fits on a cluster, as their tables are placed: in tasks that have whole tables, or over shards on several workers. The model is the same.

On one worker, boosting is a single task, which uses all threads of its worker: messages to a shard would only add latency. If the worker is
lost, Dask runs the task elsewhere. Forests from whole tables grow by tasks, too (:mod:`dtrees.cluster.growing.by_tasks`); over shards,
many trees grow side by side.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.placement import nthreads
from dtrees.cluster.data.row_blocks import ClusterRows
from dtrees.cluster.errors import exits_as_errors
from dtrees.cluster.growing import by_tasks
from dtrees.cluster.growing.evaluation import ClusterEvaluation
from dtrees.cluster.growing.executors import DaskExecutor, DaskRowsExecutor
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.reporting import Reporting, WholeTables
from dtrees.cluster.reliability.fit_context import Fit, current_fit
from dtrees.cluster.reliability.fit_record import log_of
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.transport.clients import own_client
from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback, ForestPlan, ForestResult
from dtrees.engine.rows.fit import grow_forest_on_rows
from dtrees.engine.rows.forests.tree import trees_at_once
from dtrees.engine.run import boosting_rounds as boosting
from dtrees.engine.run.local_executor import LocalExecutor
from dtrees.engine.run.lockstep import grow_forest_on_shards, trees_side_by_side
from dtrees.engine.run.saving import grow_in_batches, without_checkpoint
from dtrees.ensemble.backend import Table
from dtrees.ensemble.evaluation_sets import LocalEvaluation, LocalSets
from dtrees.ensemble.metrics import Block
from dtrees.split.table.columns import Columns
from dtrees.tree.tree import Tree

logger = logging.getLogger("dtrees.cluster")


def boost(
    table: Table,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]],
    initial: NDArray[np.float64] | None,
    callback: Callback | None,
) -> BoostingResult:
    """Boost; see :func:`dtrees.engine.run.boosting_rounds.boost`.

    Raises
    ------
    WorkerLost
        If workers are lost, and cannot be replaced.
    SchedulerLost
        If the scheduler is.
    FitCancelled
        If nobody wants the fit any more.
    """
    columns, sets, fit = table.columns, table.evaluation, current_fit()
    if columns.placement.kind == "one-worker":
        with Tasks(columns.client) as tasks:
            future = tasks.submit(
                "boost", _boost_here, *columns.blocks, table.target, table.weight, plan, previous, initial, callback, fit.name, fit.turn,
                None if sets is None else sets.about, [] if sets is None else sets.blocks,
                workers=columns.workers, allow_other_workers=True,
            )  # fmt: skip
            return tasks.waiter.gather([future])[0]
    with contextlib.ExitStack() as stack:
        shards = _over_shards(table)
        stack.callback(shards.close)
        evaluation = None if sets is None else stack.enter_context(ClusterEvaluation(sets))
        log = log_of(fit, columns.client, plan)
        return boosting.boost(shards, plan, previous, initial, Reporting(fit, "round", callback, shards.timings), log, evaluation)


def grow_forest(table: Table, plan: ForestPlan, first: int, last: int, callback: Callback | None) -> ForestResult:
    """Grow the trees ``first`` to ``last - 1``; raises as :func:`boost` does."""
    columns, bare, fit = table.columns, without_checkpoint(plan), current_fit()
    with contextlib.ExitStack() as stack:
        if columns.placement.kind not in ("sharded", "rows"):

            def grow(first: int, last: int, callback: Callback | None) -> ForestResult:
                return by_tasks.grow_forest(table, bare, first, last, Reporting(fit, "tree", callback))

        else:
            shards = _over_shards(table)
            stack.callback(shards.close)
            # Trees that are brought back would have to be grown again for their out-of-bag sums.
            log = None if plan.out_of_bag else log_of(fit, columns.client, plan)
            n = _side_by_side(table, plan)
            logger.info("growing up to %d trees side by side over %d shards", n, shards.n_shards)

            def grow(first: int, last: int, callback: Callback | None) -> ForestResult:
                report = Reporting(fit, "tree", callback, shards.timings)
                if isinstance(shards, DaskRowsExecutor):
                    return grow_forest_on_rows(shards, bare, first, last, report, log, n_side_by_side=n)
                return grow_forest_on_shards(shards, bare, first, last, n, report, log)

        return grow_in_batches(grow, plan, first, last, callback)


def _over_shards(table: Table) -> DaskExecutor | DaskRowsExecutor:
    if isinstance(table.columns, ClusterRows):
        return DaskRowsExecutor(table.columns)
    return DaskExecutor(table.columns, table.target, table.weight)


def _side_by_side(table: Table, plan: ForestPlan) -> int:
    """Return how many trees of a forest are to grow at a time over shards."""
    columns, spare = table.columns, min(table.columns.spare.values())
    if not isinstance(columns, ClusterRows):
        return trees_side_by_side(plan, columns.n_rows, table.weight is not None, spare)
    threads, n_rows = nthreads(columns.client), max(map(columns.rows_of, range(len(columns.blocks))))
    return trees_at_once(plan, n_rows, max((threads[worker] for worker in columns.workers if worker in threads), default=1), spare)


def _boost_here(
    columns: Columns,
    target: NDArray[Any],
    weight: NDArray[np.float64] | None,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]],
    initial: NDArray[np.float64] | None,
    callback: Callback | None,
    name: str,
    turn: int,
    about: LocalSets | None,
    evaluated: list[Block],
) -> BoostingResult:
    """Boost in a task."""
    share_kernels()
    fit = Fit(name, current_fit().settings, turn)
    n_threads = threads_of(get_worker())
    evaluation = None if about is None else LocalEvaluation(replace(about, blocks=tuple(evaluated)), n_threads)
    log = log_of(fit, own_client(), plan)
    with LocalExecutor(columns, target, weight, n_threads) as executor, exits_as_errors():
        return boosting.boost(executor, plan, previous, initial, WholeTables(fit, "round", callback), log, evaluation)
