"""Weighted quantiles of the target values in the leaves of trees.

>>> start, number, weight = np.array([0, 2, 3]), np.array([0, 2, 1], np.int32), np.array([2, 2, 4])  # node 0 has two values, node 1 one
>>> found = np.empty((2, 2))
>>> leaf_quantiles(np.array([[0], [1]]), start, number, weight, np.array([5.0, 6.0, 7.0]), np.array([0.5, 0.9]), 0, found)
>>> found.tolist()
[[5.0, 7.0], [6.0, 6.0]]
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import kernel

#: Values that are processed together, as a power of two: if there are many, most have no weight for a row.
_BLOCK_BITS = 7
#: The share of a weight that may be missing because of rounding.
_LACKING = 2.0**-40


@kernel
def leaf_quantiles(nodes, start, number, weight, values, q, first, found):  # type: ignore[no-untyped-def]
    """Write quantiles of rows from ``first`` on: the smallest value that reaches a share of the total weight; NaN without weight.

    Parameters
    ----------
    nodes : ndarray of int64, shape (n, n_trees)
        The leaves of each row, in a common numbering of all trees; -1 skips a tree.
    start : ndarray of int64, shape (n_nodes + 1,)
        Node ``i`` has the values ``number[start[i]:start[i + 1]]``, and their weights.
    number : ndarray of int32
    weight : ndarray of int64
        Positive.
    values, q : ndarray of float64
        Ascending.
    first : int
    found : ndarray of float64, shape (n_rows, len(q))
    """
    sums, used = np.zeros(values.shape[0], np.int64), np.zeros((values.shape[0] >> _BLOCK_BITS) + 1, np.bool_)
    for i in range(nodes.shape[0]):
        total, below, k = 0, 0, 0
        for node in nodes[i]:
            if node >= 0:
                for j in range(start[node], start[node + 1]):
                    sums[number[j]] += weight[j]
                    used[number[j] >> _BLOCK_BITS] = True
                    total += weight[j]
        if total == 0:
            found[first + i] = np.nan
            continue
        for block in range(used.shape[0]):
            if used[block]:
                used[block] = False
                for v in range(block << _BLOCK_BITS, min((block + 1) << _BLOCK_BITS, values.shape[0])):
                    if sums[v] > 0:
                        below += sums[v]
                        sums[v] = 0
                        while k < q.shape[0] and below >= total * (q[k] * (1.0 - _LACKING)):
                            found[first + i, k] = values[v]
                            k += 1
