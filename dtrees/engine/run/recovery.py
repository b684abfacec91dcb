"""Fits over shards of columns that outlast these: the tree is the transaction.

Between two trees every shard holds the same state of the rows (the predictions of the finished trees). When shards are lost, the tree under
way is forgotten, the executor puts new ones in their place, with the same columns, the state of the rows is brought to them, and the tree
starts again, in a new epoch, which makes all that was on its way before stale. The tree grown then is the one that would have been
grown without the loss.

State comes from a shard that has it, in pieces. Where none has (all are lost, or all that are left had closed the tree already when the
others went), every shard starts from the beginning and the finished trees are replayed
(:func:`~dtrees.engine.coordinator.session.replay_tree`): exact as well, but it takes longer the more there are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.lasting import TreeByTree
from dtrees.engine.coordinator.session import Session, replay_tree
from dtrees.engine.coordinator.tree import grow_tree, starting
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.protocol.messages import Executor, Scores, Start
from dtrees.split.policy import STATE_PIECE_BYTES
from dtrees.tree.tree import Tree


class LastingFit(TreeByTree):
    """Grows trees one after the other over shards of columns, whatever becomes of these.

    Parameters
    ----------
    executor : Executor
    plan : BoostingPlan
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The raw prediction to start from, of all rows or of each.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,)
    """

    def __init__(self, executor: Executor, plan: BoostingPlan, initial: NDArray[np.float64] | None = None) -> None:
        super().__init__(executor)
        self._executor, self._plan, self._n_trees = executor, plan, plan.n_rounds * plan.loss.n_outputs
        self._session = Session(executor, plan, fit=uuid.uuid4().hex)
        self._started: Start | None = None  # the next tree
        self._given = initial
        self.initial: NDArray[np.float64] = self._lasting(lambda: self._session.begin(initial).initial)
        if initial is None:
            self._given = self.initial

    def _replay(self, tree: Tree, output: int) -> None:
        replay_tree(self._session, tree, output)

    def _grow(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree, and start the next one: this leaves no trace, should no other be wanted."""
        started, self._started = self._started, None
        is_last = len(self._finished) + 1 == self._n_trees
        following = None if is_last else starting(self._session, tree + 1, (tree + 1) % self._plan.loss.n_outputs)
        start = started or starting(self._session, tree, output)
        grown = grow_tree(self._session, start, learning_rate, score, started is not None, following)
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
    standing = session.ask(session.to_all("renew"))
    reached = max((n_finished for n_finished in standing.values() if least <= n_finished <= most), default=0)
    # One that has finished none may have been about to take over the state of another.
    behind = [shard for shard, n_finished in standing.items() if n_finished != reached or not reached]
    if behind:
        session.ask(dict.fromkeys(behind, session.opening(initial)))
    if reached and behind:
        source = next(shard for shard, n_finished in standing.items() if n_finished == reached)
        for first, last, state in state_of(session, source):
            # Only the last piece makes it count: shards may be lost in between.
            n_finished = reached if last == session.executor.n_rows else 0
            session.ask(dict.fromkeys(behind, ("adopt", first, state, n_finished)))
    return reached


def state_of(session: Session, shard: int) -> Iterator[tuple[int, int, list[NDArray[Any]]]]:
    """Yield the state of the rows that a shard has, in pieces that travel: the first row, the row after the last, and arrays."""
    n_rows, plan = session.executor.n_rows, session.plan
    n_outputs = plan.loss.n_outputs if isinstance(plan, BoostingPlan) else plan.n_values
    step = max(1, STATE_PIECE_BYTES // (16 * n_outputs))
    for first in range(0, n_rows, step):
        last = min(first + step, n_rows)
        yield first, last, session.ask({shard: ("fetch", first, last)})[shard]
