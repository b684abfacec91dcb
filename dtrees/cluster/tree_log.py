"""The finished trees of a fit over shards, kept by the scheduler: each as a task that does nothing but return its tree.

A task outlasts the worker that holds its result, since it can be run again: its argument is part of the task. So if the coordinator is
lost, the one that takes over finds the trees by their keys. On the dashboard, these tasks mark the progress of the fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import warnings

from distributed import Client, Future

from dtrees.cluster.errors import FitCancelled
from dtrees.cluster.fits import Fit
from dtrees.cluster.holding import hold, hold_at_once, let_go, let_go_if_cancelled, trees
from dtrees.cluster.questions import SCHEDULER_PATIENCE, answer, states
from dtrees.cluster.tasks import release
from dtrees.cluster.watch import Watch, confirm
from dtrees.engine.messages import Scores
from dtrees.engine.plans import BoostingPlan, ForestPlan
from dtrees.tree.tree import Tree

logger = logging.getLogger("dtrees.cluster")

#: Before whatever waits for a thread: they are over in no time.
_PRIORITY = 100
_ASKED_AT_ONCE = 1000
#: Trees that come faster are held together.
_SECONDS_BETWEEN_HOLDS = 0.02


def log_of(fit: Fit, client: Client, plan: BoostingPlan | ForestPlan) -> contextlib.AbstractContextManager[ClusterTreeLog | None]:
    """Return the log of a fit's trees; there is none where Dask does not know the fit, and cannot run it again.

    Nor with a checkpoint: that brings finished trees back as well, and two accounts of them could differ.
    """
    if not fit.submitted or plan.checkpoint is not None:
        return contextlib.nullcontext()
    return ClusterTreeLog(client, fit)


class ClusterTreeLog:
    """See :class:`dtrees.engine.recovery.TreeLog`. Trees are kept until the end of the block, unless the block is cut short.

    Parameters
    ----------
    client : distributed.Client
    fit : Fit
        Its name is the same however often it is run.
    """

    def __init__(self, client: Client, fit: Fit) -> None:
        self._client = client
        self._fit = fit
        self._n_kept = 0
        self._unheld: list[Future] = []  # only the loop's thread has to do with it
        self._is_over = False

    def __enter__(self) -> ClusterTreeLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._is_over = True
        if kind is None or not issubclass(kind, FitCancelled):
            return let_go(self._client, trees(self._fit.name))
        let_go_if_cancelled(self._client, self._fit.name)

    def _key(self, number: int) -> str:
        return f"dtrees-tree-0{self._fit.name.rpartition('-')[2]}-{number}"  # the digit keeps Dask from taking the token for a word

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees kept by an earlier run."""
        kept: list[str] = []
        for first in itertools.count(0, _ASKED_AT_ONCE):
            keys = [self._key(i) for i in range(first, first + _ASKED_AT_ONCE)]
            status = states(self._client, keys)
            known = list(itertools.takewhile(lambda key: status[key] is not None, keys))  # noqa: B023 - used at once
            kept += known
            if len(known) < len(keys):
                break
        self._n_kept = len(kept)
        if not kept:
            return []
        hold(self._client, self._client.id, kept)
        futures = [Future(key, self._client) for key in kept]
        try:
            return Watch(self._client).gather(futures)
        finally:
            release(futures)

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Keep the next tree."""
        confirm(self._client, self._fit)
        key = self._key(self._n_kept)
        self._n_kept += 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            future = self._client.submit(_kept, (tree, scores), key=key, priority=_PRIORITY)
        self._client.loop.add_callback(self._hold, future)

    async def _hold(self, future: Future) -> None:
        """Have the scheduler keep a tree, and those that follow it closely; until then they are kept by this process.

        Dask gathers messages that follow each other closely. If this process stood still between, they would be sent when it wakes up, and
        the trees be kept when the fit is long over. So this is a message of its own, sent at once or not at all. It would overtake those
        that bring the trees, so the scheduler is asked which it knows. What :meth:`__exit__` says comes after it: the loop hears of that
        later.
        """
        self._unheld.append(future)
        if len(self._unheld) > 1:  # the first one sees to all
            return
        try:
            while self._unheld and not self._is_over:
                await asyncio.sleep(_SECONDS_BETWEEN_HOLDS)
                keys = [future.key for future in self._unheld]
                status = await answer(self._client.scheduler.get_task_status(keys=keys), SCHEDULER_PATIENCE)
                known = list(itertools.takewhile(lambda key: status[key] is not None, keys))  # noqa: B023 - used at once
                if self._is_over or self._fit.may_be_given_up:
                    return
                await hold_at_once(self._client, trees(self._fit.name), known)
                release(self._unheld[: len(known)])
                del self._unheld[: len(known)]
        except OSError:  # without the scheduler, there is nobody to keep them
            logger.warning("%s: its last trees are not kept, since the scheduler does not answer", self._fit.name)
        finally:
            release(self._unheld)
            self._unheld.clear()


def _kept(tree: tuple[Tree, Scores]) -> tuple[Tree, Scores]:
    return tree
