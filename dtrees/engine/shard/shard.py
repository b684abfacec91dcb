"""A shard of columns: presorted columns of a table, the target and weights of all rows, and the state between trees.

It answers the messages of a fit, one at a time, and does nothing on its own. A message is carried out by a program of steps, in which
shards exchange their results (:mod:`dtrees.engine.shard.tree`). In this process, one shard has all columns and takes no steps; on a
cluster, each worker has a shard with some of the columns.

Trees may grow side by side, with an index each, over the same columns and target, each with its own row partition and nodes. They take
turns in using the runners (threads, scratch space). The trees of a message are distributed over the shard's threads from step to step;
with fewer trees than threads, each gets several threads.

Terms
-----
closing
    adding a tree's values to the predictions, or its out-of-bag predictions to the sums. Trees are closed in order, so that the state is
    always that after a number of first trees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import checksum
from dtrees.engine.outcome.scoring import shares_of
from dtrees.engine.outcome.values import places_of_leaves
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Weights
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.exchange import Mailbox, Program, Shards, Steps, side_by_side
from dtrees.engine.shard.node_search import ShardColumns
from dtrees.engine.shard.runner import Runner
from dtrees.engine.shard.sparse_runner import make_runner
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.tree import ColumnTree, grow_alone, rows_set_aside, tree_steps
from dtrees.engine.threads import Threads
from dtrees.engine.tree.program import GrownTree
from dtrees.split.compile.kernels import plain
from dtrees.split.table.columns import Columns, presort
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.tree.tree import Tree

#: The ends of the leaves' rows in sample and of all their rows, and the leaf values.
_Votes = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


class FitShard(ABC):
    """The common part of shards of columns and of rows: targets, weights, threads, and the current fit.

    Attributes
    ----------
    mailbox : Mailbox
        Where the executor puts payloads of other shards.
    shards : Shards
        The properties of all shards in the current fit.
    target : ForestTarget or BoostingTarget
        The values on which the trees of the current fit are split.
    """

    shards: Shards
    target: ForestTarget | BoostingTarget

    def __init__(self, target: NDArray[Any], weight: Weights, n_threads: int) -> None:
        # Arrays from another process may be unaligned, which kernels do not support.
        self._table = (plain(target.T).T, None if weight is None else plain(weight))
        self._threads = Threads(n_threads)
        self._fit: tuple[str, int] | None = None
        self.mailbox = Mailbox()

    def close(self) -> None:
        """End the shard's threads."""
        self._threads.close()

    def program(self, message: m.Message) -> Program:
        """Carry out a message in steps; return the reply.

        Raises
        ------
        StaleMessage
            If the message is of another fit or epoch than the current one, or begins an earlier epoch.
        """
        if not isinstance(message, m.Open) and self._fit != (message.fit, message.epoch):
            raise m.StaleMessage(f"message of fit {message.fit}, epoch {message.epoch} to a shard of fit and epoch {self._fit}")
        (reply,) = yield from side_by_side({0: self._carry_out(message)})
        return reply

    def _carry_out(self, message: m.Message) -> Steps[Any]:
        """Carry out a message that is not stale."""
        match message:
            case m.Open():
                return (yield from self._open(message))
            case m.Replay():
                return (yield from self.replay_tree(message.tree, message.place))
            case m.GrowTree():
                tree, losses = yield from self._boost(message)
                return self._reply([tree], losses)
            case m.GrowTrees():
                return self._reply((yield from self._grow_trees(message.first, message.last)))
            case m.AddVotes():
                return (yield from self._add_votes(message.first, message.trees))
            case m.CountVotes():
                return self.count_votes()
        raise TypeError(f"a shard does not know messages of type {type(message).__name__}")

    def _reply(self, trees: list[Tree], losses: m.Losses | None = None) -> m.Grown:
        return m.Grown([] if self.shards.shard else trees, checksum(trees), losses)

    @abstractmethod
    def _open(self, message: m.Open) -> Steps[m.Opened]:
        """Open a fit, or continue it in a new epoch."""

    @abstractmethod
    def replay_tree(self, tree: Tree, place: int) -> Steps[None]:
        """Add the values of a tree grown earlier, given its place in its round, to the predictions of all rows."""

    @abstractmethod
    def _boost(self, message: m.GrowTree) -> Steps[tuple[Tree, m.Losses | None]]:
        """Grow a tree of boosting, add its values to the predictions, and compute losses if requested."""

    @abstractmethod
    def _grow_trees(self, first: int, last: int) -> Steps[list[Tree]]:
        """Grow trees of a forest side by side, together with all other shards."""

    @abstractmethod
    def _add_votes(self, first: int, trees: Sequence[Tree]) -> Steps[None]:
        """Add the out-of-bag predictions of trees, from number ``first`` on, to their sums."""

    @property
    def initial(self) -> NDArray[np.float64]:
        """The initial raw prediction of boosting, shape (K,); empty for forests."""
        return self.target.initial if isinstance(self.target, BoostingTarget) else np.empty(0)

    def count_votes(self) -> m.Votes:
        """Return the out-of-bag sums of a forest."""
        bag = cast(ForestTarget, self.target).out_of_bag
        assert bag is not None
        return m.Votes(bag.sum, bag.count, bag.exponent)

    def _begin_epoch(self, fit: str, epoch: int) -> bool:
        """Begin an epoch; return whether it continues the current fit."""
        mine, last = self._fit or ("", 0)
        if mine == fit and last > epoch:
            raise m.StaleMessage(f"epoch {epoch} of fit {fit} is before epoch {last}")
        self._fit = fit, epoch
        self.mailbox.open(fit, epoch)
        return mine == fit


class Shard(FitShard):
    """Some columns of a table and the state of all its rows.

    Parameters
    ----------
    columns : Columns or SparseColumns
        Sparse columns must be all columns of the table.
    column_ids : ndarray of int32, shape (n_columns,)
        Their numbers in the whole table, ascending.
    n_columns_total : int
        Number of columns of the whole table.
    target : ndarray, shape (n_rows,)
        float64 for regression, class numbers otherwise.
    weight : ndarray of float64, shape (n_rows,), or None
    n_threads : int

    Attributes
    ----------
    trees : list of ColumnTree
        The trees that grow side by side, by index.
    """

    def __init__(
        self,
        columns: AnyColumns,
        column_ids: NDArray[np.int32],
        n_columns_total: int,
        target: NDArray[Any],
        weight: Weights,
        n_threads: int = 1,
    ) -> None:
        super().__init__(target, weight, n_threads)
        self._free: list[Runner] = []
        self._columns = ShardColumns(columns, column_ids, n_columns_total)
        self._n_finished = 0
        self._closings: dict[int, tuple[ColumnTree, _Votes]] = {}  # of the trees grown last

    def give_up_columns(self) -> None:
        """Release the columns; only the current tree can be completed afterwards."""
        self._columns = ShardColumns(presort([]), np.empty(0, np.int32), self._columns.n_columns_total)
        (tree,) = self.trees
        self._free = [make_runner(self._columns.columns, self._threads)]
        tree.runner = self._free[0]
        tree.take_columns(self._columns, sums_zones=True)

    def _make_trees(self, n_whole: int) -> None:
        """Allocate the trees and runners of a fit."""
        self._end_threads()
        columns, n_side_by_side = self._columns.columns, self.shards.n_side_by_side
        turns, n_trees = bool(n_side_by_side), n_side_by_side or n_whole
        # The zone sums of one tree take as much memory as everything else of many trees.
        fit = self._columns, self.target, self._table[0], not turns
        self.trees = [ColumnTree(*fit) for _ in range(n_trees)]
        n_runners = min(n_trees, self._threads.n_threads)
        alone = n_trees == 1 and not turns
        threads = [self._threads if alone else Threads(self._threads.n_threads // n_runners) for _ in range(n_runners)]
        self._free = [make_runner(columns, own, by_turns=turns) for own in threads]
        for tree, runner in zip(self.trees, self._free, strict=False):
            tree.runner = runner
        set_aside = rows_set_aside(self.shards, threads[0].n_threads if isinstance(columns, Columns) else 1)
        for tree in self.trees:
            tree.shards, tree.set_aside = self.shards, set_aside

    def _end_threads(self) -> None:
        for runner in self._free:
            if runner.threads is not self._threads:
                runner.threads.close()

    def give_up(self) -> None:
        """Have the threads that grow a tree stop soon. Called by another thread; the shard is not used afterwards."""
        for runner in self._free:
            runner.give_up()

    def close(self) -> None:
        """End the shard's threads."""
        self._end_threads()
        super().close()

    def _open(self, message: m.Open) -> Steps[m.Opened]:
        """Open a fit, or continue it in a new epoch: shards that lack some of its trees take over the state of a shard that has them.

        If there is none (all shards are lost, or the remaining ones had already closed the tree when the others were lost), each starts
        from the beginning.
        """
        fit, epoch, own = message.fit, message.epoch, message.shard
        standing = self._n_finished if self._begin_epoch(fit, epoch) else -1
        n_rows, n_columns = self._table[0].shape[0], self._columns.n_columns_total
        owner = np.zeros(n_columns, np.int64)
        shards = Shards(message.plan, fit, epoch, own, message.n_shards, n_rows, n_columns, owner, n_side_by_side=message.n_side_by_side)
        replies = yield from shards.gather("standing", (standing, self._columns.ids))
        for shard, (_, ids) in enumerate(replies):
            owner[ids] = shard
        known = [n_finished for n_finished, _ in replies]
        reached = max((n for n in known if message.least <= n <= message.most), default=0)
        # A shard without finished trees may have been lost while it took over a state.
        behind = [shard for shard in shards.everyone if known[shard] != reached or not reached]
        if own in behind:
            self.begin(shards, message.initial)
        self.shards, self._closings = shards, {}
        for tree in self.trees:
            tree.shards = shards
        if reached and behind:
            source = known.index(reached)
            state = dict.fromkeys(behind, tuple(self.target.state())) if own == source else {}
            for sent in (yield shards.step("state", state, (source,) if own in behind else ())):
                for array, theirs in zip(self.target.state(), sent, strict=True):
                    array[:] = theirs
            self._n_finished = reached
        return m.Opened(reached, self.initial)

    def begin(self, shards: Shards, initial: NDArray[np.float64] | None, n_whole: int = 1) -> None:
        """Begin a fit; if this shard has all columns, ``n_whole`` trees grow at a time, each with threads of its own."""
        target, weight = self._table
        self.shards, self._n_finished, plan = shards, 0, shards.plan
        if isinstance(plan, BoostingPlan):
            self.target = BoostingTarget.of_table(plan, target, weight, initial, self._threads)
        else:
            self.target = ForestTarget.of_table(plan, target, weight)
        self._make_trees(n_whole)

    def replay_tree(self, tree: Tree, place: int) -> Steps[None]:
        """Add the values of a tree grown earlier, given its place in its round, to the predictions of all rows."""
        yield from self.trees[0].replay_steps(tree, place)
        self._n_finished += 1

    def _boost(self, message: m.GrowTree) -> Steps[tuple[Tree, m.Losses | None]]:
        shards, rows, output = self.shards, self.trees[0], message.output
        about = rows, message.tree, output, message.learning_rate
        tree = self.add_boosted(grow_alone(*about) if shards.n_shards == 1 else (yield from tree_steps(*about)), output)
        return tree, rows.boosting.losses(*shares_of(shards.n_rows, shards.n_shards)[shards.shard]) if message.score else None

    def add_boosted(self, grown: GrownTree, output: int) -> Tree:
        """Add the values of a tree just grown to the predictions; return the tree."""
        rows = self.trees[0]
        rows.boosting.add_tree(output, rows.rows.rows, grown.records, grown.said)
        self._n_finished += 1
        return grown.tree

    def grow_of_forest(self, number: int, index: int) -> Steps[Tree]:
        """Grow a tree of a forest, and store its out-of-bag predictions until it is closed."""
        shards, rows = self.shards, self.trees[index]
        grown = grow_alone(rows, number) if shards.n_shards == 1 else (yield from tree_steps(rows, number))
        if cast(ForestPlan, shards.plan).out_of_bag:
            leaf, _, in_stop, stop = places_of_leaves(grown.records)
            self._closings[number] = rows, (in_stop, stop, grown.said[leaf])
        return grown.tree

    def close_tree(self, number: int) -> None:
        """Add a tree's out-of-bag predictions to the sums, if these are wanted."""
        if number in self._closings:
            rows, votes = self._closings.pop(number)
            cast(ForestTarget, self.target).add_votes(rows.rows.rows, *votes)
            self._n_finished += 1

    def _grow_trees(self, first: int, last: int) -> Steps[list[Tree]]:
        self._closings = {}
        programs = {index: self._by_turns(index, self.grow_of_forest(number, index)) for index, number in enumerate(range(first, last))}
        trees: list[Tree] = yield from side_by_side(programs, share=partial(self._threads.map, most=len(self._free)))
        return trees

    def _by_turns(self, index: int, program: Steps[Tree]) -> Steps[Tree]:
        """Take the steps of a tree, each with a runner that no other tree uses meanwhile."""
        sent = None
        while True:
            runner = self._free.pop()  # list.pop and append are atomic
            runner.forget_nodes()  # possibly of another tree
            self.trees[index].runner = runner
            try:
                step = program.send(sent)
            except StopIteration as end:
                return cast(Tree, end.value)
            finally:
                self._free.append(runner)
            sent = yield step

    def _add_votes(self, first: int, trees: Sequence[Tree]) -> Steps[None]:
        """Close trees: those grown last, or, after all shards were lost, trees that are grown again."""
        last = first + len(trees)
        for number in range(first, last):
            if number not in self._closings:
                yield from self._grow_trees(number, min(number + self.shards.n_side_by_side, last))
            self.close_tree(number)
