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
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.errors import exits_as_errors
from dtrees.cluster.evaluation import ClusterEvaluation, ClusterSets
from dtrees.cluster.events import tell
from dtrees.cluster.executor import DaskExecutor
from dtrees.cluster.fits import Fit, current_fit
from dtrees.cluster.loading import ClusterColumns
from dtrees.cluster.questions import own_client
from dtrees.cluster.tasks import Tasks
from dtrees.cluster.timings import Timings
from dtrees.cluster.tree_log import log_of
from dtrees.engine import boosting
from dtrees.engine.executor import LocalExecutor
from dtrees.engine.plans import BoostingPlan, BoostingResult, Callback, Progress
from dtrees.ensemble.evaluation import LocalEvaluation, LocalSets
from dtrees.ensemble.metrics import Block
from dtrees.split.columns import Columns
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
    """Boost; see :func:`dtrees.engine.boosting.boost`.

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
                "boost", _boost_here, block, target, weight, plan, previous, initial, callback, fit.name, fit.submitted,
                None if sets is None else sets.about, [] if sets is None else sets.blocks,
                workers=columns.workers, allow_other_workers=True,
            )  # fmt: skip
            (result,) = tasks.watch.gather([future])
            return result
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(DaskExecutor(columns, target, weight))
        evaluation = None if sets is None else stack.enter_context(ClusterEvaluation(sets))
        log = stack.enter_context(log_of(fit, columns.client, plan))
        callback = _Watched(fit, callback, executor.timings)
        return boosting.boost(executor, plan, previous, initial, callback, log, evaluation)


def _boost_here(
    columns: Columns,
    target: NDArray[Any],
    weight: NDArray[np.float64] | None,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]],
    initial: NDArray[np.float64] | None,
    callback: Callback | None,
    name: str,
    submitted: bool,
    about: LocalSets | None,
    evaluated: list[Block],
) -> BoostingResult:
    """Boost in a task."""
    fit = Fit(name, current_fit().settings, submitted)
    n_threads = get_worker().state.nthreads
    evaluation = None if about is None else LocalEvaluation(replace(about, blocks=tuple(evaluated)), n_threads)
    with LocalExecutor(columns, target, weight, n_threads) as executor, log_of(fit, own_client(), plan) as log, exits_as_errors():
        watched = _Watched(fit, callback, None)
        return boosting.boost(executor, plan, previous, initial, watched, log, evaluation)


class _Watched:
    """The callback that a fit is given: tells of rounds, and ends a fit that nobody wants."""

    def __init__(self, fit: Fit, callback: Callback | None, timings: Timings | None) -> None:
        self._fit = fit
        self._callback = callback
        self._timings = timings

    def __call__(self, progress: Progress) -> bool:
        self._fit.check()
        facts = {} if self._timings is None else vars(self._timings)
        tell(self._fit.name, "round", round=progress.done, total=progress.total, seconds=progress.seconds, **facts)
        return self._callback is not None and bool(self._callback(progress))
