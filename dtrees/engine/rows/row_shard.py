"""A shard of rows: some stretches of a table's rows, all columns of them, and the state of these rows.

It answers messages one at a time, as :class:`~dtrees.engine.shard.shard.Shard` does, and does nothing on its own. To carry out a message
may take parcels of other shards: how it goes is a *program* (:mod:`dtrees.engine.rows.exchange`). What is known of the tree under way is
with :mod:`dtrees.engine.rows.rows_in_tree`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.grower import Grower
from dtrees.engine.outcome.scoring import Parts
from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.protocol.messages import Many, Message, Root, StaleMessage
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.between.in_common import in_common
from dtrees.engine.rows.between.relay import Grid, added, grid_of, relayed
from dtrees.engine.rows.between.scored_rows import ScoredRows
from dtrees.engine.rows.between.side_by_side import side_by_side
from dtrees.engine.rows.between.stretches import in_order, rows_of
from dtrees.engine.rows.between.torn_blocks import put_together
from dtrees.engine.rows.by_order import messages as by_order
from dtrees.engine.rows.by_order.quantiles import quantiles
from dtrees.engine.rows.categories.own_rows import count_categories
from dtrees.engine.rows.exchange import Arrays, Join, Mailbox, Parcel, Program, Step
from dtrees.engine.rows.forests import messages as f
from dtrees.engine.rows.forests.forest_rows import ForestRows, pure_in_all
from dtrees.engine.rows.forests.leaf_rows import measure_means
from dtrees.engine.rows.forests.random_search import joined_ends
from dtrees.engine.rows.forests.rows_in_forest import RowsInForest
from dtrees.engine.rows.forests.scales import scales_of
from dtrees.engine.rows.forests.several_targets import ForestRowsOfTargets
from dtrees.engine.rows.row_target import AddsByLeaf, RowTarget
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.searching.searcher import Wanted
from dtrees.engine.rows.searching.zone_edges import Edges, own_zone_map, sketch_columns
from dtrees.engine.rows.session import Counts, TreeSession
from dtrees.engine.rows.tree import boosted_tree_steps, checksum
from dtrees.engine.shard.targets.boosting_target import rows_held_out
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import plain
from dtrees.split.search.order_statistics.deviations import weights_in_bits
from dtrees.split.table.columns import Columns
from dtrees.split.table.zone_map import ZoneMap
from dtrees.tree.tree import Tree

_NONE = np.empty(0, np.int64)


class RowShard:
    """Some stretches of a table's rows, which answer the messages of a fit.

    Parameters
    ----------
    columns : Columns
        All columns of the table, of the shard's rows.
    stretches : sequence of tuple of int
        The first row of each stretch, and the one after its last, ascending and without overlap. A shard may have none.
    n_rows_total : int
        Rows of the whole table.
    target : ndarray, shape (n_rows,)
        Of the shard's rows, as weights are: float64 for regression, class numbers otherwise.
    weight : ndarray of float64, shape (n_rows,), or None
        Either all shards have some, or none has.
    n_threads : int

    Attributes
    ----------
    mailbox : Mailbox
        Where the executor puts parcels of other shards.
    """

    def __init__(
        self,
        columns: Columns,
        stretches: Sequence[tuple[int, int]],
        n_rows_total: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        n_threads: int = 1,
    ) -> None:
        self._columns, self._n_rows_total = columns, n_rows_total
        self._stretches = np.array(stretches, np.int64).reshape(-1, 2)
        self._table = (plain(target.T).T, None if weight is None else plain(weight))
        self._threads = Threads(n_threads)
        self._fit: tuple[str, int] | None = None
        self.mailbox = Mailbox()
        self._edges: Edges | None = None
        self._zone_map: ZoneMap | None = None
        self._grid: Grid | None = None
        self._told: Arrays = ()

    def close(self) -> None:
        """End the shard's threads."""
        self._threads.close()

    def program(self, message: Message) -> Program:
        """Carry out a message, step by step; return the reply.

        Raises
        ------
        StaleMessage
            If it is of another fit or epoch than the last ``Introduce``.
        """
        if isinstance(message, Many):
            self._check_fresh(message)
            pairs = [(slot, self._in_slot(slot), one) for slot, one in zip(message.slots, message.messages, strict=True)]
            for _, tree, _ in pairs:
                tree.n_side_by_side = len(pairs)
            return side_by_side({slot: self._by_relays(self._in_forest(one, tree)) for slot, tree, one in pairs})
        return self._by_relays(self._program(message))

    def _by_relays(self, program: Program) -> Program:
        return program if self._grid is None else relayed(program, self._grid)

    def _program(self, message: Message) -> Program:
        """Carry out a message that is about the fit, or about the tree under way."""
        if isinstance(message, m.Introduce):
            return self._introduce(message)
        self._check_fresh(message)
        match message:
            case m.Prepare():
                return (yield from self._prepare(message))
            case m.Open():
                return self._open(message)
            case f.OpenForest():
                return self._open_forest(message)
            case f.CountVotes():
                return self._slots[0].count_votes()
            case m.Replay():
                return self._tree.replay(message.tree, message.output)
            case m.Derive():
                return self._tree.derive(message.tree, message.output, message.cuts)
            case by_order.MeasureSizes() | by_order.MeasureLeaves():
                return (yield from self._measure(message))
            case by_order.AddDeviations():
                return self._tree.add_deviations(message)
            case by_order.SumLeaves():
                return self._tree.sum_leaves(message)
            case m.GrowTree():
                return (yield from self._grow_tree(message))
        return (yield from self._in_tree(message, self._tree))

    def _check_fresh(self, message: Message) -> None:
        if self._fit != (message.fit, message.epoch):
            raise StaleMessage(f"message of fit {message.fit}, epoch {message.epoch} to a shard of fit and epoch {self._fit}")

    def _in_slot(self, slot: int) -> RowsInForest:
        """Return the rows in the tree that grows in a slot."""
        while len(self._slots) <= slot:
            self._slots.append(self._slots[0].for_another_tree())
        return self._slots[slot]

    def _in_forest(self, message: Message, tree: RowsInForest) -> Program:
        """Carry out a message about a tree of a forest."""
        match message:
            case f.CountClasses():
                return tree.count_classes(message.tree)
            case f.Draw():
                return tree.draw(message)
            case f.MeasureMeans():
                own = tree.rows_of_leaves(message)
                return measure_means(self._plan.rules, (yield self._step("leaves", message.serial, own, self._everyone)))
            case f.AddVotes():
                return tree.add_votes(message)
        return (yield from self._in_tree(message, tree))

    def _in_tree(self, message: Message, tree: RowsInTree) -> Program:
        """Carry out a message about a tree, of either kind."""
        match message:
            case m.AddInOrder():
                return tree.add_in_order(message)
            case m.Fix():
                return (yield from self._fix(message, tree))
            case m.Level():
                return (yield from self._level(message, tree))
            case m.SearchFurther() if isinstance(tree, RowsInForest) and self._plan.rules.random_splits:
                return m.Levelling(None, *(yield from self._search_at_random(message.serial, message.drawn, tree))[:2])
            case m.SearchFurther():
                n = message.drawn.shape[0]
                scanned, flagged = yield from self._scan(message.serial, np.full(n, -1.0), message.drawn, tree)
                return m.Levelling(None, scanned, flagged)
            case m.GrowApart():
                return (yield from self._grow_apart(message.serial, message.apart, tree))
        raise TypeError(f"a shard of rows does not know messages of type {type(message).__name__}")

    def _grow_tree(self, message: m.GrowTree) -> Program:
        """Grow a tree as all other shards do at the same time, and add it to the predictions."""
        session = TreeSession(
            Counts(self._n_shards, self._n_rows_total, self._columns.n_columns), self._plan, message.fit, message.sent_rows, message.epoch,
            self._stretches_of_all, message.serial, copy(message.grain),
        )  # fmt: skip

        def tell(name: str, replies: Arrays, senders: Sequence[int]) -> Step:
            return self._step(name, session.next_serial(), dict.fromkeys(self._everyone, replies) if replies else {}, senders)

        steps = boosted_tree_steps(session, message.tree, message.output, message.learning_rate)
        tree, known = yield from in_common(steps, self._shard, self._program, tell)
        told = m.Grown(None if self._shard else tree, checksum(tree), session.next_serial(), session.grain, None)
        return (yield from self._finish(message, tree, known, told))

    def _finish(self, message: m.GrowTree, tree: Tree, known: tuple[NDArray[np.int64], NDArray[np.int64]], told: m.Grown) -> Program:
        """Add a tree to the predictions; return what is told of it, with losses if they are asked for."""
        scored, score = self._tree.finish(tree, known, message.output, message.score), None
        if message.score and isinstance(self._plan, BoostingPlan) and self._plan.scoring is not None:
            mine = {0: (self._tree.scored_predictions(),)}
            sent = yield self._step("scores", told.serial, mine, () if self._shard else self._everyone)
            score = None if self._shard else self._scored_rows.score(sent)
        if scored is None:
            return told
        sent = yield self._step("losses", told.serial, scored[1].sent(self._elsewhere), self._helpers)
        return told._replace(losses=put_together(*scored, sent), score=score)

    def _fix(self, message: m.Fix, tree: RowsInTree) -> Program:
        """Put gradients in fixed point, and search the root, together with the other shards."""
        totals, sums = tree.fix(message)
        if message.search is None:
            return m.Fixed(totals, None)
        sent = yield self._to_all("totals", message.serial, (totals.sums, np.array([totals.slope])))
        root = message.search.root
        of_all = root.sums.copy()
        of_all[: sent[0][0].shape[0]] = np.sum([one[0] for one in sent], axis=0)
        root = root._replace(sums=of_all, slope=float(np.max([one[1] for one in sent])))
        rules, kept = self._plan.rules, SumsKept.of(self._plan)
        whole = Root(root.n_in, root.n_in, of_all, root.exponents, 0, None)
        grower = Grower(rules, kept.n_classes, rules.columns_per_tree, whole, 0, kept.targets)
        sent = yield self._step("sums", message.serial, sums, self._everyone if sums else (), added)
        if not grower.to_search.shape[0]:
            return m.Fixed(totals, None)
        search = message.search._replace(root=root, sums=of_all[None])
        return m.Fixed(totals, (yield from self._search(message.serial, search, sent, tree)))

    def _level(self, message: m.Level, tree: RowsInTree) -> Program:
        """Divide nodes, and find the best splits of some of their children, together with the other shards."""
        cut, sums = tree.divide(message.divide)
        sent = yield self._step("sums", message.serial, sums, self._everyone if sums else (), added)
        if message.search is not None:
            return (yield from self._search(message.serial, message.search, sent, tree))._replace(cut=cut)
        subtrees = None if message.apart is None else (yield from self._grow_apart(message.serial, message.apart, tree))
        return m.Levelling(cut, None, 0, None, subtrees)

    def _search(self, serial: int, search: m.FindBars, sent: list[Arrays], tree: RowsInTree) -> Generator[Step, list[Arrays], m.Levelling]:
        """Find the best splits of nodes that all shards have sent sums of, if sums are wanted."""
        if isinstance(tree, RowsInForest) and search.path.shape[0]:
            tree.open_search(search, sent)
            return m.Levelling(None, *(yield from self._search_at_random(serial, search.drawn, tree, search.node)))
        bars, pure = tree.find_bars(search, sent), None
        sent = yield self._to_all("bars", serial, (bars, *tree.find_pure(search.node)))
        bars = np.max([one[0] for one in sent], axis=0)
        if isinstance(self._plan, ForestPlan):
            pure = pure_in_all([one[1] for one in sent], [one[2] for one in sent])
            bars[pure] = np.inf  # nothing is looked at in there
        scanned, flagged = yield from self._scan(serial, bars, search.drawn, tree)
        return m.Levelling(None, scanned, flagged, pure)

    def _search_at_random(
        self, serial: int, drawn: NDArray[np.bool_], tree: RowsInForest, nodes: NDArray[np.int64] = _NONE
    ) -> Generator[Step, list[Arrays], tuple[m.Scanned, int, NDArray[np.bool_]]]:
        """Find the best of random thresholds of the nodes of an open search; return them, and which of ``nodes`` have one target.

        In between: how many rows that has taken, which is none.
        """
        own = tree.find_ends(drawn, nodes)
        sent = yield self._step("ends", serial, dict.fromkeys(self._everyone, own), self._everyone, joined_ends)
        ends = joined_ends(sent)
        sent = yield self._step("sides", serial, tree.sum_sides(ends), self._everyone, added)
        return tree.try_thresholds(sent), 0, ends.of_one_target

    def _grow_apart(self, serial: int, apart: m.Apart, tree: RowsInTree) -> Generator[Step, list[Arrays], m.Subtrees | None]:
        """Send the rows of small nodes to who is to grow them, and grow those sent here."""
        grow = apart.grow[self._shard]
        sent = yield self._step("apart", serial, tree.send_rows(apart.nodes), () if grow is None else self._everyone)
        return None if grow is None else tree.grow_sent(grow, sent)

    def _scan(
        self, serial: int, bars: NDArray[np.float64], drawn: NDArray[np.bool_], tree: RowsInTree
    ) -> Generator[Step, list[Arrays], tuple[m.Scanned, int]]:
        """Find the best splits, knowing bars, of nodes whose sums are ready; return them, and how many rows that has taken."""
        own = tree.flag(bars, drawn)
        every = [Wanted(*one) for one in (yield self._to_all("flags", serial, own))]
        for number in range(max(one.n_batches for one in every)):
            batch, of_batch = [one.batch(number) for one in every], f" of batch {number}" if number else ""
            tree.searcher.open_batch(number)
            if any(one.is_cut for one in batch):
                sums = yield self._step("finer sums" + of_batch, serial, tree.sum_finer(batch), self._everyone, added)
                finer = tree.searcher.refine([one[0] for one in sums])
                del sums
                batch = [Wanted(*one) for one in (yield self._to_all("finer flags" + of_batch, serial, finer))]
            tree.searcher.scan((yield self._step("picked" + of_batch, serial, tree.pick(batch), self._everyone)))
        return tree.best(), int(own.tasks[:, 3].sum())

    def _measure(self, message: by_order.MeasureSizes | by_order.MeasureLeaves) -> Program:
        """Find quantiles of residuals together with the other shards."""
        leaves, own = isinstance(message, by_order.MeasureLeaves), self._tree
        grouped = own.residuals(message) if isinstance(message, by_order.MeasureLeaves) else own.sizes(message.output)
        n_values = message.n_rows if isinstance(message, by_order.MeasureLeaves) else message.n_values
        found = yield from quantiles(
            grouped, message.quantile, n_values, self._shard, self._n_shards, self._threads,
            lambda name, arrays, senders: self._step(name, message.serial, arrays, senders),
        )  # fmt: skip
        return by_order.Measured(found, own.weights_of_leaves()) if leaves else found

    def _to_all(self, name: str, serial: int, arrays: Arrays) -> Step:
        return self._step(name, serial, dict.fromkeys(self._everyone, arrays), self._everyone)

    def _step(self, name: str, serial: int, arrays: Mapping[int, Arrays], senders: Sequence[int], join: Join | None = None) -> Step:
        assert self._fit is not None
        fit, epoch = self._fit
        once: dict[int, Parcel] = {}
        parcels = {}
        for shard, some in arrays.items():
            if id(some) not in once:
                once[id(some)] = Parcel(fit, epoch, serial, name, self._shard, some)
            parcels[shard] = once[id(some)]
        return Step(fit, epoch, serial, name, parcels, senders, join)

    def _introduce(self, message: m.Introduce) -> m.Introduced:
        fit, epoch = message.fit, message.epoch
        if self._fit is not None and self._fit[0] == fit and self._fit[1] > epoch:
            raise StaleMessage(f"epoch {epoch} of fit {fit} is before epoch {self._fit[1]}")
        self._fit, self._shard, self._n_shards, self._plan = (fit, epoch), message.shard, message.n_shards, message.plan
        self._everyone = range(self._n_shards)
        self._grid = grid_of(self._n_shards, self._shard)
        self.mailbox.open(fit, epoch)
        if not message.sketches:
            return m.Introduced(self._stretches, None, None)
        n_categories = count_categories(self._columns, message.plan.rules.categorical)
        return m.Introduced(self._stretches, sketch_columns(self._columns, self._threads.map), n_categories)

    def _prepare(self, message: m.Prepare) -> Program:
        """Have one shard find out what follows from the targets and weights of all rows, and be told what is of the rows here."""
        target, weight = self._table
        mine = self._stretches, target, *(() if weight is None else (weight,))
        sent = yield self._step("targets", message.serial, {0: mine}, () if self._shard else self._everyone)
        prepared, told = (None, {}) if self._shard else self._look_at_all(message, sent)
        del sent, mine
        (self._told,) = yield self._step("held out", message.serial, told, (0,))
        return prepared

    def _look_at_all(self, message: m.Prepare, sent: Sequence[Arrays]) -> tuple[m.Prepared | f.ForestScales, dict[int, Arrays]]:
        stretches = [one[0] for one in sent]
        target, weight = (in_order([one[i] for one in sent], stretches, self._n_rows_total) if len(sent[0]) > i else None for i in (1, 2))
        assert target is not None
        if isinstance(self._plan, BoostingPlan):
            return self._prepare_all(message, sent, target, weight)
        scales, told = scales_of(self._plan, target, weight, stretches)
        return scales, dict(enumerate(told))

    def _prepare_all(
        self, message: m.Prepare, sent: Sequence[Arrays], target: NDArray[Any], weight: NDArray[np.float64] | None
    ) -> tuple[m.Prepared, dict[int, Arrays]]:
        plan = self._plan
        assert isinstance(plan, BoostingPlan)
        weight = combine_weights(weight, plan.class_weight, target)
        held_out = rows_held_out(plan, target, weight)
        train = None if held_out is None else ~held_out
        if weight is not None and not weight.all():
            train = weight > 0 if train is None else train & (weight > 0)
        which = slice(None) if train is None else train
        by_output = target if target.ndim == 1 else np.ascontiguousarray(target.T)
        plan.loss.check(by_output[..., which])
        initial = message.initial
        if initial is None:
            initial = plan.loss.initial(by_output[..., which], None if weight is None else weight[which])
        parts = Parts.of(target.shape[0], weight, train, held_out)
        exponent = 0
        if weight is not None and plan.loss.measures_leaves:
            exponent = weights_in_bits(weight if train is None else np.where(train, weight, 0.0))[1]
        if plan.scoring is not None:
            scored = np.zeros(target.shape[0], np.bool_)
            scored[parts.scored] = True
            self._scored_rows = ScoredRows(plan.scoring, by_output, weight, scored, [rows_of(one[0]) for one in sent])
        bits: dict[int, Arrays] = {}
        eligible = np.packbits(train if train is not None and plan.subsample < 1.0 else np.empty(0, np.bool_))
        for shard, one in enumerate(sent):
            mine = np.empty(0, np.bool_) if held_out is None else held_out[rows_of(one[0])]
            bits[shard] = np.packbits(mine), eligible
        return m.Prepared(np.array(initial, np.float64), parts.weights, exponent), bits

    def _open(self, message: m.Open) -> None:
        target, weight = self._table
        bits, eligible = self._told
        assert isinstance(self._plan, BoostingPlan)
        self._elsewhere, self._helpers, self._stretches_of_all = message.elsewhere, message.helpers, message.stretches
        held_out = None
        if self._plan.holds_out:
            held_out = np.unpackbits(bits, count=target.shape[0]).astype(np.bool_)
        own = RowTarget(
            self._plan, target, weight, message.initial, held_out, message.weights, eligible, self._n_rows_total, self._threads,
            message.weight_exponent,
        )  # fmt: skip
        self._tree = RowsInTree(*self._about_rows(message.edges, own))

    def _open_forest(self, message: f.OpenForest) -> None:
        target, weight = self._table
        before, *numbers = self._told
        assert isinstance(self._plan, ForestPlan)
        kind = ForestRowsOfTargets if self._plan.targets else ForestRows
        own = kind(self._plan, message.scales, target, weight, self._stretches, before, self._threads, *numbers)
        self._slots = [RowsInForest(*self._about_rows(message.edges, own))]

    def _about_rows(self, edges: Edges, own: AddsByLeaf) -> tuple[Any, ...]:
        """Return the arguments of :class:`RowsInTree`."""
        if self._edges is None or self._zone_map is None or not _are_same(self._edges, edges):
            self._edges, self._zone_map = edges, own_zone_map(self._columns, edges, self._threads.map)
        return (
            self._plan, self._columns, self._zone_map, self._edges, own, self._stretches, self._n_rows_total, self._shard, self._n_shards,
            self._threads,
        )  # fmt: skip


def _are_same(one: Edges, other: Edges) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
