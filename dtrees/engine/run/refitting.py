"""New values for the nodes of existing trees, computed on other rows.

The leaf of each row is known. Rows are ordered by leaf, so that the rows of each node are adjacent; then values are computed as for a tree
that has just been grown, by sums in fixed point or by measuring rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import TreeOfNodes, measure_leaves, measure_nodes, measures, put_in_order
from dtrees.engine.outcome.scoring import scores_of
from dtrees.engine.outcome.values import places_of_leaves
from dtrees.engine.plan.node_limits import criterion_of, n_sums_of, noise_of, scaled, squares_of
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Rules, Weights
from dtrees.engine.protocol.messages import Measured
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.scales import Prepared
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import NODE, Nodes
from dtrees.tree.tree import Tree

#: Returns leaf numbers, shape (n_rows, n_rounds * K), round by round, given the first round and the round after the last.
LeavesOf = Callable[[int, int], NDArray[np.int32]]
#: Largest number of leaf numbers that are requested together: 256 MB.
_MOST_LEAVES = 2**26


class _Placed(NamedTuple):
    """A tree's rows ordered by leaf, and the nodes of the tree that divide them.

    Attributes
    ----------
    rows : ndarray of uint32
        The rows in sample.
    records : ndarray of NODE
        In preorder; a node that sends all of its rows to one child is replaced by that child.
    at : ndarray of int64, shape (node_count,)
        For each node of the tree, the record with its rows, -1 if it has none.
    """

    rows: NDArray[np.uint32]
    records: NDArray[Any]
    at: NDArray[np.int64]

    @classmethod
    def of(cls, tree: Tree, leaf: NDArray[np.integer], in_sample: NDArray[np.bool_] | None) -> _Placed:
        """Order the rows that fall into the given leaves."""
        rows = np.arange(leaf.shape[0]) if in_sample is None else np.flatnonzero(in_sample)
        leaf = leaf[rows]
        n, inner = tree.node_count, tree.children_left >= 0
        left, right = np.where(inner, tree.children_left, 0), np.where(inner, tree.children_right, 0)
        numbers = np.arange(n)
        counts = np.bincount(leaf, minlength=n)  # 0 for inner nodes
        ends = np.cumsum(counts)
        start, stop = ends - counts, ends[_followed(np.where(inner, right, numbers))]
        some = stop > start
        alone = inner & (some[left] != some[right])
        holder = _followed(np.where(alone, np.where(some[left], left, right), numbers))
        dividing = np.flatnonzero(some & ~alone)
        at = np.full(n, -1)
        at[dividing] = np.arange(dividing.shape[0])
        at = np.where(some, at[holder], -1)
        records = np.zeros(dividing.shape[0], NODE)
        records["column"] = np.where(inner[dividing], 0, -1)
        for name, values in (("left", np.where(inner, at[left], -1)), ("right", np.where(inner, at[right], -1)), ("start", start)):
            records[name] = values[dividing]
        records["stop"] = records["in_stop"] = stop[dividing]
        return cls(rows[np.argsort(leaf, kind="stable")].astype(np.uint32), records, at)

    def sums(self, amounts: Iterator[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the sums of each record's rows, a column for each of the amounts, which are by row."""
        before = [np.concatenate([[0], np.cumsum(one[self.rows])]) for one in amounts]
        return np.stack([one[self.records["stop"]] - one[self.records["start"]] for one in before], axis=1)


def _followed(target: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each number, the end of the chain of targets that starts there."""
    while not np.array_equal(further := target[target], target):
        target = further
    return target


class Refit(NamedTuple):
    """New values, computed on other rows, for the nodes of trees.

    Attributes
    ----------
    plan : ForestPlan or BoostingPlan
    leaves_of : callable
    target, weight : ndarray
        Of these rows; ``weight`` may be None.
    decay : float
        The weight of the previous values.
    n_threads : int
    """

    plan: ForestPlan | BoostingPlan
    leaves_of: LeavesOf
    target: NDArray[Any]
    weight: Weights
    decay: float
    n_threads: int

    def boosted(self, groups: tuple[tuple[Tree, ...], ...], initial: NDArray[np.float64]) -> tuple[list[list[Tree]], NDArray[np.float64]]:
        """Return boosted trees with new values, by output, and the mean loss after each round.

        The gradients of a round are taken at the predictions of the refitted earlier rounds. ``initial`` is the initial raw prediction,
        shape (K,) or (K, n_rows).
        """
        plan, (made, scores) = cast(BoostingPlan, self.plan), ([list(group) for group in groups], list[float]())
        with Threads(self.n_threads) as threads:
            rows = BoostingTarget.of_table(plan, self.target, self.weight, initial, threads)
            for i, output, leaf in self._by_rounds(len(groups[0]), len(groups)):
                tree, number = groups[output][i], i * len(groups) + output
                prepared, placed = rows.start(number, output), _Placed.of(tree, leaf, rows.in_sample)
                _, start, stop, _ = places_of_leaves(placed.records)
                measured = rows.measure_leaves(output, placed.rows, start, stop) if measures(plan) else None
                made[output][i] = tree = self._with_new_values(tree, placed, prepared, measured)
                of_leaf = tree.value[(tree.children_left < 0) & (placed.at >= 0), 0]
                rows.add_leaves(output, placed.rows, start, of_leaf)
                if (number + 1) % plan.trees_per_round == 0:
                    scores.append(scores_of([rows.losses(0, self.target.shape[0])]).train)
        return made, np.array(scores)

    def forest(self, trees: tuple[Tree, ...]) -> list[Tree]:
        """Return the trees of a forest, or a single tree, with new values."""
        plan = cast(ForestPlan, self.plan)
        rows, criterion, made = ForestTarget.of_table(plan, self.target, self.weight), criterion_of(plan.rules), list[Tree]()
        prepared = rows.start(0, 0)
        with Threads(self.n_threads) as threads:
            for number, _, leaf in self._by_rounds(len(trees), 1):
                placed, measured = _Placed.of(trees[number], leaf, rows.in_sample), None
                if criterion.measured:
                    h = prepared.h[placed.rows if prepared.h.shape[0] else placed.rows[:0]]
                    in_order = RowPartition(placed.rows, prepared.g[placed.rows], h)
                    if criterion.measured == "leaves":
                        measured = measure_leaves(in_order, rows.by_target, criterion, *places_of_leaves(placed.records)[1:3], threads)
                    else:
                        measured = measure_nodes(in_order, rows.by_target, prepared.targets, criterion, placed.records)
                made.append(self._with_new_values(trees[number], placed, prepared, measured))
        return made

    def _by_rounds(self, n_rounds: int, n_outputs: int) -> Iterator[tuple[int, int, NDArray[np.int32]]]:
        """Yield the leaves of rows in each tree, with its number for its output and its output, in the order of growth."""
        step = max(1, _MOST_LEAVES // (self.target.shape[0] * n_outputs))
        for first in range(0, n_rounds, step):
            leaves = self.leaves_of(first, min(first + step, n_rounds))
            for i in range(leaves.shape[1]):
                yield first + i // n_outputs, i % n_outputs, leaves[:, i]

    def _with_new_values(self, tree: Tree, placed: _Placed, prepared: Prepared, measured: NDArray[np.float64] | Measured | None) -> Tree:
        """Return a tree with new values in nodes with rows, mixed with the previous ones; see :meth:`.TreeOfNodes.finish`."""
        if self.decay == 1.0:
            return tree
        boosts, monotonic = isinstance(self.plan, BoostingPlan), self.plan.rules.monotonic
        plan = replace(self.plan, rules=replace(self.plan.rules, monotonic=()))
        nodes, exponents, noise = Nodes(placed.records, placed.sums(_amounts(plan, prepared))), prepared.exponents, 0.0
        if plan.rules.split_shrinkage and placed.rows.shape[0]:
            placed.records["gain"] = _gains(nodes, exponents, plan.rules)
            noise = noise_of(plan.rules, placed.rows.shape[0], nodes.sums[0], squares_of(plan.rules, prepared.g[placed.rows]))
        of_nodes = TreeOfNodes(plan, nodes, exponents, plan.shrinkage if isinstance(plan, BoostingPlan) else 1.0, noise)
        found = of_nodes.finish(of_nodes.draft(), measured)[0].value[placed.at]
        mixed = self.decay * tree.value + (1.0 - self.decay) * found if self.decay else found
        made = replace(tree, value=np.where(placed.at[:, np.newaxis] < 0, tree.value, mixed))
        if monotonic:
            put_in_order(made, monotonic, measured=boosts and measured is not None)
        return made


def _gains(nodes: Nodes, exponents: tuple[int, int], rules: Rules) -> NDArray[np.float64]:
    """Return the gains of a boosted tree's splits for the given sums, in their units, ignoring constraints and noise.

    The formulas are those of :mod:`dtrees.split.criteria.newton` and :mod:`dtrees.split.criteria.squares`, to the last bit.
    """
    gains, inner = np.zeros(nodes.sums.shape[0]), nodes.records["left"] >= 0
    (g, h), l1 = nodes.sums.T.astype(np.float64), scaled(rules.reg_alpha, exponents[0])
    penalty = scaled(rules.reg_lambda, exponents[1])
    left, right = nodes.records["left"][inner], nodes.records["right"][inner]
    with np.errstate(divide="ignore", invalid="ignore"):
        if l1 > 0.0:
            scores = np.maximum(np.abs(g) - l1, 0.0) ** 2 / (h + penalty)
            gains[inner] = scores[left] + scores[right] - scores[inner]
        else:
            a, b, both = h[left] + penalty, h[right] + penalty, h[inner] + 2.0 * penalty
            d, square = g[left] * b - g[right] * a, g[inner] ** 2
            gains[inner] = d * d / (a * b) / both + (square / both - square / (h[inner] + penalty))
    return np.nan_to_num(gains)


def _amounts(plan: ForestPlan | BoostingPlan, prepared: Prepared) -> Iterator[NDArray[np.int64]]:
    """Yield the summands of rows for each sum that determines node values; only weights if values are measured."""
    g = prepared.g
    h = prepared.h if prepared.h.shape[0] else np.ones(g.shape[0], np.int64)
    n_classes = 0 if isinstance(plan, BoostingPlan) else plan.n_classes
    if n_classes > 2 or (prepared.targets is not None and n_classes):
        codes = g[:, np.newaxis] if prepared.targets is None else prepared.targets
        yield from (np.where((codes == k).any(axis=1), h, 0) for k in range(n_classes))
        if prepared.targets is not None:
            yield h
        return
    yield from [g] * (n_sums_of(plan) - 1)
    yield h
