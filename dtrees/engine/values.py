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

#: To look these up for each tree takes as long as to make its arrays.
_NEWTON, _I4, _I8, _BOOL = Criterion.NEWTON, np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)


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
    records, sums = nodes
    n = records.shape[0]
    left, right, feature, threshold, missing_left, n_samples, _ = apart = _room_for_nodes(n)
    value, weight, impurity, gain = values = _room_for_values(n)
    places, value_of_leaf = np.empty((3, n // 2 + 1), _I8), np.empty(n // 2 + 1)
    a, b = exponents
    _finish()(records, sums, a, b, gain_exponent(_NEWTON, exponents), penalty, learning_rate, apart, values, places, value_of_leaf)
    return Tree(left, right, feature, threshold, missing_left, impurity, gain, n_samples, weight, value), Leaves(places[0], value_of_leaf)


# Arrays are made here, not in kernels: to hand an array of a kernel's over to Python takes three times as long as to make it.
def _room_for_nodes(n: int) -> tuple[NDArray[Any], ...]:
    empty = np.empty
    return empty(n, _I4), empty(n, _I4), empty(n, _I4), empty(n), empty(n, _BOOL), empty(n, _I8), empty(n, _BOOL)


def _room_for_values(n: int) -> tuple[NDArray[np.float64], ...]:
    empty = np.empty
    return empty((n, 1)), empty(n), empty(n), empty(n)


def take_apart(records: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return arrays of a tree, which nodes are leaves, and where the rows of the leaves lie."""
    n = records.shape[0]
    apart, places = _room_for_nodes(n), np.empty((3, n // 2 + 1), _I8)
    _take_apart(records, apart, places)
    return *apart, *places


@kernel
def _take_apart(records, apart, places):  # type: ignore[no-untyped-def]
    left, right, feature, threshold, missing_left, n_samples, leaf = apart
    n_leaves = 0
    for i in range(records.shape[0]):
        record = records[i]
        left[i], right[i] = record.left, record.right
        n_samples[i] = np.int64(record.mid) - np.int64(record.start)
        leaf[i] = record.column < 0
        if leaf[i]:
            feature[i], threshold[i], missing_left[i] = -2, -2.0, False
            places[0, n_leaves], places[1, n_leaves], places[2, n_leaves] = record.start, record.mid, record.stop
            n_leaves += 1
        else:
            feature[i], threshold[i], missing_left[i] = record.column, record.threshold, record.missing_left


def newton_values(
    records: NDArray[Any],
    sums: NDArray[np.int64],
    a_exponent: int,
    b_exponent: int,
    gain_exponent: int,
    penalty: float,
    learning_rate: float,
) -> tuple[NDArray[np.float64], ...]:
    """Return the values, weights, impurities and gains of the nodes of a boosted tree."""
    values = _room_for_values(records.shape[0])
    _newton_values(records, sums, a_exponent, b_exponent, gain_exponent, penalty, learning_rate, values)
    return values


@kernel
def _newton_values(records, sums, a_exponent, b_exponent, gain_exponent, penalty, learning_rate, values):  # type: ignore[no-untyped-def]
    value, weight, impurity, gain = values
    for i in range(records.shape[0]):
        g = math.ldexp(float(sums[i, 0]), -a_exponent)
        h = math.ldexp(float(sums[i, 1]), -b_exponent)
        step = -g / (h + penalty) if h + penalty > 0.0 else 0.0
        value[i, 0] = learning_rate * step
        weight[i] = h
        impurity[i] = step * -g / h if h > 0.0 else 0.0
        gain[i] = math.ldexp(records[i].gain, -gain_exponent)


@cache
def _finish() -> Callable[..., Any]:
    """Return the kernel bound to its types: to look them up takes as long as the work on a small tree."""
    places, value_of_leaf = np.empty((3, 1), _I8), np.empty(1)
    return bind(_to_tree, *empty_nodes(0, 2), 0, 0, 0, 0.0, 0.0, _room_for_nodes(0), _room_for_values(0), places, value_of_leaf)


@kernel
def _to_tree(records, sums, a_exponent, b_exponent, gain_exponent, penalty, learning_rate, apart, values, places, value_of_leaf):  # type: ignore[no-untyped-def]
    """Write the arrays of a boosted tree, where the rows of its leaves lie, and the leaves' values."""
    _take_apart(records, apart, places)
    _newton_values(records, sums, a_exponent, b_exponent, gain_exponent, penalty, learning_rate, values)
    leaf, value, n_leaves = apart[-1], values[0], 0
    for i in range(records.shape[0]):
        if leaf[i]:
            value_of_leaf[n_leaves] = value[i, 0]
            n_leaves += 1


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
