"""Boosting on one worker: the whole engine runs beside the columns, and only news of each round travels.

This is how a cluster of one worker boosts, and a larger one where round trips between workers would take longer than they save.

The engine's loop runs in a thread of its own on the worker. Where there is a callback, it stops after each round until it is told to go
on, so that a callback in the fitting process ends a fit after the very same round as it does locally.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.actors import Actors
from dtrees.cluster.loading import ClusterColumns, join_blocks
from dtrees.cluster.watch import PATIENCE
from dtrees.engine.boosting import boost
from dtrees.engine.executor import LocalExecutor
from dtrees.engine.plans import BoostingPlan, BoostingResult, Callback, Progress
from dtrees.split.columns import Columns
from dtrees.tree.tree import Tree


class Booster:
    """An actor that boosts with all columns, using as many threads as its worker has.

    Parameters
    ----------
    blocks : list of Columns
    target : ndarray, shape (n_rows,)
    weight : ndarray of float64, shape (n_rows,), or None
    """

    def __init__(self, blocks: list[Columns], target: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
        self._executor = LocalExecutor(join_blocks(blocks), target, weight, get_worker().state.nthreads)
        self._news: queue.SimpleQueue[Progress | BoostingResult | BaseException] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def start(
        self,
        plan: BoostingPlan,
        previous: Sequence[Sequence[Tree]],
        initial: NDArray[np.float64] | None,
        report: bool,
    ) -> None:
        """Begin; with ``report``, every round waits for :meth:`proceed`."""
        # The thread must not refer to this object: it ends when Dask gives up the actor, which is the last to do so.
        executor, news, answers = self._executor, self._news, self._answers

        def after_round(progress: Progress) -> bool:
            if not report:
                return not answers.empty()
            news.put(progress)
            return answers.get()

        def run() -> None:
            try:
                news.put(boost(executor, plan, previous=previous, initial=initial, callback=after_round))
            except BaseException as error:
                news.put(error)
            finally:
                executor.close()

        threading.Thread(target=run, name="dtrees-boost", daemon=True).start()

    def following(self) -> Progress | BoostingResult:
        """Wait for the next news: a round, or the end."""
        news = self._news.get()
        if isinstance(news, BaseException):
            raise news
        return news

    def proceed(self, stop: bool) -> Progress | BoostingResult:
        """Go on after a round, or stop there; wait for the next news."""
        self._answers.put(stop)
        return self.following()

    async def close(self) -> None:
        """Stop after the round under way. Not in the actor's one thread, which may be waiting for news."""
        self._answers.put(True)

    def __del__(self) -> None:
        self._answers.put(True)


def boost_on(
    worker: str,
    columns: ClusterColumns,
    target: Future,
    weight: Future | None,
    plan: BoostingPlan,
    previous: Sequence[Sequence[Tree]],
    initial: NDArray[np.float64] | None,
    callback: Callback | None,
    patience: float = PATIENCE,
) -> BoostingResult:
    """Boost on one worker of a cluster; see :func:`dtrees.engine.boosting.boost`.

    Raises
    ------
    WorkerLost, SchedulerLost
        If the worker, or the way to it, is lost.
    """
    actors = Actors(columns.client, "boost", Booster, {worker: (columns.blocks, target, weight)}, patience)
    try:
        actors.call("start", {0: (plan, previous, initial, callback is not None)})
        news = actors.call("following", {0: ()})[0]
        while isinstance(news, Progress):
            stop = callback is not None and bool(callback(news))
            news = actors.call("proceed", {0: (stop,)})[0]
        return news
    finally:
        actors.close()
