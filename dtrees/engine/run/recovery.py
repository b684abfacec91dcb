"""Fits that outlast their shards: the tree is the transaction.

Between two trees every shard holds the same state of the rows (the predictions of the finished trees). When shards are lost, the tree under
way is forgotten, the executor puts new ones in their place, with the same columns, the state of the rows is brought to them, and the tree
starts again, in a new epoch, which makes all that was on its way before stale. The tree grown then is the one that would have been
grown without the loss.

State comes from a shard that has it, in pieces. Where none has (all are lost, or all that are left had closed the tree already when the
others went), every shard starts from the beginning and the finished trees are replayed (:mod:`dtrees.engine.coordinator.replay`): exact as
well, but it takes longer the more there are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.replay import replay_tree
from dtrees.engine.coordinator.session import Session
from dtrees.engine.coordinator.tree import grow_tree, starting
from dtrees.engine.coordinator.tree_by_tree import TreeByTree, TreeLog
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.executor import Executor
from dtrees.split.policy import STATE_PIECE_BYTES
from dtrees.tree.tree import Tree


class LastingFit(TreeByTree[Executor]):
    """Grows trees one after the other, whatever becomes of shards.

    If the coordinator itself is lost and the fit is run again, the trees that its log has kept are not grown again but replayed; for the
    rest it is the same fit.

    Parameters
    ----------
    executor : Executor
    plan : BoostingPlan
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The raw prediction to start from, of all rows or of each.
    log : TreeLog, optional

    Attributes
    ----------
    initial : ndarray of float64, shape (K,)
    """

    def __init__(
        self,
        executor: Executor,
        plan: BoostingPlan,
        initial: NDArray[np.float64] | None = None,
        log: TreeLog | None = None,
    ) -> None:
        super().__init__(executor, plan, log)
        self._session = Session(executor, plan, fit=uuid.uuid4().hex)
        self._plan = plan
        self._started: m.Start | None = None  # the next tree, by this message
        self._given = initial
        self.initial: NDArray[np.float64] = self._lasting(lambda: self._session.begin(initial).initial)
        if initial is None:
            self._given = self.initial

    def _replay(self, tree: Tree, output: int) -> None:
        """See :func:`dtrees.engine.coordinator.replay.replay_tree`."""
        replay_tree(self._session, tree, output)

    def _grow(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, m.Scores]:
        """Grow a tree, and start the next one where there are messages to wait for: this leaves no trace, should no other be wanted."""
        started, self._started = self._started, None
        is_last = bool(self._executor.whole_threads) or len(self._finished) + 1 == self._n_trees
        following = None if is_last else starting(self._session, tree + 1, (tree + 1) % self._plan.loss.n_outputs)
        grown = grow_tree(self._session, tree, output, learning_rate, score, started, following)
        self._started = following
        return grown

    def _restore(self) -> None:
        if self._started is not None:
            self._started = None
            self._executor.collect()
        self._executor.repair()
        self._session = self._session.renewed()
        wanted = len(self._finished)
        if align(self._session, wanted, wanted, self._given) < wanted:
            for tree, output in self._finished:
                replay_tree(self._session, tree, output)


def align(session: Session, least: int, most: int, initial: NDArray[np.float64] | None) -> int:
    """Bring all shards into an epoch just begun, and to the same state: that of one that has finished ``least`` to ``most`` trees.

    Returns how many trees that are. If no shard has finished as many, every one starts from the beginning, and it is none.
    """
    replies = session.executor.broadcast(m.Renew(session.fit, session.epoch))
    standing = [cast(m.Standing, reply).n_finished for reply in replies]
    reached = max((n_finished for n_finished in standing if least <= n_finished <= most), default=0)
    # One that has finished none may have been about to take over the state of another.
    behind = [shard for shard, n_finished in enumerate(standing) if n_finished != reached or not reached]
    if behind:
        session.executor.send(dict.fromkeys(behind, session.opening(initial)))
    if reached and behind:
        _copy_state(session, standing.index(reached), behind, reached)
    return reached


def _copy_state(session: Session, source: int, behind: list[int], n_finished: int) -> None:
    """Copy the state of the rows from one shard to others."""
    n_rows = session.executor.n_rows
    for first, last in pieces_of_state(session):
        fetch = m.Fetch(session.fit, session.epoch, first, last)
        state = cast(m.RowState, session.executor.send({source: fetch})[source])
        # Only the last piece makes it count: shards may be lost in between.
        adopt = m.Adopt(session.fit, session.epoch, first, state, n_finished if last == n_rows else 0)
        session.executor.send(dict.fromkeys(behind, adopt))


def pieces_of_state(session: Session) -> Iterator[tuple[int, int]]:
    """Yield the first row of each piece of the row state that travels in a message, and the row after its last."""
    n_rows, plan = session.executor.n_rows, session.plan
    n_outputs = plan.loss.n_outputs if isinstance(plan, BoostingPlan) else plan.n_values
    step = max(1, STATE_PIECE_BYTES // (16 * n_outputs))
    for first in range(0, n_rows, step):
        yield first, min(first + step, n_rows)
