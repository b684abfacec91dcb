"""A shard: some presorted columns of a table, the target and weights of all rows, and what trees leave behind for the next ones.

It answers the messages of :mod:`dtrees.engine.protocol.messages`, one at a time, and does nothing on its own. In this process one shard has
all columns; on a cluster each worker has a shard of some. Work within a message is spread over the shard's threads. The messages about the
tree under way are for :mod:`dtrees.engine.shard.tree_state`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol import messages as m
from dtrees.engine.shard.levels.node_search import NodeSearch
from dtrees.engine.shard.shard_columns import SharedZoneMap, make_shard_columns
from dtrees.engine.shard.subtrees.sparse_runner import make_runner
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.tree_slots import Slots
from dtrees.engine.shard.tree_state import TreeState
from dtrees.engine.shard.workspace import Workspace
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import plain
from dtrees.split.table.columns import Columns, presort
from dtrees.split.table.sparse_columns import AnyColumns


class Shard:
    """Some columns of a table and the state of all its rows, which answers the messages of a fit.

    Parameters
    ----------
    columns : Columns or SparseColumns
        Sparse ones are all of the table.
    column_ids : ndarray of int32, shape (n_columns,)
        Their numbers in the whole table, ascending.
    n_columns_total : int
        Columns of the whole table.
    target : ndarray, shape (n_rows,)
        float64 for regression, class numbers otherwise.
    weight : ndarray of float64, shape (n_rows,), or None
    n_threads : int
    zones : SharedZoneMap, optional
        Of these columns, where other shards of this process have the same ones.
    """

    def __init__(
        self,
        columns: AnyColumns,
        column_ids: NDArray[np.int32],
        n_columns_total: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        n_threads: int = 1,
        zones: SharedZoneMap | None = None,
    ) -> None:
        # What another process has sent may be unaligned, which kernels are not compiled for.
        self._table = (plain(target.T).T, None if weight is None else plain(weight))
        self._threads = Threads(n_threads)
        self._fit: tuple[str, int] | None = None
        self._n_slots = 0
        self._take_columns(columns, column_ids, n_columns_total, zones)

    def _take_columns(
        self, columns: AnyColumns, column_ids: NDArray[np.int32], n_columns_total: int, zones: SharedZoneMap | None = None
    ) -> None:
        self._shard_columns = make_shard_columns(columns, column_ids, n_columns_total, zones)
        self._search = NodeSearch(self._shard_columns, sums_zones=isinstance(columns, Columns))
        self._slots = Slots([], self._threads, columns)

    def _give_up_columns(self) -> None:
        """Keep nothing but what the tree under way is completed with."""
        self._slots.close()
        self._take_columns(presort([]), np.empty(0, np.int32), self._shard_columns.n_columns_total)
        self._workspace = Workspace(self._threads, make_runner(self._shard_columns.columns))
        self._tree.give_up_columns(self._shard_columns, self._search)

    def _make_room(self) -> None:
        """Make room for the trees of a fit, of which there is one under way, or as many as there are slots."""
        target, _ = self._table
        fit = self._shard_columns, self._plan, self._target, target
        self._workspace = Workspace(self._threads, make_runner(self._shard_columns.columns))
        self._tree = TreeState(*fit, self._search)
        # Room for the zone sums of one tree is what many trees need for all else.
        trees = [TreeState(*fit, NodeSearch(self._shard_columns, sums_zones=False)) for _ in range(self._n_slots)]
        self._slots.close()
        self._slots = Slots(trees, self._threads, self._shard_columns.columns)

    @property
    def is_whole(self) -> bool:
        """Whether this shard has every column of the table."""
        return self._shard_columns.ids.shape[0] == self._shard_columns.n_columns_total

    @property
    def n_threads(self) -> int:
        """Threads that work within a message is spread over."""
        return self._threads.n_threads

    def give_up(self) -> None:
        """Have threads that grow a tree end soon; called by another thread, which wants nothing more of this shard."""
        self._workspace.runner.give_up()

    def close(self) -> None:
        """End the shard's threads."""
        self._slots.close()
        self._threads.close()

    def handle(self, message: m.Message) -> m.Reply:
        """Carry out a message and return the reply.

        Raises
        ------
        StaleMessage
            If it is of another fit or epoch than the last ``Begin``.
        """
        if isinstance(message, m.Begin):
            return self._begin(message)
        if isinstance(message, m.Renew):
            return self._renew(message)
        if self._fit != (message.fit, message.epoch):
            raise m.StaleMessage(f"message of fit {message.fit}, epoch {message.epoch} to a shard of fit and epoch {self._fit}")
        if isinstance(message, m.Many):
            replies = self._slots.handle(message)
            self._n_finished += sum(isinstance(one, m.Finish) for one in message.messages)
            return replies
        match message:
            case m.Fetch():
                return m.RowState([array[..., message.first : message.last] for array in self._target.state()])
            case m.Adopt():
                self._adopt(message)
                return None
        reply = self._tree.carry_out(message, self._workspace)
        self._n_finished += isinstance(message, (m.Finish, m.BoostTree))
        if isinstance(message, m.Grow) and message.last:
            self._give_up_columns()
        return reply

    def _begin(self, message: m.Begin) -> m.Begun:
        target, weight = self._table
        self._plan: ForestPlan | BoostingPlan = message.plan
        self._fit = (message.fit, message.epoch)
        self._n_finished = 0
        self._n_slots = message.n_slots
        if isinstance(message.plan, BoostingPlan):
            boosting = BoostingTarget.of_table(message.plan, target, weight, message.initial, self._threads)
            self._target: ForestTarget | BoostingTarget = boosting
            self._make_room()
            return m.Begun(boosting.initial)
        self._target = ForestTarget.of_table(message.plan, target, weight)
        self._make_room()
        return m.Begun(np.empty(0), 0 if self._target.out_of_bag is None else self._target.out_of_bag.exponent)

    def _renew(self, message: m.Renew) -> m.Standing:
        fit, epoch = self._fit or (message.fit, message.epoch - 1)
        if fit != message.fit or epoch >= message.epoch:
            raise m.StaleMessage(f"epoch {message.epoch} of fit {message.fit} is not after epoch {epoch} of fit {fit}")
        if self._fit is None:
            return m.Standing(-1)
        self._fit = (message.fit, message.epoch)
        return m.Standing(self._n_finished)

    def _adopt(self, message: m.Adopt) -> None:
        for mine, theirs in zip(self._target.state(), message.state.arrays, strict=True):
            mine[..., message.first : message.first + theirs.shape[-1]] = theirs
        self._n_finished = message.n_finished

    @property
    def target(self) -> ForestTarget | BoostingTarget:
        """What the trees of the fit under way are split on."""
        return self._target
