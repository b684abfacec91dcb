"""Boosting on a cluster, on one worker or over shards on several. The model is the same.

On one worker, boosting is a single task, which uses all threads of its worker: messages to a shard would only add latency. If the worker is
lost, Dask runs the task elsewhere.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.data.row_blocks import ClusterRows
from dtrees.cluster.errors import exits_as_errors
from dtrees.cluster.growing.evaluation import ClusterEvaluation, ClusterSets
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.reporting import Reporting, WholeTables
from dtrees.cluster.growing.shards.column_executor import DaskExecutor
from dtrees.cluster.growing.shards.row_executor import DaskRowsExecutor
from dtrees.cluster.reliability.fit_context import Fit, current_fit
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.reliability.tree_log import log_of
from dtrees.cluster.transport.scheduler_rpc import own_client
from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback
from dtrees.engine.rows.refusal import rows_placement_refusal
from dtrees.engine.run import boosting_rounds as boosting
from dtrees.engine.run.local_executor import LocalExecutor
from dtrees.ensemble.evaluation.evaluation_sets import LocalEvaluation, LocalSets
from dtrees.ensemble.evaluation.metrics import Block
from dtrees.ensemble.objective.registry import registered_losses
from dtrees.split.table.columns import Columns
from dtrees.tree.tree import Tree

logger = logging.getLogger("dtrees.cluster")


def boost(
    columns: ClusterColumns,
    target: Future,
    weight: Future | None,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]],
    initial: NDArray[np.float64] | None,
    callback: Callback | None,
    sets: ClusterSets | None = None,
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
    fit = current_fit()
    if columns.placement.kind == "one-worker":
        (block,) = columns.blocks
        with Tasks(columns.client) as tasks:
            future = tasks.submit(
                "boost", _boost_here, block, target, weight, plan, previous, initial, callback, fit.name, fit.turn,
                None if sets is None else sets.about, [] if sets is None else sets.blocks,
                workers=columns.workers, allow_other_workers=True,
            )  # fmt: skip
            (result,) = tasks.waiter.gather([future])
            return result
    return _over_shards(DaskExecutor(columns, target, weight), columns.client, plan, previous, initial, callback, sets)


def boost_rows(
    rows: ClusterRows,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]],
    initial: NDArray[np.float64] | None,
    callback: Callback | None,
    sets: ClusterSets | None = None,
) -> BoostingResult:
    """Boost over rows that stay where they are; see :func:`boost`.

    Raises
    ------
    ValueError
        If the plan wants what shards of rows cannot do.
    """
    given = next((name for name, _, loss in registered_losses() if type(loss) is type(plan.loss)), None)
    refusal = rows_placement_refusal(plan, given)
    if refusal is not None:
        raise ValueError(refusal)
    shards = DaskRowsExecutor(rows, plan.n_rounds * plan.loss.n_outputs)
    return _over_shards(shards, rows.client, plan, previous, initial, callback, sets)


def _over_shards(
    shards: DaskExecutor | DaskRowsExecutor,
    client: Client,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]],
    initial: NDArray[np.float64] | None,
    callback: Callback | None,
    sets: ClusterSets | None,
) -> BoostingResult:
    fit = current_fit()
    with contextlib.ExitStack() as stack:
        stack.callback(shards.close)
        evaluation = None if sets is None else stack.enter_context(ClusterEvaluation(sets))
        log = stack.enter_context(log_of(fit, client, plan))
        callback = Reporting(fit, "round", callback, shards.timings)
        return boosting.boost(shards, plan, previous, initial, callback, log, evaluation)


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
    with LocalExecutor(columns, target, weight, n_threads) as executor, log_of(fit, own_client(), plan) as log, exits_as_errors():
        return boosting.boost(executor, plan, previous, initial, WholeTables(fit, "round", callback), log, evaluation)
