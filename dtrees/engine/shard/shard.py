"""A shard: some presorted columns of a table, the target and weights of all rows, and what trees leave behind for the next ones.

Its methods, and those of trees under way (:mod:`dtrees.engine.shard.tree_state`), are called by the messages of a fit, one message at a
time; it does nothing on its own. In this process one shard has all columns; on a cluster each worker has a shard of some.

Trees may grow side by side, each in a *slot*, over the same columns and the same target, with a row partition and nodes of its own. What
they are grown with (threads, scratch space) they take turns to use. The calls of a message, one a slot at most, are shared out
over the shard's threads; where there are fewer slots than threads, each call gets several.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Begun, Call, Calls, StaleMessage
from dtrees.engine.shard.node_search import ShardColumns
from dtrees.engine.shard.runner import Workspace
from dtrees.engine.shard.sparse_runner import make_runner
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.tree_state import TreeState
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import plain
from dtrees.split.table.columns import Columns, presort
from dtrees.split.table.sparse_columns import AnyColumns


class Shard:
    """Some columns of a table and the state of all its rows.

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

    Attributes
    ----------
    target : ForestTarget or BoostingTarget
        What the trees of the fit under way are split on.
    trees : list of TreeState
        Those under way, by slot.
    """

    #: What is called of a shard itself and not of its trees.
    OWN = frozenset({"fetch", "adopt", "give_up_columns"})

    def __init__(
        self,
        columns: AnyColumns,
        column_ids: NDArray[np.int32],
        n_columns_total: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        n_threads: int = 1,
    ) -> None:
        # What another process has sent may be unaligned, which kernels are not compiled for.
        self._table = (plain(target.T).T, None if weight is None else plain(weight))
        self._threads = Threads(n_threads)
        self._fit: tuple[str, int] | None = None
        self._free: list[Workspace] = []
        self._columns = ShardColumns(columns, column_ids, n_columns_total)

    def give_up_columns(self) -> None:
        """Keep nothing but what the tree under way is completed with."""
        self._columns = ShardColumns(presort([]), np.empty(0, np.int32), self._columns.n_columns_total)
        (tree,) = self.trees
        self._free = [Workspace(self._threads, make_runner(self._columns.columns))]
        tree.workspace = self._free[0]
        tree.take_columns(self._columns, sums_zones=True)

    def _make_trees(self) -> None:
        """Make room for the trees of a fit, and for what they are grown with."""
        self._end_threads()
        columns, turns, n_trees = self._columns.columns, bool(self._n_slots), self._n_slots or self._n_whole
        # Room for the zone sums of one tree is what many trees need for all else.
        fit = self._columns, self._plan, self.target, self._table[0], isinstance(columns, Columns) and not turns
        self.trees = [TreeState(*fit) for _ in range(n_trees)]
        n_workspaces = min(n_trees, self.n_threads)
        alone = n_trees == 1 and not turns
        threads = [self._threads if alone else Threads(self.n_threads // n_workspaces) for _ in range(n_workspaces)]
        self._free = [Workspace(own, make_runner(columns), by_turns=turns) for own in threads]
        for tree, workspace in zip(self.trees, self._free, strict=False):
            tree.workspace = workspace

    def _end_threads(self) -> None:
        for workspace in self._free:
            if workspace.threads is not self._threads:
                workspace.threads.close()

    @property
    def n_threads(self) -> int:
        """Threads that work within a message is spread over."""
        return self._threads.n_threads

    def give_up(self) -> None:
        """Have threads that grow a tree end soon; called by another thread, which wants nothing more of this shard."""
        for workspace in self._free:
            workspace.runner.give_up()

    def close(self) -> None:
        """End the shard's threads."""
        self._end_threads()
        self._threads.close()

    def handle(self, message: Calls) -> dict[int, Any]:
        """Carry out a message and return the replies by slot.

        Raises
        ------
        StaleMessage
            If it is of another fit or epoch than the last ``begin``.
        """
        method, *arguments = message.calls[0]
        if method in ("begin", "renew"):
            return {0: getattr(self, method)(message.fit, message.epoch, *arguments)}
        if self._fit != (message.fit, message.epoch):
            raise StaleMessage(f"message of fit {message.fit}, epoch {message.epoch} to a shard of fit and epoch {self._fit}")
        if method in self.OWN:
            return {0: getattr(self, method)(*arguments)}
        by_slot = list(zip(message.slots, message.calls, strict=True))
        replies = self._threads.map(self._carry_out, by_slot, most=len(self._free))
        self._n_finished += sum(call[0] == "finish" for call in message.calls)
        return dict(zip(message.slots, replies, strict=True))

    def _carry_out(self, one: tuple[int, Call]) -> Any:
        slot, (method, *arguments) = one
        tree, workspace = self.trees[slot], self._free.pop()  # list.pop and append are atomic
        try:
            if workspace.by_turns:
                workspace.runner.forget_nodes()  # of another tree, perhaps
            tree.workspace = workspace
            return getattr(tree, method)(*arguments)
        finally:
            self._free.append(workspace)

    def begin(
        self,
        fit: str,
        epoch: int,
        plan: ForestPlan | BoostingPlan,
        initial: NDArray[np.float64] | None,
        n_slots: int = 0,
        n_whole: int = 1,
    ) -> Begun:
        """Open a fit.

        ``initial`` is the raw prediction to start from, shape (K,), or that of each row, shape (K, n_rows); None lets the loss choose
        (boosting). ``n_slots`` are the trees that will grow side by side; 0 for one at a time, or, where this shard has all columns, for
        ``n_whole``, each grown by threads of its own.
        """
        target, weight = self._table
        self._plan, self._fit, self._n_finished = plan, (fit, epoch), 0
        self._n_slots, self._n_whole = n_slots, n_whole
        if isinstance(plan, BoostingPlan):
            self.target: ForestTarget | BoostingTarget = BoostingTarget.of_table(plan, target, weight, initial, self._threads)
            begun = Begun(self.target.initial)
        else:
            self.target = ForestTarget.of_table(plan, target, weight)
            begun = Begun(np.empty(0), 0 if self.target.out_of_bag is None else self.target.out_of_bag.exponent)
        self._make_trees()
        return begun

    def renew(self, fit: str, epoch: int) -> int:
        """Go on in a new epoch, between two trees: those under way are forgotten.

        Returns how many trees of the fit are finished; -1 if the shard knows nothing of the fit.
        """
        mine, last = self._fit or (fit, epoch - 1)
        if mine != fit or last >= epoch:
            raise StaleMessage(f"epoch {epoch} of fit {fit} is not after epoch {last} of fit {mine}")
        if self._fit is None:
            return -1
        self._fit = (fit, epoch)
        return self._n_finished

    def fetch(self, first: int, last: int) -> list[NDArray[Any]]:
        """Return what the finished trees left behind for some rows: arrays with the rows as their last axis."""
        return [array[..., first:last] for array in self.target.state()]

    def adopt(self, first: int, state: list[NDArray[Any]], n_finished: int) -> None:
        """Take over the state of rows from ``first`` on, from a shard that has finished ``n_finished`` trees."""
        for mine, theirs in zip(self.target.state(), state, strict=True):
            mine[..., first : first + theirs.shape[-1]] = theirs
        self._n_finished = n_finished
