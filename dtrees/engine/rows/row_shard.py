"""A shard of rows: some row ranges of a table, with all columns, and the state of these rows.

It answers messages one at a time, like :class:`~dtrees.engine.shard.shard.Shard`, and does nothing on its own. A message may need payloads
from other shards; the *program* of the message takes the steps (:mod:`dtrees.engine.protocol.exchange`). The state of the current tree is
in :mod:`dtrees.engine.rows.rows_in_tree`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import checksum
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, side_by_side
from dtrees.engine.protocol.messages import AddVotes, CountVotes, Grown, GrowTree, GrowTrees, Message, Replay, Votes
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.all_rows import AllRows, add_shared_blocks, in_order, rows_of, shared_blocks
from dtrees.engine.rows.categories import count_categories
from dtrees.engine.rows.forest_trees import forest_tree_steps
from dtrees.engine.rows.rows_in_forest import RowsInForest
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.tree import boosted_tree_steps
from dtrees.engine.rows.whole import undrawn_weight
from dtrees.engine.rows.zone_edges import Edges, own_zone_map, sketch_columns
from dtrees.engine.shard.shard import FitShard
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.scales import (
    BoostedRows,
    BoostingScales,
    ForestRows,
    ForestScales,
    by_output,
    find_boosted_rows,
    find_forest_rows,
    rows_trained_on,
    weights_trained_on,
)
from dtrees.split.policy import SHARED_CELLS
from dtrees.split.table.columns import Columns
from dtrees.split.table.zone_map import ZoneMap


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

    begins = m.Introduce

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

    def _carry_out(self, message: Message) -> Steps[Any]:
        match message:
            case m.Introduce():
                return self._introduce(message)
            case m.Open():
                return (yield from self._open(message))
            case Replay():
                return self._tree.replay(message.tree, message.place)
            case GrowTree():
                return (yield from self._grow_tree(message))
            case GrowTrees():
                return (yield from self._grow_trees(message.first, message.last))
            case AddVotes():
                for number, tree in enumerate(message.trees, message.first):
                    self._tree_rows[0].add_votes(number, tree)
                return None
            case CountVotes():
                bag = self._tree_rows[0].out_of_bag
                return Votes(bag.sum, bag.count, bag.exponent)
        raise TypeError(f"a shard of rows does not know messages of type {type(message).__name__}")

    def _rows_of_tree(self, index: int) -> RowsInForest:
        """Return the rows in the tree with an index among those that grow side by side."""
        while len(self._tree_rows) <= index:
            self._tree_rows.append(self._tree_rows[0].for_another_tree())
        return self._tree_rows[index]

    def _grow_tree(self, message: GrowTree) -> Steps[Grown]:
        """Grow a tree together with all other shards, and add it to the predictions."""
        shards, rows, output = self._shards, self._tree, message.output
        round_ = rows.boosting.round_of(message.tree)
        if message.tree == round_:
            rows.boosting.open_round()
        if shards.boosting.loss.takes_all_rows:
            yield from self._open_round_of_all(shards, round_)
        tree, known = yield from boosted_tree_steps(shards, rows, message.tree, output, message.learning_rate)
        scored, losses, undrawn, score = rows.finish(tree, known, output, message.score), None, 0.0, None
        if message.score and shards.boosting.scoring is not None:
            mine = {0: (rows.boosting.raw[:, rows.boosting.scored],)}
            sent = yield shards.step("scores", mine, shards.to_first)
            score = None if self._shard else self._scored_rows.score(shards.boosting.scoring, sent)
        if scored is not None:
            elsewhere, helpers = shared_blocks(shards.ranges)[self._shard]
            sent = yield shards.step("losses", scored[1].sent(elsewhere), helpers)
            losses = add_shared_blocks(*scored, sent)
            undrawn = yield from undrawn_weight(shards, rows)
        return Grown([] if self._shard else [tree], checksum([tree]), losses, undrawn, score)

    def _open_round_of_all(self, shards: Shards, round_: int) -> Steps[None]:
        """If the loss of a round takes all rows, have shard 0 compute it; within a round this is repeated for new shards."""
        raw = self._tree.boosting.opened_for(round_)
        if raw is None:
            return
        sent = yield shards.step("raw predictions", {0: (raw,)}, shards.to_first)
        losses = [] if self._shard else self._all_rows.losses_of_round(shards.boosting.loss, sent)
        ((loss,),) = yield shards.step("derivatives", {shard: cast(Arrays, (one,)) for shard, one in enumerate(losses)}, (0,))
        self._tree.boosting.take_loss(round_, loss)

    def _grow_trees(self, first: int, last: int) -> Steps[Grown]:
        """Grow trees of a forest together with all other shards."""
        programs = {}
        for index, number in enumerate(range(first, last)):
            rows = self._rows_of_tree(index)
            rows.n_side_by_side = last - first
            programs[index] = forest_tree_steps(self._shards, rows, self._scales, number)
        trees = yield from side_by_side(programs, SHARED_CELLS * self._shards.n_shards)
        return Grown([] if self._shard else trees, checksum(trees))

    def _introduce(self, message: m.Introduce) -> m.Introduced:
        self._begin_epoch(message.fit, message.epoch)
        self._shard, self._plan, self._n_shards, self._sent_rows = message.shard, message.plan, message.n_shards, message.sent_rows
        if not message.sketches:
            return m.Introduced(self._ranges, None, None)
        n_categories = count_categories(self._columns, message.plan.rules.categorical)
        return m.Introduced(self._ranges, sketch_columns(self._columns, self._threads.map), n_categories)

    def _open(self, message: m.Open) -> Steps[Any]:
        """Have shard 0 compute the scales from the targets and weights of all rows, and send each shard its part."""
        assert self._fit is not None
        n_columns, ranges, plan = self._columns.n_columns, message.ranges, self._plan
        self._shards = shards = Shards(
            plan, *self._fit, self._shard, self._n_shards, self._n_rows_total, n_columns, ranges=ranges, sent_rows=self._sent_rows
        )  # fmt: skip
        target, weight = self._table
        mine = (target,) if weight is None else (target, weight)
        sent = yield shards.step("targets", {0: mine}, shards.to_first)
        reply, replies = (None, {}) if self._shard else self._look_at_all(message, sent)
        del sent, mine
        (own,) = yield shards.step("held out", replies, (0,))
        about = self._about_rows(message.edges)
        if isinstance(plan, BoostingPlan):
            self._tree = RowsInTree(plan, self._targets(plan, *own), *about)
            return reply
        self._scales, *of_rows = own
        self._tree_rows = [RowsInForest(plan, ForestTarget(plan, ForestRows(self._scales, *of_rows), target, weight, self._ranges), *about)]
        return reply

    def _look_at_all(self, message: m.Open, sent: Sequence[Arrays]) -> tuple[BoostingScales | ForestScales, dict[int, Any]]:
        """Return the scales that follow from the targets and weights of all rows, and the arrays that each shard is sent."""
        ranges = message.ranges
        target, weight = (in_order([one[i] for one in sent], ranges, self._n_rows_total) if len(sent[0]) > i else None for i in (0, 1))
        assert target is not None
        if isinstance(self._plan, BoostingPlan):
            return self._look_at_boosted(self._plan, message.initial, [rows_of(own) for own in ranges], target, weight)
        found = find_forest_rows(self._plan, target, weight, np.concatenate([own[:, 0] for own in ranges]))
        before = np.split(found.before, np.cumsum([own.shape[0] for own in ranges])[:-1], axis=1)
        numbers = [found.numbers[rows_of(own)].astype(np.uint32) if self._plan.targets else found.numbers for own in ranges]
        return found.scales, {shard: (found.scales, *own) for shard, own in enumerate(zip(before, numbers, strict=True))}

    def _look_at_boosted(
        self,
        plan: BoostingPlan,
        initial: NDArray[np.float64] | None,
        rows: list[NDArray[np.int64]],
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
    ) -> tuple[BoostingScales, dict[int, Any]]:
        found = find_boosted_rows(plan, target, weight, initial)
        targets = by_output(target), combine_weights(weight, plan.class_weight, target), rows
        if plan.scoring is not None:
            train = rows_trained_on(found.held_out, targets[1])
            self._scored_rows = AllRows(*targets, train if found.held_out is None else found.held_out)
        if plan.loss.takes_all_rows:
            self._all_rows = AllRows(targets[0], weights_trained_on(target.shape[0], targets[1], found.held_out), rows)
        held_out, scales = np.empty(0, np.bool_) if found.held_out is None else found.held_out, found.scales
        replies = {}
        for shard, own in enumerate(rows):
            start = scales.initial if scales.initial.ndim == 1 else scales.initial[:, own]
            replies[shard] = scales._replace(initial=start), np.packbits(held_out[own if plan.holds_out else slice(0)]), found.eligible
        return scales, replies

    def _targets(self, plan: BoostingPlan, scales: BoostingScales, bits: NDArray[np.uint8], eligible: NDArray[np.uint8]) -> BoostingTarget:
        """Return the boosting targets of the shard's rows."""
        target, weight = self._table
        held_out = np.unpackbits(bits, count=target.shape[0]).astype(np.bool_) if plan.holds_out else None
        known = BoostedRows(scales, held_out, eligible)
        return BoostingTarget(plan, known, target, weight, self._ranges, self._n_rows_total, self._threads)

    def _about_rows(self, edges: Edges) -> tuple[Any, ...]:
        """Return the arguments of :class:`RowsInTree` after the targets."""
        if self._edges is None or self._zone_map is None or not _are_same(self._edges, edges):
            self._edges, self._zone_map = edges, own_zone_map(self._columns, edges, self._threads.map)
        place = self._ranges, self._n_rows_total, self._shard, self._n_shards
        return self._columns, self._zone_map, self._edges, *place, self._threads


def _are_same(one: Edges, other: Edges) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
