"""A shard of rows: some row ranges of a table, with all columns, and the state of these rows.

It answers messages one at a time, like :class:`~dtrees.engine.shard.shard.Shard`, and does nothing on its own. A message may need payloads
from other shards; the *program* of the message takes the steps (:mod:`dtrees.engine.protocol.exchange`): "targets" and "held out" before
the first tree, those in :mod:`dtrees.engine.rows.tree` during trees, "losses" and "scores" after a tree. The state of the current tree is
in :mod:`dtrees.engine.rows.rows_in_tree`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, side_by_side
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.all_rows import AllRows, in_order, rows_of
from dtrees.engine.rows.categories import count_categories
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.whole import losses_of_blocks
from dtrees.engine.rows.zone_edges import Edges, merge_sketches, own_zone_map, sketch_columns
from dtrees.engine.shard.shard import FitShard
from dtrees.engine.shard.targets import scales
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.split.policy import SHARED_CELLS
from dtrees.split.table.columns import Columns
from dtrees.split.table.zone_map import ZoneMap
from dtrees.tree.tree import Tree


class RowShard(FitShard):
    """Some row ranges of a table, which answer the messages of a fit.

    Parameters
    ----------
    columns : Columns
        All columns of the table, for the shard's rows.
    ranges : sequence of tuple of int
        The first row of each range, and the row after its last, ascending and without overlap. May be empty.
    n_rows_total : int
        Rows of the whole table.
    target : ndarray, shape (n_rows,)
        The target of the shard's rows: float64 for regression, class numbers otherwise.
    weight : ndarray of float64, shape (n_rows,), or None
        Given for all shards or for none.
    n_threads : int
    """

    def __init__(
        self,
        columns: Columns,
        ranges: Sequence[tuple[int, int]],
        n_rows_total: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        n_threads: int = 1,
    ) -> None:
        super().__init__(target, weight, n_threads)
        self._columns, self._n_rows_total = columns, n_rows_total
        self._ranges = np.array(ranges, np.int64).reshape(-1, 2)
        self._edges: Edges | None = None
        self._zone_map: ZoneMap | None = None

    def replay_tree(self, tree: Tree, place: int) -> Steps[None]:
        """Add the values of a tree grown earlier, given its place in its round, to the predictions of the shard's rows."""
        self.trees[0].replay(tree, place)
        yield from ()

    def _add_votes(self, first: int, trees: Sequence[Tree]) -> Steps[None]:
        for number, tree in enumerate(trees, first):
            self.trees[0].add_votes(number, tree)
        yield from ()

    def _boost(self, message: m.GrowTree) -> Steps[tuple[Tree, m.Losses | None]]:
        shards, rows, output = self.shards, self.trees[0], message.output
        round_ = rows.boosting.round_of(message.tree)
        if message.tree == round_:
            rows.boosting.open_round()
        if shards.boosting.loss.takes_all_rows:
            yield from self._open_round_of_all(round_)
        tree, known = yield from rows_tree.boosted_tree_steps(shards, rows, message.tree, output, message.learning_rate)
        rows.finish(tree, known, output)
        return tree, (yield from self._losses()) if message.score else None

    def _open_round_of_all(self, round_: int) -> Steps[None]:
        """If the loss of a round takes all rows, have shard 0 compute it; within a round this is repeated for new shards."""
        shards, target, losses = self.shards, self.trees[0].boosting, list[Any]()
        raw = target.opened_for(round_)
        if raw is None:
            return
        sent = yield shards.step("raw predictions", {0: (raw,)}, shards.to_first)
        if not shards.shard:
            of_round = shards.boosting.loss.for_round(self._all_rows.target, self._all_rows.together(sent), self._all_rows.weight)
            losses = [of_round.of_rows(places) for places in self._all_rows.places]
        ((loss,),) = yield shards.step("derivatives", {shard: (one,) for shard, one in enumerate(losses)}, (0,))
        target.take_loss(round_, loss)

    def _losses(self) -> Steps[m.Losses]:
        """Return the losses of some blocks of rows; on shard 0 also the score, if there is a scorer."""
        shards, target, score = self.shards, self.trees[0].boosting, None
        if shards.boosting.scoring is not None:
            sent = yield shards.step("scores", {0: (target.raw[:, target.scored],)}, shards.to_first)
            if not shards.shard:
                score = shards.boosting.scoring.score(self._scored_rows.target, self._scored_rows.together(sent), self._scored_rows.weight)
        return (yield from losses_of_blocks(shards, self.trees[0], score))

    def _grow_trees(self, first: int, last: int) -> Steps[list[Tree]]:
        programs, own = {}, self.trees
        for index, number in enumerate(range(first, last)):
            if index == len(own):
                own.append(own[0].for_another_tree())
            own[index].n_side_by_side = last - first
            programs[index] = rows_tree.forest_tree_steps(self.shards, own[index], number)
        trees: list[Tree] = yield from side_by_side(programs, SHARED_CELLS * self.shards.n_shards)
        return trees

    def _open(self, message: m.Open) -> Steps[m.Opened]:
        """Have shard 0 compute what depends on the rows of all shards: edges of zones, scales, the first prediction and held-out rows."""
        self._begin_epoch(message.fit, message.epoch)
        plan, columns, n_rows, (target, weight) = message.plan, self._columns, self._n_rows_total, self._table
        sent_rows = rows_tree.rows_to_send(plan, n_rows, message.n_shards) if isinstance(plan, ForestPlan) else rows_tree.SENT_ROWS
        about = message.fit, message.epoch, message.shard, message.n_shards, n_rows, columns.n_columns
        self.shards = shards = Shards(plan, *about, sent_rows=sent_rows)
        sketches = None
        if message.edges is None:
            sketches = sketch_columns(columns, self._threads.map), count_categories(columns, plan.rules.categorical)
        sent = yield shards.step("targets", {0: cast(Arrays, (self._ranges, target, weight, sketches))}, shards.to_first)
        replies = {} if shards.shard else self._look_at_all(message, sent)
        del sent, sketches
        ((ranges, edges, known),) = yield shards.step("held out", replies, (0,))
        shards.ranges.extend(ranges)
        if self._edges is None or self._zone_map is None or not all(map(np.array_equal, self._edges, edges)):
            self._edges, self._zone_map = edges, own_zone_map(columns, edges, self._threads.map)
        of_rows = columns, self._zone_map, self._edges, shards, self._threads
        if isinstance(plan, BoostingPlan):
            self.target = BoostingTarget(plan, known, target, weight, self._ranges, self._threads)
        else:
            self.target = ForestTarget(plan, known, target, weight, self._ranges)
        self.trees = [RowsInTree(self.target, *of_rows)]
        if shards.shard:
            return m.Opened(0, self.initial)
        return m.Opened(0, self.initial, edges if message.edges is None else None, ranges)

    def _look_at_all(self, message: m.Open, sent: Sequence[Any]) -> dict[int, Any]:
        """Return what each shard is sent: the row ranges of all shards, the edges of zones, and the results for its rows."""
        plan, ranges, edges = message.plan, [one[0] for one in sent], message.edges
        if edges is None:
            sketches, n_categories = zip(*(one[3] for one in sent), strict=True)
            edges = merge_sketches(sketches).of_categories(np.max(n_categories, axis=0))
        in_all: list[Any] = [None if sent[0][i] is None else in_order([one[i] for one in sent], ranges, self._n_rows_total) for i in (1, 2)]
        look = self._look_at_boosted if isinstance(plan, BoostingPlan) else _look_at_forest
        return {shard: (ranges, edges, known) for shard, known in enumerate(look(message, ranges, *in_all))}

    def _look_at_boosted(
        self, message: m.Open, ranges: Sequence[NDArray[np.int64]], target: NDArray[Any], weight: NDArray[np.float64] | None
    ) -> list[scales.BoostedRows]:
        plan, rows = cast(BoostingPlan, message.plan), [rows_of(own) for own in ranges]
        found = scales.find_boosted_rows(plan, target, weight, message.initial)
        initial, held_out = found.initial, found.held_out
        targets = scales.by_output(target), combine_weights(weight, plan.class_weight, target), rows
        if plan.scoring is not None:
            train = scales.rows_trained_on(held_out, targets[1])
            self._scored_rows = AllRows(*targets, train if held_out is None else held_out)
        if plan.loss.takes_all_rows:
            self._all_rows = AllRows(targets[0], scales.weights_trained_on(target.shape[0], targets[1], held_out), rows)
        every = []
        for own in rows:
            start = initial if initial.ndim == 1 else initial[:, own]
            every.append(found._replace(initial=start, held_out=None if held_out is None else held_out[own]))
        return every


def _look_at_forest(
    message: m.Open, ranges: Sequence[NDArray[np.int64]], target: NDArray[Any], weight: NDArray[np.float64] | None
) -> list[scales.ForestRows]:
    plan = cast(ForestPlan, message.plan)
    found = scales.find_forest_rows(plan, target, weight, np.concatenate([own[:, 0] for own in ranges]))
    before = np.split(found.before, np.cumsum([own.shape[0] for own in ranges])[:-1], axis=1)
    numbers = [found.numbers[rows_of(own)].astype(np.uint32) if plan.targets else found.numbers for own in ranges]
    return [found._replace(before=one, numbers=of_rows) for one, of_rows in zip(before, numbers, strict=True)]
