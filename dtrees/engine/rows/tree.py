"""One tree over shards of rows: what the coordinator asks of them, and decides.

A level is five exchanges, of which the first ends the level before::

    Fix, Divide  shards put rows in order and sum them; sums go to searchers of columns
    FindBars     searchers put these together, and say how good the best split at an edge of a zone is
    Flag         knowing the best of all, searchers flag parts that may hold a better one, and tell all shards
    Pick         shards send the rows in flagged parts to searchers
    Scan         searchers find the best split of each node in their columns

The best of these is the node's. Nodes of few rows are grown to their ends by one shard each, to which all send their rows
(``SendRows``, ``GrowSent``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.grower import Grower
from dtrees.engine.outcome.monotonic import put_in_order
from dtrees.engine.outcome.scoring import BLOCK_ROWS, scores_of, sums_by_block
from dtrees.engine.outcome.values import boosted_tree, penalties_of, pruned
from dtrees.engine.plan.node_limits import constraints_of
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.protocol.messages import Losses, Message, Root, Scores, Splits
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.split.criteria.constraints import root_words
from dtrees.split.node.candidate import Candidates, best_by_node, empty_candidates, midpoint
from dtrees.split.node.records import Nodes
from dtrees.split.node.status import CONSTANT
from dtrees.split.numbers import hashing
from dtrees.split.policy import FOLD, MAX_ZONES, ROWS_PER_PART, SHARED_CELLS
from dtrees.split.zones.sums import grain_for, size_shift
from dtrees.tree.tree import Tree

#: Up to how many rows a node is grown to its end by one shard.
SENT_ROWS = 1024
#: More cells are flagged than one in so many, or less: finer, or coarser parts are tried. Finer ones are kept for so many trees then.
_MUCH_FLAGGED_SHARE, _FLAGGED_SHARE, _TREES_AS_FINE = 100, 1000, 20
_FIRST_GRAIN = 2
_EPSILON = 2.0**-52
_LIMIT, _NO_LIMIT = 61, 2**31
_NOTHING = np.empty(0, np.int64)


class RowsDisagree(RuntimeError):
    """Shards of rows have divided a node otherwise than its split says."""


class Grain:
    """How finely large nodes are summed: by parts of zones, ``2**current`` of each, as fine as the last trees have wanted.

    Finer parts are more to sum and to send; by coarser ones more rows are flagged, and have to be sent.
    """

    def __init__(self) -> None:
        self.current = _FIRST_GRAIN
        self._flagged = self._cells = self._trees_as_fine = 0

    def note(self, flagged: int, cells: int) -> None:
        """Note how many cells of nodes were flagged, of how many."""
        self._flagged += flagged
        self._cells += cells

    def adapt(self) -> None:
        """Choose for the next tree, by the cells noted since the last one."""
        flagged, cells = self._flagged, self._cells
        self._flagged = self._cells = 0
        self._trees_as_fine -= 1
        if flagged * _MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self.current += 2
            self._trees_as_fine = _TREES_AS_FINE
        elif flagged * _FLAGGED_SHARE < cells and self.current > 0 and self._trees_as_fine <= 0:
            self.current -= 2


@dataclass
class RowsSession:
    """An open fit over shards of rows.

    Attributes
    ----------
    executor : RowsExecutor
    plan : BoostingPlan
    fit : str
    epoch : int
    stretches : list of ndarray
        Of each shard.
    sent_rows : int
        Up to how many rows a node is grown by one shard.
    """

    executor: RowsExecutor
    plan: BoostingPlan
    fit: str
    epoch: int = 0
    stretches: list[NDArray[np.int64]] = field(default_factory=list)
    sent_rows: int = SENT_ROWS
    serial: int = 0
    grain: Grain = field(default_factory=lambda: Grain())

    def renewed(self) -> RowsSession:
        """Return the session of the next epoch."""
        return replace(self, epoch=self.epoch + 1)

    def next_serial(self) -> int:
        """Return a number for an exchange that leads to parcels."""
        self.serial += 1
        return self.serial

    def say(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Send one message to every shard; return their replies."""
        message = kind(self.fit, self.epoch, *arguments)
        replies = self.executor.send(dict.fromkeys(range(self.executor.n_shards), message))
        return [replies[shard] for shard in range(self.executor.n_shards)]

    def tell(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Send messages to some shards; return their replies."""
        return self.executor.send(messages)


class _RowsGrower(Grower):
    """A grower that is told thresholds after the splits, since they take a look at all rows."""

    def settle(self, nodes: NDArray[np.int64], thresholds: NDArray[np.float64]) -> None:
        """Write the thresholds of nodes that have been split."""
        self._nodes.records["threshold"][nodes] = thresholds

    def lay_out(self, splits: Splits) -> None:
        """Note where the rows of children would lie if all rows were in one place."""
        records = self._nodes.records
        start, stop = (records[name][splits.node].astype(np.int64) for name in ("start", "in_stop"))
        middle = start + splits.n_left
        for children, first, last in ((splits.left, start, middle), (splits.left + 1, middle, stop)):
            records["start"][children], records["in_stop"][children], records["stop"][children] = first, last, last

    def about(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of rows, sums and depths of nodes."""
        records = self._nodes.records[nodes]
        return records["in_stop"].astype(np.int64) - records["start"], self._nodes.sums[nodes], self._depth[nodes]

    def in_stop_of_all(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the rows of each node would begin and end."""
        records = self._nodes.records[: self._n]
        return records["start"].astype(np.int64), records["in_stop"].astype(np.int64)


def grow_rows_tree(session: RowsSession, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
    """Grow one tree and add it to the predictions; parameters are those of :func:`dtrees.engine.coordinator.tree.grow_tree`."""
    nodes, exponents, known = _grow(session, tree, output)
    session.grain.adapt()
    rules = session.plan.rules
    nodes, _ = pruned(nodes, exponents, rules)
    grown = boosted_tree(nodes, exponents, penalties_of(rules), learning_rate)
    if rules.monotonic:
        put_in_order(grown, rules.monotonic, measured=False)
    records = nodes.records
    leaf = np.flatnonzero(records["column"] < 0)
    places = zip(records["start"][leaf].tolist(), records["in_stop"][leaf].tolist(), strict=True)
    numbers = np.array([known.get(place, -1) for place in places], np.int64)
    mine = numbers >= 0
    replies = session.say(m.FinishTree, grown, output, numbers[mine], leaf[mine], score)
    return grown, _scores(session, cast(list[m.BlockLosses], replies)) if score else Scores(math.nan, math.nan)


def _grow(session: RowsSession, tree: int, output: int) -> tuple[Nodes, tuple[int, int], dict[tuple[int, int], int]]:
    """Return the nodes of a tree, in preorder, the exponents of their sums, and the numbers by which shards know nodes, by their places."""
    plan = session.plan
    derived = cast(list[m.Derived], session.say(m.Derive, tree, output))
    exponents = _exponents(session, derived)
    n_in = sum(one.n_in for one in derived)
    size = math.ldexp(sum(one.sums[0] for one in derived), exponents[0]) + n_in
    shift = int(size_shift.py_func(min(int(size), 2**62))) if math.isfinite(size) else 32
    planner = _Levels(session)
    whole = n_in <= session.sent_rows
    summed = m.Levelled(_NOTHING, _NOTHING) if whole else planner.root(n_in)
    serial = session.next_serial()
    totals = cast(list[m.Totals], session.say(m.Fix, serial, exponents, summed, shift))
    sums = np.array([sum(one.g for one in totals), sum(one.h for one in totals)], np.int64)
    constraints = constraints_of(plan.rules)
    if constraints is not None:
        sums = np.concatenate([sums, root_words(constraints)])
    root = m.Rooted(n_in, sums, exponents, max(one.slope for one in totals), shift)
    grower = _RowsGrower(plan.rules, 0, plan.rules.columns_per_tree, Root(n_in, n_in, sums, exponents, 0, None), session.sent_rows)
    path = {0: hashing.ROOT}
    splits: Splits | None = None
    while True:
        if grower.to_search.shape[0]:
            nodes = grower.to_search
            columns = _Columns(session, tree, [path[node] for node in nodes.tolist()], grower.n_drawn)
            found, above = planner.search(grower, nodes, root, serial, columns.drawn())
            constant = grower.accept(nodes, found)
            if constant.shape[0]:
                at = np.searchsorted(nodes, constant)
                rest, above[at] = planner.search_rest(columns, at)
                grower.accept(constant, rest)
            next_above = dict(zip(nodes.tolist(), above.tolist(), strict=True))
        splits = grower.choose()
        if splits is None:
            break
        grower.lay_out(splits)
        parents = np.array([path[node] for node in splits.node.tolist()], np.uint64)
        for side in range(2):
            sides = np.full(parents.shape[0], side and not plan.rules.by_level, np.int64)
            path.update(zip((splits.left + side).tolist(), hashing.child_paths(parents, sides), strict=True))
        above = np.array([next_above[node] for node in splits.node.tolist()])
        summed = planner.plan(grower, splits)
        serial = session.next_serial()
        cuts = cast(
            list[m.Cut],
            session.say(
                m.Divide,
                serial,
                splits.node,
                splits.left,
                splits.column,
                splits.threshold,
                splits.missing_left,
                np.isnan(above),
                summed,
                shift,
            ),
        )
        if not np.array_equal(sum(cut.n_left for cut in cuts), splits.n_left):
            raise RowsDisagree(f"shards have divided nodes of tree {tree} otherwise than their splits say")
        above = np.where(np.isnan(above), np.min([cut.above for cut in cuts], axis=0), above)
        grower.settle(splits.node, _thresholds(splits.threshold, above))
    known = {place: node for node, place in enumerate(zip(*(ends.tolist() for ends in grower.in_stop_of_all()), strict=True))}
    for node in _grow_sent(session, grower, tree, root, path):
        del known[node]
    return grower.arrange(), exponents, known


def _thresholds(cut: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([math.inf if high == math.inf else midpoint(low, high) for low, high in zip(cut.tolist(), above.tolist(), strict=True)])


def _grow_sent(session: RowsSession, grower: _RowsGrower, tree: int, root: m.Rooted, path: dict[int, Any]) -> list[tuple[int, int]]:
    """Have small nodes grown by one shard each; return their places."""
    nodes, priority, largest = grower.budget()
    if not nodes.shape[0]:
        return []
    n_rows, sums, depth = grower.about(nodes)
    start, _, _ = grower.places(nodes)
    n_shards = session.executor.n_shards
    order = np.argsort(-n_rows, kind="stable")  # the largest first, to the shards by turns
    shard = np.empty(nodes.shape[0], np.int64)
    shard[order] = (tree + np.arange(nodes.shape[0])) % n_shards
    at_once = max(1, SHARED_CELLS * n_shards // max(1, session.plan.rules.columns_per_tree))
    batches = np.split(order, np.flatnonzero(np.diff(np.cumsum(n_rows[order]) // at_once)) + 1)
    for batch in batches:
        groups = [batch[shard[batch] == i] for i in range(n_shards)]
        serial = session.next_serial()
        session.say(m.SendRows, serial, tuple(nodes[group] for group in groups))
        asked = {
            i: m.GrowSent(
                session.fit, session.epoch, serial, tree, root, depth[group],
                np.array([path[node] for node in nodes[group].tolist()], np.uint64), sums[group], priority[group], largest,
            )
            for i, group in enumerate(groups)
            if group.shape[0]
        }  # fmt: skip
        replies = session.tell(asked)
        for i in asked:
            subtrees = [packed.unpacked() for packed in cast(m.Subtrees, replies[i]).nodes]
            for subtree, first in zip(subtrees, start[groups[i]].tolist(), strict=True):
                by = first - int(subtree.records["start"][0])
                for name in ("start", "in_stop", "stop"):
                    subtree.records[name] = subtree.records[name].astype(np.int64) + by
            grower.attach(nodes[groups[i]].tolist(), subtrees)
    return list(zip(start.tolist(), (start + n_rows).tolist(), strict=True))


class _Columns:
    """The columns in which nodes are searched, in the order in which they are drawn for each."""

    def __init__(self, session: RowsSession, tree: int, paths: list[Any], n_drawn: int) -> None:
        rules, seed = session.plan.rules, hashing.as_seed(session.plan.seed)
        n, k = session.executor.n_columns, rules.columns_per_tree
        self.n_drawn, self.n_columns = n_drawn, k
        self.order = np.empty((0, 0), np.int64)
        if n_drawn < k:
            pool = hashing.tree_columns(seed, tree, n, k) if k < n else np.arange(n, dtype=np.int32)
            key, self.order = np.uint64(hashing.stream_key(seed, hashing.STREAM_NODE, tree)), np.empty((len(paths), k), np.int64)
            for i, path in enumerate(paths):
                drawn = pool.copy()
                hashing.draw_columns(key, path, drawn, 0, k)
                self.order[i] = np.searchsorted(pool, drawn)

    def drawn(self) -> NDArray[np.bool_]:
        """Return in which columns each node is searched at first, empty if in all."""
        found = np.zeros((self.order.shape[0], self.n_columns if self.order.shape[0] else 0), np.bool_)
        if self.order.shape[0]:
            np.put_along_axis(found, self.order[:, : self.n_drawn], True, axis=1)
        return found


class _Levels:
    """What is summed of a tree's levels, and how their nodes are searched."""

    def __init__(self, session: RowsSession) -> None:
        self._session = session
        self._most_grain = session.grain.current
        self._fine_rows = ROWS_PER_PART * (MAX_ZONES - 1) << (self._most_grain or FOLD)
        self._grain: dict[int, int] = {}
        self._slot: dict[int, int] = {}  # of the nodes searched last
        self._tasks = np.empty((0, 4), np.int64)
        self._summed = m.Levelled(_NOTHING, _NOTHING)
        self._n_slots = 0

    def _grain_for(self, n_rows: int) -> int:
        return int(grain_for.py_func(self._most_grain, self._fine_rows, n_rows))

    def root(self, n_rows: int) -> m.Levelled:
        """Return what to sum of the root."""
        self._grain = {0: self._grain_for(n_rows)}
        self._tasks, self._n_slots = np.array([[0, -1, -1, 0]]), 1
        self._summed = m.Levelled(np.zeros(1, np.int64), np.array([self._grain[0]]))
        return self._summed

    def plan(self, grower: _RowsGrower, splits: Splits) -> m.Levelled:
        """Return what to sum of the children of nodes just split: of two, the smaller, as the other's sums follow."""
        wanted = {node: i for i, node in enumerate(grower.to_search.tolist())}
        n_rows = dict(zip(wanted, grower.about(grower.to_search)[0].tolist(), strict=True))
        grains: dict[int, int] = {}
        tasks, summed = [], []
        n_slots = len(wanted)
        n_left, n_all = splits.n_left.tolist(), grower.about(splits.node)[0].tolist()
        for parent, left, lefts, rows in zip(splits.node.tolist(), splits.left.tolist(), n_left, n_all, strict=True):
            smaller, larger = (left, left + 1) if 2 * lefts <= rows else (left + 1, left)
            if larger in wanted:
                grain = min(self._grain[parent], self._grain_for(n_rows[larger]))
                grains[larger] = grain
                one = wanted.get(smaller, -1)
                if one >= 0:
                    grains[smaller] = min(grain, self._grain_for(n_rows[smaller]))
                slot = one if one >= 0 else n_slots
                n_slots += one < 0
                tasks.append((one, wanted[larger], self._slot[parent], slot))
                summed.append((smaller, grain))
            elif smaller in wanted:
                grains[smaller] = self._grain_for(n_rows[smaller])
                tasks.append((wanted[smaller], -1, -1, wanted[smaller]))
                summed.append((smaller, grains[smaller]))
        self._grain, self._n_slots = grains, n_slots
        self._tasks = np.array(tasks, np.int64).reshape(-1, 4)
        pairs = np.array(summed, np.int64).reshape(-1, 2)
        self._summed = m.Levelled(pairs[:, 0].copy(), pairs[:, 1].copy())
        return self._summed

    def search(
        self, grower: _RowsGrower, nodes: NDArray[np.int64], root: m.Rooted, of: int, drawn: NDArray[np.bool_]
    ) -> tuple[Candidates, NDArray[np.float64]]:
        """Return the best splits of nodes in the columns drawn, and the next value above each cut (NaN: not known)."""
        session = self._session
        n_rows, sums, _ = grower.about(nodes)
        grain = np.array([self._grain[node] for node in nodes.tolist()], np.int64)
        found = session.say(m.FindBars, of, root, self._tasks, self._summed, self._n_slots, nodes, n_rows, grain, sums, drawn)
        self._slot = {node: i for i, node in enumerate(nodes.tolist())}
        best, above, flagged = self._scan(np.max(found, axis=0), sums.shape[1], drawn)
        session.grain.note(flagged, int(n_rows.sum()) * session.plan.rules.columns_per_tree)
        return best, above

    def search_rest(self, columns: _Columns, which: NDArray[np.int64]) -> tuple[Candidates, NDArray[np.float64]]:
        """Search some of the nodes searched last in their further columns, each up to the first that is not constant in it."""
        n, left, n_sums = columns.order.shape[0], which, self._n_sums
        best, above = empty_candidates(n, n_sums), np.full(n, np.nan)
        for place in range(columns.n_drawn, columns.n_columns):
            drawn = np.zeros((n, columns.n_columns), np.bool_)
            drawn[left, columns.order[left, place]] = True
            found, next_above, _ = self._scan(np.full(n, -1.0), n_sums, drawn)
            best.records[left], best.left[left], above[left] = found.records[left], found.left[left], next_above[left]
            left = left[best.records["status"][left] == CONSTANT]
            if not left.shape[0]:
                break
        return best.take(which), above[which]

    def _scan(self, bars: NDArray[np.float64], n_sums: int, drawn: NDArray[np.bool_]) -> tuple[Candidates, NDArray[np.float64], int]:
        """Find the best splits, knowing the bars, of nodes whose sums are ready; the last returned is how many rows that has taken."""
        session, self._n_sums = self._session, n_sums
        flagging, picking = session.next_serial(), session.next_serial()
        flagged = sum(session.say(m.Flag, flagging, bars, drawn))
        session.say(m.Pick, flagging, picking)
        scanned = cast(list[m.Scanned], session.say(m.Scan, picking))
        best = empty_candidates(bars.shape[0], n_sums)
        every = np.arange(bars.shape[0])
        for one in scanned:
            best_by_node(one.candidates, every, best)
        above = np.full(bars.shape[0], np.nan)
        for one in scanned:
            mine = one.candidates.records["column"] == best.records["column"]
            above[mine] = one.above[mine]
        return best, above, flagged


def _exponents(session: RowsSession, derived: list[m.Derived]) -> tuple[int, int]:
    """Return the powers of two by which gradients and hessians are multiplied, as one process finds them."""
    return _exponent(session, derived, 0), _exponent(session, derived, 1)


def _exponent(session: RowsSession, derived: list[m.Derived], which: int) -> int:
    n_rows, most = session.executor.n_rows, _most_bits(session.plan.rules.reg_lambda)[which]
    parts = [one.sums[which] for one in derived]
    if any(map(math.isnan, parts)):  # every hessian is 1, and is not put in fixed point
        return 0
    total = math.fsum(parts) if all(map(math.isfinite, parts)) else math.inf
    error = total * (n_rows + 8) * _EPSILON
    if total == 0.0:
        return min(0, most)
    if not math.isfinite(total + error) or math.frexp(total - error)[1] != math.frexp(total + error)[1]:
        total = _sum_in_order(session, "gh"[which])
    if math.isfinite(total):
        return min(_LIMIT - math.frexp(total)[1], most)
    exponent = _LIMIT - math.frexp(max(one.largest[which] for one in derived))[1]
    n = n_rows
    while n > 0:
        exponent -= 1
        n >>= 1
    return min(exponent, most)


def _most_bits(penalty: float) -> tuple[int, int]:
    """Return how many bits gradients and hessians may have: past 120 the L2 penalty dwarfs every hessian."""
    return _NO_LIMIT, 120 - (math.frexp(penalty)[1] if penalty > 0 else 0)


def _sum_in_order(session: RowsSession, what: str, counts: list[NDArray[np.int64]] | None = None) -> float:
    """Return a sum over all rows as one process makes it, ``counts[shard][i]`` of stretch i; by default, of all."""
    lanes, first = np.zeros(4), 0
    sizes = [some[:, 1] - some[:, 0] for some in session.stretches] if counts is None else counts
    total = int(sum(some.sum() for some in sizes))
    every = sorted((int(some[i, 0]), shard, i) for shard, some in enumerate(session.stretches) for i in range(some.shape[0]))
    for _, shard, i in every:
        lanes = session.tell({shard: m.AddInOrder(session.fit, session.epoch, what, i, first, total, lanes)})[shard]
        first += int(sizes[shard][i])
    one, other, third, fourth = lanes.tolist()
    return (one + other) + (third + fourth)


def _scores(session: RowsSession, losses: list[m.BlockLosses]) -> Scores:
    """Return the mean losses by those of all shards' rows."""
    n_blocks = -(-session.executor.n_rows // BLOCK_ROWS)
    sums = np.zeros((n_blocks, losses[0].sums.shape[1]))
    torn: dict[int, list[tuple[int, NDArray[np.float64]]]] = {}
    for one in losses:
        sums[one.block] = one.sums
        for first, piece in one.torn:
            torn.setdefault(first // BLOCK_ROWS, []).append((first, piece))
    with np.errstate(over="ignore", invalid="ignore"):
        for block, pieces in torn.items():
            whole = np.concatenate([piece for _, piece in sorted(pieces, key=lambda one: one[0])], axis=1)
            sums[block] = [sums_by_block(np.ascontiguousarray(part), None)[0] for part in whole]
    weights = losses[0].weights
    if sums.shape[1] > weights.shape[0]:
        n_undrawn = [one.n_undrawn for one in losses]
        undrawn = _sum_in_order(session, "weight", n_undrawn) if losses[0].is_weighted else float(sum(some.sum() for some in n_undrawn))
        weights = np.append(weights, np.full(sums.shape[1] - weights.shape[0], undrawn))
    return scores_of([Losses(sums, weights)])
