"""The finished trees of a fit over shards, kept in the fit's record on the scheduler.

If the coordinator is lost, the one that takes over finds them there, and does not grow them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle

from distributed import Client

from dtrees.cluster.errors import FitCancelled
from dtrees.cluster.reliability.fit_context import Fit
from dtrees.cluster.reliability.fit_record import keep_trees, kept_trees, take_turn
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Scores
from dtrees.tree.tree import Tree

logger = logging.getLogger("dtrees.cluster")

#: Trees that come faster are sent together: a message takes the event loops of this worker and of the scheduler a millisecond.
_SECONDS_BETWEEN_MESSAGES = 0.05


def log_of(fit: Fit, client: Client, plan: BoostingPlan | ForestPlan) -> contextlib.AbstractContextManager[ClusterTreeLog | None]:
    """Return the log of a fit's trees; there is none where Dask does not know the fit, and cannot run it again.

    Nor with a checkpoint: that brings finished trees back as well, and two accounts of them could differ.
    """
    if not fit.turn or plan.checkpoint is not None:
        return contextlib.nullcontext()
    return contextlib.nullcontext(ClusterTreeLog(client, fit))


class ClusterTreeLog:
    """A log of trees on the scheduler; see :class:`dtrees.engine.coordinator.lasting.TreeLog`.

    Trees are sent in the background. Those that were not when this process is lost are grown again.

    Parameters
    ----------
    client : distributed.Client
    fit : Fit
        Its name is the same however often it is run.

    Raises
    ------
    FitCancelled
        If nobody wants the fit any more, or another worker has taken over.
    """

    def __init__(self, client: Client, fit: Fit) -> None:
        turn = take_turn(client, fit.name, "trees", fit.worker, fit.task)
        if turn is None:
            raise FitCancelled(f"The fit {fit.name} was cancelled, or taken over by another worker.")
        self._client = client
        self._fit = fit
        self._turn, _ = turn
        self._n_sent = 0
        self._unsent: list[bytes] = []
        self._sending = self._is_refused = False

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees kept by an earlier run."""
        kept = kept_trees(self._client, self._fit.name)
        self._n_sent = len(kept)
        return kept

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Keep the next tree.

        Raises
        ------
        FitCancelled
            If the fit has been taken over by another run, or is not wanted any more.
        """
        if self._is_refused:
            raise FitCancelled(f"The fit {self._fit.name} has been given up on {self._fit.worker}, or taken over by another worker.")
        self._client.loop.add_callback(self._send, pickle.dumps((tree, scores), pickle.HIGHEST_PROTOCOL))

    async def _send(self, tree: bytes) -> None:
        """Send a tree, with those that follow it closely. All this is done in the thread of the loop."""
        self._unsent.append(tree)
        if self._sending:  # the one that is sending sees to all
            return
        self._sending = True
        try:
            while self._unsent and not self._is_refused:
                await asyncio.sleep(_SECONDS_BETWEEN_MESSAGES)
                trees, self._unsent = self._unsent, []
                self._is_refused = not await keep_trees(self._client, self._fit.name, self._turn, self._n_sent, trees)
                self._n_sent += len(trees)
        except OSError:  # without the scheduler, there is nobody to keep them
            logger.warning("%s: its last trees are not kept, since the scheduler does not answer", self._fit.name)
        finally:
            self._sending = False
