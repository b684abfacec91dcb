"""From grown nodes to a finished tree, whichever shard has the rows.

The owners of the rows and columns compute, between the draft of a tree and its end, what the sums of its nodes do not determine: means,
quantiles and deviations measured on rows, and sets of categories.

While a tree under monotonic constraints grows, node values are compared in the units of its sums. The values of the finished tree are
rounded differently, and measured values are different altogether. They are therefore clipped again in their final precision, which makes
the tree exactly monotonic.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import boosted_tree, class_values, node_arrays, shrink_splits
from dtrees.engine.plan.node_limits import n_sums_of, scaled
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Measured
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import kernel
from dtrees.split.criteria.criterion import Criterion, criterion_named
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import Nodes, leaf_means
from dtrees.split.search.deviations import node_quantiles
from dtrees.tree.pruning import cost, kept_nodes, nodes_above, pruned
from dtrees.tree.tree import Tree

_FIELDS = ("left", np.int32), ("right", np.int32), ("start", np.int64), ("in_stop", np.int64)


def measures(plan: ForestPlan | BoostingPlan) -> bool:
    """Return whether leaf values are measured on the rows of the leaves, after the last splits."""
    return plan.measures_leaves if isinstance(plan, BoostingPlan) else bool(criterion_named(plan.rules.criterion).measured)


def measure_leaves(
    rows: RowPartition, labels: NDArray[Any], criterion: Criterion, start: NDArray[np.int64], stop: NDArray[np.int64], threads: Threads
) -> Measured:
    """Return the mean target and the weighted impurity of each leaf.

    Leaf i has the rows at the places ``start[i]:stop[i]``; ``rows.g`` is not read. For multi-output targets, the impurity is the mean over
    targets.
    """
    if labels.ndim == 2:
        return _together([measure_leaves(rows, labels[:, t], criterion, start, stop, threads) for t in range(labels.shape[1])])
    n, value = start.shape[0], criterion.for_kernels(0, 0.0)
    mean, spread = np.empty(n), np.empty(n)
    bounds = np.linspace(0, n, min(n, 4 * threads.n_threads) + 1).astype(np.int64)

    def measure(i: int) -> None:
        s = slice(bounds[i], bounds[i + 1])
        leaf_means(value, rows.rows, rows.h, labels, start[s], stop[s], mean[s], spread[s])

    threads.map(measure, range(bounds.shape[0] - 1))
    return Measured(mean, spread)


def measure_nodes(
    rows: RowPartition, labels: NDArray[Any], targets: NDArray[np.int64] | None, criterion: Criterion, records: NDArray[Any]
) -> Measured:
    """Return the target quantile of each node of a tree in preorder, and the weighted sum of deviations from it.

    ``records`` are those of the nodes. ``targets`` has the rank of each target value, shape (n_rows, n_targets), for multi-output targets;
    the deviations are then means over targets.
    """
    if targets is not None:
        by_target = []
        for t in range(targets.shape[1]):
            numbered = rows._replace(g=np.ascontiguousarray(targets[rows.rows, t]))
            by_target.append(measure_nodes(numbered, labels[:, t], None, criterion, records))
        return _together(by_target)
    n, value = records.shape[0], criterion.for_kernels(0, 0.0)
    left, right, start, in_stop = (records[name].astype(kind) for name, kind in _FIELDS)
    quantile, spread = np.empty(n), np.empty(n)
    node_quantiles(value, rows, labels, left, right, start, in_stop, quantile, spread)
    return Measured(quantile, spread)


def _together(by_target: list[Measured]) -> Measured:
    """Combine the measurements of single targets: stack the centers and average the spreads."""
    centers, spreads = zip(*by_target, strict=True)
    return Measured(np.stack(centers, axis=1), np.sum(spreads, axis=0) / len(spreads))


class TreeOfNodes(NamedTuple):
    """What a tree is made of.

    Attributes
    ----------
    plan : ForestPlan or BoostingPlan
    nodes : Nodes
        In preorder.
    exponents : tuple of int
        The exponents of the powers of two by which the two sums are scaled.
    learning_rate : float
        Multiplies the values of a boosted tree.
    noise : float
        The expected gain of a split by chance (:func:`~dtrees.engine.plan.node_limits.noise_of`).
    """

    plan: ForestPlan | BoostingPlan
    nodes: Nodes
    exponents: tuple[int, int]
    learning_rate: float = 1.0
    noise: float = 0.0

    def draft(self) -> Tree:
        """Return the tree; measured leaf values and sets of categories are still missing."""
        plan, nodes, exponents, learning_rate, noise = self
        if isinstance(plan, BoostingPlan):
            return boosted_tree(nodes, exponents, plan.rules, learning_rate, plan.rules.split_shrinkage * noise)
        left, right, feature, threshold, missing_left, n_samples = node_arrays(nodes.records)
        criterion, none = criterion_named(plan.rules.criterion), np.zeros(n_samples.shape[0])
        gain = scaled(nodes.records["gain"], -criterion.gain_exponent(exponents))
        value, weight, impurity = none[:, np.newaxis], none, none
        if not criterion.measured:
            value, weight, impurity = class_values(nodes, criterion, exponents[1], plan.n_classes, plan.targets)
        return Tree(left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value)

    def finish(self, tree: Tree, measured: NDArray[np.float64] | Measured | None = None) -> tuple[Tree, NDArray[np.float64]]:
        """Return a tree with all values, and the value for each of the nodes: that of the closest ancestor that the tree has.

        Parameters
        ----------
        tree : Tree
            The draft, with sets of categories; modified in place.
        measured : ndarray or Measured or None
            The unshrunk steps of the leaves of a boosted tree, or centers and spreads of leaves or nodes. None if the sums determine all
            values.
        """
        plan, rules = self.plan, self.plan.rules
        if isinstance(measured, Measured):
            tree = self._with_values(tree, measured)
        elif measured is not None:
            self._set_leaves(tree, self.learning_rate * measured)
        if isinstance(plan, BoostingPlan):
            plan.loss.limit_steps(tree.value, self.learning_rate)
        if rules.monotonic:
            put_in_order(tree, rules.monotonic, measured=isinstance(plan, BoostingPlan) and measured is not None)
        if rules.ccp_alpha <= 0 or isinstance(plan, BoostingPlan):
            return tree, tree.value
        retained = kept_nodes(tree.children_left, tree.children_right, cost(tree), rules.ccp_alpha)
        return pruned(tree, retained), tree.value[nodes_above(retained, np.arange(tree.node_count))]

    def _set_leaves(self, tree: Tree, values: NDArray[np.float64]) -> None:
        """Write measured leaf values into a boosted tree; the value of an inner node is the mean of its leaves."""
        records, noise = self.nodes.records, self.plan.rules.split_shrinkage * self.noise
        leaf = records["column"] < 0
        tree.value[leaf, 0] = values
        if noise > 0.0:
            value = tree.value.copy()
            _average(tree.children_left, tree.children_right, tree.weighted_n_node_samples, value[:, 0])
            shrink_splits(records, noise, value)
            tree.value[leaf] = value[leaf]

    def _with_values(self, tree: Tree, measured: Measured) -> Tree:
        """Return a forest's tree with measured values and impurities, and with weights."""
        sums, exponent, criterion = self.nodes.sums, self.exponents[1], criterion_named(self.plan.rules.criterion)
        # There are no sums where the numbers of rows suffice.
        weight = (sums[:, n_sums_of(self.plan) - 1] if sums.shape[1] else tree.n_node_samples).astype(np.float64)
        value = measured.center.reshape(measured.center.shape[0], -1)
        if criterion.measured == "nodes":
            return replace(tree, value=value, impurity=measured.spread / weight, weighted_n_node_samples=scaled(weight, -exponent))
        value, weight, impurity = _from_leaves(
            tree.children_left, tree.children_right, weight, exponent, tree.gain, value, measured.spread, criterion.gain_is_decrease
        )
        return replace(tree, value=value, impurity=impurity, weighted_n_node_samples=weight)


@kernel
def _from_leaves(left, right, weight_of, h_exponent, gain, mean, spread, gain_is_decrease):  # type: ignore[no-untyped-def]
    """Return means, weights and impurities of nodes, given the means and sums of squares of the leaves, in the order of the leaves.

    ``mean`` has a column for each target; ``weight_of`` has the node weights, times ``2**h_exponent``.

    The children of a node have higher numbers than the node. The sum of squares of a node is that of its children plus the gain of its
    split. If the criterion defines gain differently, the squared distances of the children's means from the node's mean are added instead.
    """
    n, n_targets = left.shape[0], mean.shape[1]
    value, weight, impurity = np.empty((n, n_targets)), np.empty(n), np.empty(n)
    leaf = mean.shape[0]
    for node in range(n - 1, -1, -1):
        weight[node] = math.ldexp(weight_of[node], -h_exponent)
        i, j = left[node], right[node]
        if i >= 0:
            between = gain[node] if gain_is_decrease else 0.0
            for t in range(n_targets):
                distance = value[j, t] - value[i, t]
                value[node, t] = value[i, t] + distance * (weight[j] / weight[node])
                if not gain_is_decrease:
                    between += distance * distance * weight[i] * (weight[j] / weight[node]) / n_targets
            impurity[node] = impurity[i] + impurity[j] + between
        else:
            leaf -= 1
            impurity[node] = math.ldexp(spread[leaf], -h_exponent)
            for t in range(n_targets):
                value[node, t] = mean[leaf, t]
    for node in range(n):
        impurity[node] = impurity[node] / weight[node] if weight[node] > 0.0 else 0.0
    return value, weight, impurity


def put_in_order(tree: Tree, monotonic: tuple[int, ...], measured: bool) -> None:
    """Clip the values of a tree, in place, so that it is monotonic.

    The children of a split on a monotonic column are bounded by the midpoint of their values, as during growth
    (:mod:`dtrees.split.criteria.constraints`). For two classes, the probability of the second is clipped.

    Parameters
    ----------
    tree : Tree
    monotonic : tuple of int
        See :class:`~dtrees.engine.plan.plans.Rules`.
    measured : bool
        Whether the leaf values of a boosted tree were measured on their rows. Inner nodes have steps along gradients then: the mean of
        their leaves is used in place of these, and their values are not changed.
    """
    signs = np.array(monotonic, np.int8)
    value = tree.value[:, -1].copy()
    if measured:
        _average(tree.children_left, tree.children_right, tree.weighted_n_node_samples, value)
    _clip(tree.children_left, tree.children_right, tree.feature, signs, value)
    changed = value != tree.value[:, -1]
    if measured:
        changed &= tree.children_left < 0
    tree.value[changed, -1] = value[changed]
    if tree.value.shape[1] == 2:
        tree.value[changed, 0] = 1.0 - value[changed]


def checksum(trees: Sequence[Tree]) -> int:
    """Return a checksum that is equal for equal trees."""
    total = 0
    for tree in trees:
        for array in (tree.children_left, tree.feature, tree.threshold, tree.missing_go_to_left, tree.value, *tree.categories):
            total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


@kernel
def _average(left, right, weight, value):  # type: ignore[no-untyped-def]
    """Set the value of each inner node to the mean of the leaves below it; children have higher numbers."""
    for node in range(left.shape[0] - 1, -1, -1):
        i, j = left[node], right[node]
        if i >= 0:
            both = weight[i] + weight[j]
            share = weight[j] / both if both > 0.0 else 0.5
            value[node] = value[i] + (value[j] - value[i]) * share


@kernel
def _clip(left, right, feature, signs, value):  # type: ignore[no-untyped-def]
    """Clip values to their bounds, from the root down; children have higher numbers."""
    n = left.shape[0]
    low, high = np.full(n, -math.inf), np.full(n, math.inf)
    for node in range(n):
        value[node] = min(max(value[node], low[node]), high[node])
        i, j = left[node], right[node]
        if i < 0:
            continue
        low[i], high[i], low[j], high[j] = low[node], high[node], low[node], high[node]
        sign = signs[feature[node]]
        if sign != 0:
            one, other = min(max(value[i], low[node]), high[node]), min(max(value[j], low[node]), high[node])
            middle = one / 2.0 + other / 2.0
            if sign > 0:
                high[i] = low[j] = middle
            else:
                low[i] = high[j] = middle
