"""Boosting on a cluster, on one worker or over shards on all, whichever is likely to be faster. The model is the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from distributed import Future
from numpy.typing import NDArray

from dtrees.cluster import one_worker
from dtrees.cluster.executor import DaskExecutor
from dtrees.cluster.loading import ClusterColumns
from dtrees.cluster.placement import nthreads, worker_for_all
from dtrees.engine import boosting
from dtrees.engine.plans import BoostingPlan, BoostingResult, Callback
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
) -> BoostingResult:
    """Boost; see :func:`dtrees.engine.boosting.boost`.

    Raises
    ------
    WorkerLost
        If a worker that holds columns is lost.
    SchedulerLost
        If the scheduler is.
    """
    worker = worker_for_all(columns.n_rows * columns.n_columns, nthreads(columns.client))
    if worker is not None:
        logger.info("boosting with %d columns on one worker, %s", columns.n_columns, worker)
        return one_worker.boost_on(worker, columns, target, weight, plan, previous, initial, callback)
    with DaskExecutor(columns, target, weight) as executor:
        return boosting.boost(executor, plan, previous=previous, initial=initial, callback=callback)
