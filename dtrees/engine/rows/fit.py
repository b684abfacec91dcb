"""Fits over shards of rows that outlast their shards: the tree is the transaction.

When shards are lost, new ones take their places, with the same rows. Boosting has the finished trees replayed on all: a shard's predictions
follow from its rows and the trees, so that no state travels. Then the tree under way is grown again, in a new epoch.
"""

from __future__ import annotations

import math
import uuid
from abc import abstractmethod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.lasting import Lasting, TreeByTree
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Scores
from dtrees.engine.rows import messages as m
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.between.torn_blocks import meetings
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.searching.zone_edges import Edges
from dtrees.engine.rows.session import RowsSession
from dtrees.engine.rows.whole_sums import scores_of_all
from dtrees.split.zones.sums import MAX_PACKED_ROWS
from dtrees.tree.tree import Tree


def check_rows(executor: RowsExecutor) -> None:
    """Raise ValueError if there are too many rows."""
    if executor.n_rows >= MAX_PACKED_ROWS:
        raise ValueError(
            f'placement="rows" takes fewer than {MAX_PACKED_ROWS} rows, as their numbers are packed with sums; X has {executor.n_rows}'
        )


class LastingRows(Lasting):
    """A fit over shards of rows, whatever becomes of these.

    Parameters
    ----------
    executor : RowsExecutor
    plan : BoostingPlan or ForestPlan
    sent_rows : int
        Up to how many rows a node is grown by one shard.
    """

    def __init__(self, executor: RowsExecutor, plan: BoostingPlan | ForestPlan, sent_rows: int) -> None:
        check_rows(executor)
        self._executor = executor
        self._session = RowsSession(executor, plan, uuid.uuid4().hex, sent_rows=sent_rows)
        self._edges: Edges | None = None
        self._is_open = False

    def _begin(self) -> None:
        """Open the fit, as often as it takes."""
        self._lasting(self._open)
        self._is_open = True

    def _restore(self) -> None:
        self._executor.repair()
        self._session = self._session.renewed()
        if self._is_open:
            self._open()
            self._replay_finished()

    @abstractmethod
    def _open(self) -> None:
        """Open the fit on all shards, which know nothing of it yet, or are to forget it."""

    @abstractmethod
    def _replay_finished(self) -> None:
        """Tell shards of the finished trees what they need to know of them."""


class RowsFit(LastingRows, TreeByTree):
    """Grows trees one after the other over shards of rows, whatever becomes of these.

    Parameters
    ----------
    executor : RowsExecutor
    plan : BoostingPlan
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The raw prediction to start from, of all rows or of each.
    sent_rows : int, optional
        Up to how many rows a node is grown by one shard; by default `tree.SENT_ROWS`.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,)
    """

    def __init__(
        self,
        executor: RowsExecutor,
        plan: BoostingPlan,
        initial: NDArray[np.float64] | None = None,
        sent_rows: int | None = None,
    ) -> None:
        LastingRows.__init__(self, executor, plan, rows_tree.SENT_ROWS if sent_rows is None else sent_rows)
        TreeByTree.__init__(self, executor, plan.n_rounds * plan.loss.n_outputs)
        self._plan = plan
        self._given = initial
        self._begin()
        assert self._given is not None
        self.initial: NDArray[np.float64] = self._given if self._given.ndim == 1 else np.zeros(self._given.shape[0])

    def _open(self) -> None:
        session, executor = self._session, self._executor
        self._edges = session.introduce(self._edges)
        serial = session.next_serial()
        given = [self._given, *[None] * (executor.n_shards - 1)]  # which may be as many as there are rows
        messages = {shard: m.Prepare(session.fit, session.epoch, serial, one) for shard, one in enumerate(given)}
        prepared = cast(m.Prepared, session.tell(messages)[0])
        initial = self._given = prepared.initial
        meets = meetings(session.stretches)
        session.tell(
            {
                shard: m.Open(
                    session.fit, session.epoch, _share(initial, session.stretches[shard]), self._edges, prepared.weights,
                    prepared.weight_exponent, *meets[shard], session.stretches,
                )
                for shard in range(executor.n_shards)
            }
        )  # fmt: skip

    def _replay(self, tree: Tree, output: int) -> None:
        self._session.say(m.Replay, tree, output)

    def _grow(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        grown = cast(list[m.Grown], self._session.grow(m.GrowTree, tree, output, learning_rate, score))
        first = grown[0]
        assert first.tree is not None
        losses = [one.losses for one in grown if one.losses is not None]
        if not losses:
            return first.tree, Scores(math.nan, math.nan)
        return first.tree, scores_of_all(self._executor.n_rows, losses, first.undrawn, first.score)

    def _replay_finished(self) -> None:
        for tree, output in self._finished:
            self._replay(tree, output)


def _share(initial: NDArray[np.float64], stretches: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the predictions of a shard's rows to start from."""
    if initial.ndim == 1:
        return initial
    return np.concatenate([initial[:, :0], *(initial[:, first:last] for first, last in stretches.tolist())], axis=1)
