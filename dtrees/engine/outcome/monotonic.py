"""The values of a tree under monotonic constraints.

While a tree grows, values are compared in the units of its sums. The values of the finished tree are rounded in another way, and where they
are measured they are others altogether. So they are bounded once more, in the precision they are in: whatever they were, the tree is
monotonic then, to the last bit.
"""

from __future__ import annotations

import math

import numpy as np

from dtrees.split.compile.kernels import kernel
from dtrees.tree.tree import Tree


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
