"""The ending of a tree: from nodes that were grown to the finished tree, whoever has the rows.

What is measured on rows, and the sets of categories of splits, are found in between by who has the rows.

While a tree under monotonic constraints grows, values are compared in the units of its sums. The values of the finished tree are rounded in
another way, and where they are measured they are others altogether. So they are bounded once more, in the precision they are in: whatever
they were, the tree is monotonic then, to the last bit.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import boosted_tree, class_values, shrink_splits, take_apart
from dtrees.engine.plan.node_limits import n_sums_of, scaled
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Measured
from dtrees.split.compile.kernels import kernel
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.node.records import Nodes
from dtrees.tree.pruning import cost, kept_nodes, nodes_above, pruned
from dtrees.tree.tree import Tree


def measures(plan: ForestPlan | BoostingPlan) -> bool:
    """Tell whether the values of leaves are measured on their rows, after the last splits."""
    return plan.measures_leaves if isinstance(plan, BoostingPlan) else bool(criterion_named(plan.rules.criterion).measured)


def draft_tree(
    plan: ForestPlan | BoostingPlan, nodes: Nodes, exponents: tuple[int, int], learning_rate: float = 1.0, noise: float = 0.0
) -> Tree:
    """Return the tree that consists of some nodes, in preorder; what leaves hold, and what they tell of others, is still to be measured.

    Parameters
    ----------
    plan : ForestPlan or BoostingPlan
    nodes : Nodes
    exponents : tuple of int
        The powers of two that their two sums were multiplied by.
    learning_rate : float
        Multiplies the values of a boosted tree.
    noise : float
        What its splits gain by chance (:func:`~dtrees.engine.plan.node_limits.noise_of`).
    """
    if isinstance(plan, BoostingPlan):
        return boosted_tree(nodes, exponents, plan.rules, learning_rate, plan.rules.split_shrinkage * noise)
    left, right, feature, threshold, missing_left, n_samples = take_apart(nodes.records)
    criterion, none = criterion_named(plan.rules.criterion), np.zeros(n_samples.shape[0])
    gain = scaled(nodes.records["gain"], -criterion.gain_exponent(exponents))
    value, weight, impurity = none[:, np.newaxis], none, none
    if not criterion.measured:
        value, weight, impurity = class_values(nodes, criterion, exponents[1], plan.n_classes, plan.targets)
    return Tree(left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value)


def finish_tree(
    plan: ForestPlan | BoostingPlan,
    nodes: Nodes,
    exponents: tuple[int, int],
    tree: Tree,
    measured: NDArray[np.float64] | Measured | None = None,
    learning_rate: float = 1.0,
    noise: float = 0.0,
) -> tuple[Tree, NDArray[np.float64]]:
    """Return a tree with all values, and for each of the nodes what the tree says there, be it that of a node above.

    Parameters
    ----------
    plan, nodes, exponents, learning_rate, noise
        As of :func:`draft_tree`.
    tree : Tree
        The draft, with sets of categories; written.
    measured : ndarray or Measured or None
        Steps of the leaves of a boosted tree, before shrinkage; centers and spreads of leaves, or nodes. None where sums tell all.
    """
    rules = plan.rules
    if isinstance(measured, Measured):
        tree = _with_values(plan, nodes, exponents[1], tree, measured)
    elif measured is not None:
        _set_leaves(tree, learning_rate * measured, nodes, rules.split_shrinkage * noise)
    if isinstance(plan, BoostingPlan):
        plan.loss.limit_steps(tree.value, learning_rate)
    if rules.monotonic:
        put_in_order(tree, rules.monotonic, measured=isinstance(plan, BoostingPlan) and measured is not None)
    if rules.ccp_alpha <= 0 or isinstance(plan, BoostingPlan):
        return tree, tree.value
    kept = kept_nodes(tree.children_left, tree.children_right, cost(tree), rules.ccp_alpha)
    return pruned(tree, kept), tree.value[nodes_above(kept, np.arange(tree.node_count))]


def _set_leaves(tree: Tree, values: NDArray[np.float64], nodes: Nodes, noise: float) -> None:
    """Write the values of the leaves of a boosted tree, which were measured; inner nodes stand for the means of theirs."""
    leaf = nodes.records["column"] < 0
    tree.value[leaf, 0] = values
    if noise > 0.0:
        value = tree.value.copy()
        _average(tree.children_left, tree.children_right, tree.weighted_n_node_samples, value[:, 0])
        shrink_splits(nodes.records, noise, value)
        tree.value[leaf] = value[leaf]


def _with_values(plan: ForestPlan | BoostingPlan, nodes: Nodes, exponent: int, tree: Tree, measured: Measured) -> Tree:
    """Return a tree of a forest with measured values, weights, whose exponent is given, and impurities."""
    criterion, weight_at = criterion_named(plan.rules.criterion), n_sums_of(plan) - 1
    weight = (nodes.sums[:, weight_at] if nodes.sums.shape[1] else tree.n_node_samples).astype(np.float64)  # rows, where no sums were kept
    value = measured.center.reshape(measured.center.shape[0], -1)
    if criterion.measured == "nodes":
        return replace(tree, value=value, impurity=measured.spread / weight, weighted_n_node_samples=scaled(weight, -exponent))
    value, weight, impurity = _from_leaves(
        tree.children_left, tree.children_right, weight, exponent, tree.gain, value, measured.spread, criterion.gain_is_decrease
    )
    return replace(tree, value=value, impurity=impurity, weighted_n_node_samples=weight)


@kernel
def _from_leaves(left, right, weight_of, h_exponent, gain, mean, spread, gain_is_decrease):  # type: ignore[no-untyped-def]
    """Return means, weights and impurities of nodes, by the means and sums of squares of the leaves, in the order of these.

    ``mean`` has a column for each target; ``weight_of`` are the weights of nodes, times ``2**h_exponent``.

    The children of a node have higher numbers. Its sum of squares is theirs plus the gain of its split, or, where the criterion's gain is
    something else, plus that of their means about its own.
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
                apart = value[j, t] - value[i, t]
                value[node, t] = value[i, t] + apart * (weight[j] / weight[node])
                if not gain_is_decrease:
                    between += apart * apart * weight[i] * (weight[j] / weight[node]) / n_targets
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

    The children of a split on a monotonic column are bounded by the middle of their values, as while the tree was grown
    (:mod:`dtrees.split.criteria.constraints`). Of two classes, the probability of the second is clipped.

    Parameters
    ----------
    tree : Tree
    monotonic : tuple of int
        As of :class:`~dtrees.engine.plan.plans.Rules`.
    measured : bool
        Whether the values of leaves were measured on their rows, in boosting. Inner nodes, whose values are steps along gradients, count
        with the means of their leaves then, and stay as they are.
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
    """Return a number that trees and others have in common, if they are the same."""
    total = 0
    for tree in trees:
        for array in (tree.children_left, tree.feature, tree.threshold, tree.missing_go_to_left, tree.value, *tree.categories):
            total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


@kernel
def _average(left, right, weight, value):  # type: ignore[no-untyped-def]
    """Write the mean value of the leaves below each inner node; children have higher numbers."""
    for node in range(left.shape[0] - 1, -1, -1):
        i, j = left[node], right[node]
        if i >= 0:
            both = weight[i] + weight[j]
            share = weight[j] / both if both > 0.0 else 0.5
            value[node] = value[i] + (value[j] - value[i]) * share


@kernel
def _clip(left, right, feature, signs, value):  # type: ignore[no-untyped-def]
    """Clip values by their bounds; children have higher numbers."""
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
