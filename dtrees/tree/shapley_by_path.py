"""Path-dependent Shapley values: if a column is unknown, a row takes both branches of a split, by their shares of the weight.

The game of a tree is the sum over its leaves of v * product over the columns of the leaf's path of (x if the column is known, else c),
where v is the leaf's value, x is 1 if the row passes all splits by that column on the path and 0 otherwise, and c is the share of the
weight that does. A Shapley value is the integral of a derivative of the game's multilinear extension (Owen, 1972), in which a column is
known with probability t: the integral of (x_i - c_i) * v * product over the other columns of (t x + (1 - t) c) from t = 0 to 1. The
integrand is a polynomial in t whose degree is the number of other columns on the path, which the Gauss-Legendre rule with half as many
points integrates exactly. All factors and weights are between 0 and 1, so there is no cancellation or growth, however deep the tree.

At a node that splits by column i, let c and F = t + (1 - t) c be that column's share and factor from the splits above, P the product of
all factors above, and U of a child the sum over its leaves of v times the factors that the path below adds, each divided by the previous
factor of its column. For rows that pass all splits by column i above, the two children then add

    P / F^2 * (U_left - U_right) * (c_right if the row goes left, else -c_left)

to the integrand, and nothing for other rows. So one traversal of a tree gives the values of a block of rows for all columns. Interaction
values are integrals of second derivatives, computed likewise with a factor for each column above.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.tree.packing import divide


class _Split(NamedTuple):
    """A split on the path of a block of n rows.

    Attributes
    ----------
    left : ndarray of bool, shape (n,)
        The rows that go left.
    share : float
        The share of the node's weight that goes left.
    passing : ndarray of bool, shape (n,)
        Which rows pass the splits above by the same column; all, if there are none.
    above : float
        The share of the weight that passes these.
    product : ndarray of float64, shape (n_points, n)
        Product of all factors above.
    points, weights : ndarray of float64, shape (n_points,)
        Points and weights of the integral.
    """

    left: NDArray[np.bool_]
    share: Any
    passing: NDArray[np.bool_]
    above: Any
    product: NDArray[np.float64]
    points: NDArray[np.float64]
    weights: NDArray[np.float64]


@inner_kernel
def _enter(split, wants_left, share, known, product_below):
    """Write which rows pass a column's splits up to a child, given its share of the weight, and the product of factors there."""
    left, _, passing, above, product, points, _ = split
    n = left.shape[0]
    for r in range(n):
        match = left[r] == wants_left
        known[r] = passing[r] and match
    for q in range(points.shape[0]):
        t = points[q]
        factor = t + (1.0 - t) * above
        inside, outside = (t + (1.0 - t) * above * share) / factor, (1.0 - t) * above * share / factor
        before, after = product[q], product_below[q]
        for r in range(n):
            after[r] = before[r] * (inside if known[r] else (outside if passing[r] else share))


@inner_kernel
def _combine(split, sums, out, total, scratch):
    """Write a node's sums, given its children's ``sums``, and add to the values of its column.

    ``sums`` has shape (2, n_values, n_points, n), ``out`` (n_values, n_points, n), ``total`` (n_values, n).
    """
    left, share, passing, above, product, points, weights = split
    n = left.shape[0]
    sign = scratch
    for r in range(n):
        sign[r] = (above * (1.0 - share) if left[r] else -above * share) if passing[r] else 0.0
    for q in range(points.shape[0]):
        t = points[q]
        factor = t + (1.0 - t) * above
        scale = weights[q] / (factor * factor)
        known = t / factor
        to_left, to_right = share + known * (1.0 - share), share - known * share
        before = product[q]
        for k in range(out.shape[0]):
            mine, one, other, values = out[k, q], sums[0, k, q], sums[1, k, q], total[k]
            for r in range(n):
                difference = one[r] - other[r]
                values[r] += scale * before[r] * difference * sign[r]
                mine[r] = other[r] + ((to_left if left[r] else to_right) if passing[r] else share) * difference


@inner_kernel
def _combine_leaves(split, one, other, out, total, scratch):
    """Write the sums of a node whose children are leaves with the values ``one`` and ``other``, and add to the values of its column."""
    left, share, passing, above, product, points, weights = split
    n = left.shape[0]
    integral = scratch
    for r in range(n):
        integral[r] = 0.0
    for q in range(points.shape[0]):
        t = points[q]
        factor = t + (1.0 - t) * above
        scale = weights[q] / (factor * factor)
        before = product[q]
        for r in range(n):
            integral[r] += scale * before[r]
    for r in range(n):
        integral[r] *= (above * (1.0 - share) if left[r] else -above * share) if passing[r] else 0.0
    for k in range(out.shape[0]):
        difference, values = one[k] - other[k], total[k]
        for r in range(n):
            values[r] += difference * integral[r]
        for q in range(points.shape[0]):
            t = points[q]
            known = t / (t + (1.0 - t) * above)
            high = other[k] + (share + known * (1.0 - share)) * difference
            low = other[k] + (share - known * share) * difference
            mine, unknown = out[k, q], other[k] + share * difference
            for r in range(n):
                mine[r] = (high if left[r] else low) if passing[r] else unknown


@inner_kernel
def _combine_pairs(split, sums, other, other_share, total, scratch):
    """Add to the interaction values of a node's column and another one on the path, whose splits the rows ``other`` pass.

    ``total`` has shape (n_values, n); other parameters are those of :func:`_combine`.
    """
    left, share, passing, above, product, points, weights = split
    n = left.shape[0]
    for k in range(total.shape[0]):
        for r in range(n):
            scratch[r] = 0.0
        for q in range(points.shape[0]):
            t = points[q]
            factor = t + (1.0 - t) * above
            scale = weights[q] / (factor * factor)
            inside, outside = scale * (1.0 - other_share) / (t + (1.0 - t) * other_share), -scale / (1.0 - t)
            before, one, two = product[q], sums[0, k, q], sums[1, k, q]
            for r in range(n):
                scratch[r] += before[r] * (one[r] - two[r]) * (inside if other[r] else outside)
        values = total[k]
        for r in range(n):
            values[r] += scratch[r] * ((above * (1.0 - share) if left[r] else -above * share) if passing[r] else 0.0)


@kernel
def add_path_dependent(paths, X, out, pairs):
    """Add the Shapley values of a block of rows, and their interaction values.

    ``X`` has shape (n_columns, n), ``out`` (n_columns, n_values, n), and ``pairs`` (n_columns, n_columns, n_values, n), or is empty if
    interactions are not needed; columns are those that trees use. For each pair, one of its two elements in ``pairs`` gets the full
    value.
    """
    n_columns, n = X.shape
    wants_pairs = pairs.shape[0] > 0
    n_values = paths.value.shape[1]
    depth, n_points = np.max(paths.depth), max(1, (np.max(paths.n_distinct) + 1) // 2)
    product, sums = np.ones((depth + 1, n_points, n)), np.empty((depth + 1, 2, n_values, n_points, n))
    left, known = np.empty((depth + 1, n), np.bool_), np.ones((depth + 1, n), np.bool_)
    # By depth: the node, the number of its finished children, whether it is the right child of its parent, its share of the weight for
    # its parent's column, and the position on the path where the share of its own column is stored.
    at, done, side, noted = np.zeros((4, depth + 1), np.int64)
    share = np.ones(depth + 1)
    last = np.zeros(n_columns, np.int64)  # by column, the position on the path where its share is stored; at the root, where it is 1
    scratch = np.empty(n)
    for tree in range(paths.roots.shape[0] - 1):
        nodes, value = paths.nodes[paths.roots[tree] : paths.roots[tree + 1]], paths.value[paths.roots[tree] : paths.roots[tree + 1]]
        if nodes[0].feature < 0:
            continue
        first_point = paths.first_point[tree]
        m = (paths.n_distinct[tree] + 1) // 2
        points, weights = paths.points[first_point : first_point + m], paths.weights[first_point : first_point + m]
        d = 0
        at[0] = done[0] = side[0] = 0
        while d >= 0:
            node = nodes[at[d]]
            if done[d] == 0:
                noted[d] = last[node.feature]
                divide(node, paths.words, X[node.feature], left[d])
            above = noted[d]
            split = _Split(left[d], node.share, known[above], share[above], product[d], points, weights)
            if done[d] == 0 and not wants_pairs and nodes[node.left].feature < 0 and nodes[node.right].feature < 0:
                _combine_leaves(split, value[node.left], value[node.right], sums[d, side[d]], out[node.feature], scratch)
                d -= 1
                continue
            if done[d] == 2:
                _combine(split, sums[d + 1], sums[d, side[d]], out[node.feature], scratch)
                if wants_pairs:
                    for e in range(1, d + 1):
                        column = nodes[at[e - 1]].feature
                        if column != node.feature and last[column] == e:
                            pair = pairs[node.feature, column]
                            _combine_pairs(split, sums[d + 1], known[e], share[e], pair, scratch)
                last[node.feature] = above
                d -= 1
                continue
            right = done[d] == 1
            child = node.right if right else node.left
            done[d] += 1
            if nodes[child].feature < 0:
                for k in range(n_values):
                    sums[d + 1, done[d] - 1, k, :m] = value[child, k]
                continue
            part = 1.0 - node.share if right else node.share
            _enter(split, not right, part, known[d + 1], product[d + 1])
            share[d + 1] = share[above] * part
            last[node.feature] = d + 1
            d += 1
            at[d], done[d], side[d] = child, 0, done[d - 1] - 1
