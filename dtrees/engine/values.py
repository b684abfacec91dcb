"""What the nodes of a tree that was grown become: the arrays of a tree, and the values of a boosted one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.limits import gain_exponent, scaled
from dtrees.engine.plans import Criterion
from dtrees.split.kernel import bind, kernel
from dtrees.split.nodes import Nodes, empty_nodes
from dtrees.tree.tree import Tree


class Leaves(NamedTuple):
    """Where the rows of the leaves of a tree begin in the row partition, ascending, and the leaves' values; shape (n_leaves,)."""

    start: NDArray[np.int64]
    value: NDArray[np.float64]


def boosted_tree(nodes: Nodes, exponents: tuple[int, int], penalty: float, learning_rate: float) -> tuple[Tree, Leaves]:
    """Return the tree that nodes are, and its leaves.

    Parameters
    ----------
    nodes : Nodes
        In preorder.
    exponents : tuple of int
        The powers of two that their two sums were multiplied by.
    penalty : float
        The L2 penalty on values.
    learning_rate : float
        Multiplies the values.
    """
    a, b = exponents
    arrays, leaves = _finish()(nodes.records, nodes.sums, a, b, gain_exponent(Criterion.NEWTON, exponents), penalty, learning_rate)
    return Tree(*arrays), Leaves(*leaves)


@kernel
def take_apart(records):  # type: ignore[no-untyped-def]
    """Return arrays of a tree, which nodes are leaves, and where the rows of the leaves lie."""
    n = records.shape[0]
    left, right, feature = np.empty(n, np.int32), np.empty(n, np.int32), np.full(n, -2, np.int32)
    threshold, missing_left, n_samples = np.full(n, -2.0), np.zeros(n, np.bool_), np.empty(n, np.int64)
    leaf = np.zeros(n, np.bool_)
    places = np.empty((3, n // 2 + 1), np.int64)
    n_leaves = 0
    for i in range(n):
        record = records[i]
        left[i], right[i] = record.left, record.right
        n_samples[i] = np.int64(record.mid) - np.int64(record.start)
        if record.column >= 0:
            feature[i], threshold[i], missing_left[i] = record.column, record.threshold, record.missing_left
        else:
            leaf[i] = True
            places[0, n_leaves], places[1, n_leaves], places[2, n_leaves] = record.start, record.mid, record.stop
            n_leaves += 1
    return left, right, feature, threshold, missing_left, n_samples, leaf, places[0], places[1], places[2]


@kernel
def newton_values(records, sums, a_exponent, b_exponent, gain_exponent, penalty, learning_rate):  # type: ignore[no-untyped-def]
    """Return the values, weights, impurities and gains of the nodes of a boosted tree."""
    n = records.shape[0]
    value, weight, impurity, gain = np.zeros((n, 1)), np.empty(n), np.zeros(n), np.empty(n)
    for i in range(n):
        g = math.ldexp(float(sums[i, 0]), -a_exponent)
        h = math.ldexp(float(sums[i, 1]), -b_exponent)
        step = -g / (h + penalty) if h + penalty > 0.0 else 0.0
        value[i, 0] = learning_rate * step
        weight[i] = h
        if h > 0.0:
            impurity[i] = step * -g / h
        gain[i] = math.ldexp(records[i].gain, -gain_exponent)
    return value, weight, impurity, gain


@cache
def _finish() -> Callable[..., Any]:
    """Return the kernel bound to its types, which takes a third of the time for a small tree."""
    return bind(_to_tree, *empty_nodes(0, 2), 0, 0, 0, 0.0, 0.0)


@kernel
def _to_tree(records, sums, a_exponent, b_exponent, gain_exponent, penalty, learning_rate):  # type: ignore[no-untyped-def]
    """Return the arrays of a boosted tree in their order, and where the rows of its leaves begin and these' values."""
    left, right, feature, threshold, missing_left, n_samples, leaf, start, _, _ = take_apart(records)
    value, weight, impurity, gain = newton_values(records, sums, a_exponent, b_exponent, gain_exponent, penalty, learning_rate)
    value_of_leaf = np.empty(start.shape[0])
    n_leaves = 0
    for i in range(leaf.shape[0]):
        if leaf[i]:
            value_of_leaf[n_leaves] = value[i, 0]
            n_leaves += 1
    return (left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value), (start, value_of_leaf)


def class_values(nodes: Nodes, criterion: Criterion, exponent: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return class fractions, weights and impurities of nodes."""
    sums = nodes.sums
    if sums.shape[1] == 2:  # two classes: (weight of class 1, weight)
        sums = np.stack([sums[:, 1] - sums[:, 0], sums[:, 0]], axis=1)
    weight = sums.sum(axis=1).astype(np.float64)
    value = sums / weight[:, None]
    if criterion == Criterion.GINI:
        impurity = 1.0 - (value * value).sum(axis=1)
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            impurity = -np.where(value > 0, value * np.log2(value), 0.0).sum(axis=1)
    return value, scaled(weight, -exponent), np.maximum(impurity, 0.0) + 0.0
