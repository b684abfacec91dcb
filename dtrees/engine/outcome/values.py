"""The arrays of a tree made from grown nodes, the values of boosted trees, and the pruning of nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import scaled
from dtrees.engine.plan.plans import Rules
from dtrees.split.compile.kernels import bind, kernel
from dtrees.split.criteria.criterion import Criterion, criterion_named
from dtrees.split.criteria.newton import newton_impurity, newton_step, soft_threshold
from dtrees.split.grow.best_first import MergedLeaves, cut, prune
from dtrees.split.node.records import Nodes, empty_nodes
from dtrees.tree.pruning import kept_nodes
from dtrees.tree.tree import Tree

#: Constants, as looking these up for each tree would take as long as making its arrays.
_NEWTON, _I4, _I8, _BOOL = criterion_named("newton"), np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)


def boosted_tree(nodes: Nodes, exponents: tuple[int, int], rules: Rules, learning_rate: float, noise: float = 0.0) -> Tree:
    """Return the boosted tree that consists of given nodes.

    Parameters
    ----------
    nodes : Nodes
        In preorder.
    exponents : tuple of int
        The exponents of the powers of two by which the two sums are scaled.
    rules : Rules
        Only the L2 and L1 penalties are read.
    learning_rate : float
        Multiplies the values.
    noise : float
        Taken from the gain of each split, in the units of the gains of ``nodes`` (:func:`shrink_splits`).
    """
    records, sums = nodes
    n = records.shape[0]
    left, right, feature, threshold, missing_left, n_samples = arrays = _empty_nodes(n)
    value, weight, impurity, gain = values = _empty_values(n)
    gain_exponent, penalties = _NEWTON.gain_exponent(exponents), (rules.reg_lambda, rules.reg_alpha)
    _finish()(records, sums, *exponents, gain_exponent, *penalties, learning_rate, noise, arrays, values)
    return Tree(left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value)


# Arrays are made here and not in kernels: returning an array from a kernel to Python takes three times as long as making it.
def _empty_nodes(n: int) -> tuple[NDArray[Any], ...]:
    empty = np.empty
    return empty(n, _I4), empty(n, _I4), empty(n, _I4), empty(n), empty(n, _BOOL), empty(n, _I8)


def _empty_values(n: int) -> tuple[NDArray[np.float64], ...]:
    empty = np.empty
    return empty((n, 1)), empty(n), empty(n), empty(n)


def node_arrays(records: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return the structure of a tree as arrays: children, columns, thresholds, routes of missing values and numbers of rows."""
    arrays = _empty_nodes(records.shape[0])
    _write_node_arrays(records, arrays)
    return arrays


def places_of_leaves(records: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return which nodes are leaves, and for each leaf where its rows start, where its rows in sample end and where all its rows end."""
    leaf = records["column"] < 0
    start, in_stop, stop = (records[name][leaf].astype(np.int64) for name in ("start", "in_stop", "stop"))
    return leaf, start, in_stop, stop


class CategorySplits(NamedTuple):
    """Splits on categories, as arrays.

    Attributes
    ----------
    node : ndarray of int64
        The nodes that are split.
    column : ndarray of int32
    number : ndarray of float64
        The code of the split, stored in place of a threshold (:mod:`dtrees.split.search.categories`).
    start, stop : ndarray of int64
        The places of the rows of the left children.
    """

    node: NDArray[np.int64]
    column: NDArray[np.int32]
    number: NDArray[np.float64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]


def splits_of_categories(records: NDArray[Any], rules: Rules) -> CategorySplits:
    """Return the splits on categorical columns among given nodes."""
    is_categorical = _flags(rules.categorical)
    node = np.flatnonzero(is_categorical[np.minimum(records["column"], is_categorical.shape[0] - 1)])
    splits = records[node]
    left = records[splits["left"]]
    column, number, start, stop = splits["column"], splits["threshold"], left["start"], left["stop"]
    return CategorySplits(node, column.copy(), number.copy(), start.astype(_I8), stop.astype(_I8))


@cache
def _flags(columns: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return an array that is True at the given column numbers; its last element is False, for leaves and all higher numbers."""
    flags = np.zeros(max(columns) + 2, np.bool_)
    flags[list(columns)] = True
    return flags


@kernel
def _write_node_arrays(records, arrays):  # type: ignore[no-untyped-def]
    left, right, feature, threshold, missing_left, n_samples = arrays
    for i in range(records.shape[0]):
        record = records[i]
        left[i], right[i] = record.left, record.right
        n_samples[i] = np.int64(record.in_stop) - np.int64(record.start)
        if record.column >= 0:
            feature[i], threshold[i], missing_left[i] = record.column, record.threshold, record.missing_left
        else:
            feature[i], threshold[i], missing_left[i] = -2, -2.0, False


def pruned(nodes: Nodes, exponents: tuple[int, int], rules: Rules) -> tuple[Nodes, list[MergedLeaves]]:
    """Return a tree in preorder without the nodes that best-first growth leaves out and, in boosting, without its weakest links.

    Also return the leaves that replace pruned subtrees: their rows may have to be put in order, one leaf after the other. Trees of forests
    are pruned by cost later, when their node values are known.
    """
    merged: list[MergedLeaves] = []
    if rules.max_leaf_nodes is not None:
        nodes, leaves = prune(nodes, rules.max_leaf_nodes)
        merged.append(leaves)
    if rules.ccp_alpha > 0 and criterion_named(rules.criterion).task == "boosting":
        tree = boosted_tree(nodes, exponents, rules, 1.0)
        weight = tree.weighted_n_node_samples
        # The impurity of a node is the decrease of the loss by its value.
        costs = -(weight * tree.impurity / weight[0])
        nodes, leaves = cut(nodes, kept_nodes(tree.children_left, tree.children_right, costs, rules.ccp_alpha))
        merged.append(leaves)
    return nodes, [leaves for leaves in merged if leaves.start.shape[0]]


def newton_steps(sums: NDArray[np.int64], exponents: tuple[int, int], rules: Rules) -> NDArray[np.float64]:
    """Return the Newton steps of leaves, given their sums of gradients and hessians, shape (n_leaves, 2); 0 where the hessian is 0."""
    g, h = scaled(sums[:, 0], -exponents[0]), scaled(sums[:, 1], -exponents[1]) + rules.reg_lambda
    size = np.maximum(np.abs(g) - rules.reg_alpha, 0.0)
    steps: NDArray[np.float64] = np.divide(-np.copysign(size, g), h, out=np.zeros(g.shape[0]), where=h > 0.0)
    return steps


@cache
def _finish() -> Callable[..., Any]:
    """Return the kernel bound to its types: looking these up takes as long as the work on a small tree."""
    return bind(_to_tree, *empty_nodes(0, 2), 0, 0, 0, 0.0, 0.0, 0.0, 0.0, _empty_nodes(0), _empty_values(0))


@kernel
def _to_tree(records, sums, g_exponent, h_exponent, gain_exponent, penalty, l1, learning_rate, noise, arrays, values):  # type: ignore[no-untyped-def]
    """Write the arrays of a boosted tree."""
    _write_node_arrays(records, arrays)
    value, weight, impurity, gain = values
    for i in range(records.shape[0]):
        g = soft_threshold(math.ldexp(float(sums[i, 0]), -g_exponent), l1)
        h = math.ldexp(float(sums[i, 1]), -h_exponent)
        step = newton_step(g, h, penalty)
        value[i, 0] = learning_rate * step
        weight[i] = h
        impurity[i] = newton_impurity(g, h, step)
        gain[i] = math.ldexp(records[i].gain, -gain_exponent)
    if noise > 0.0:
        shrink_splits(records, noise, value)


@kernel
def shrink_splits(records, noise, value):  # type: ignore[no-untyped-def]
    """Reduce the effect of each split, in place, by what is expected from chance: positive-part James-Stein shrinkage.

    The differences between the values of the children and that of their parent are multiplied by ``max(0, 1 - noise / gain)``. The
    hierarchical shrinkage of Agarwal et al. 2022 uses a factor that depends on numbers of rows.
    """
    before = value.copy()
    for i in range(records.shape[0]):
        split = records[i]
        if split.column >= 0:
            share = max(0.0, 1.0 - noise / split.gain) if split.gain > 0.0 else 0.0
            for child in (split.left, split.right):
                value[child, 0] = value[i, 0] + share * (before[child, 0] - before[i, 0])


def class_values(
    nodes: Nodes, criterion: Criterion, exponent: int, n_classes: int, targets: tuple[int, ...] = ()
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return class fractions, weights and impurities of nodes.

    For multi-output ``targets``, which are the numbers of classes of each target, the fractions stand side by side, and impurities are
    means over targets.
    """
    if targets:
        weight = nodes.sums[:, n_classes].astype(np.float64)
        value = nodes.sums[:, :n_classes] / weight[:, None]
        by_target = np.split(value, np.cumsum(targets)[:-1], axis=1)
        impurity = np.mean([np.maximum(criterion.impurity(fractions), 0.0) for fractions in by_target], axis=0)
        return value, scaled(weight, -exponent), impurity + 0.0
    sums = nodes.sums[:, : max(2, n_classes)]
    if n_classes <= 2:  # up to two classes: (weight of class 1, weight)
        sums = np.stack([sums[:, 1] - sums[:, 0], sums[:, 0]][:n_classes], axis=1)
    weight = sums.sum(axis=1).astype(np.float64)
    value = sums / weight[:, None]
    return value, scaled(weight, -exponent), np.maximum(criterion.impurity(value), 0.0) + 0.0
