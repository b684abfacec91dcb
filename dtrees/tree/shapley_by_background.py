"""Interventional Shapley values: unknown columns of a row have the values of background rows.

The game of a tree, a row and a background row is the value of the leaf for a row that has some columns from the one and the others from
the other. On the path to a leaf with the value v, let p be the number of columns whose splits only the row passes, and m the number of
columns whose splits only the background row passes. Unless both fail in some column, the leaf adds v (p - 1)! m! / (p + m)! to the
values of the former columns, and -v p! (m - 1)! / (p + m)! to those of the latter (Lundberg et al., 2020). Values are means over the
background.

Trees of few leaves, with few columns on each path, get *tables*: for each leaf, the number of background rows that pass in each set of
its columns, and the resulting values of a row that passes in some set. The time for a row is then proportional to the number of leaves,
however large the background. In other trees, each row walks down together with each background row, to the leaves that either can reach.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.tree.packing import divide, goes_left

#: Most columns of a path for tables, which have a column for each set of columns that a row may pass.
MOST_COLUMNS = 8


@inner_kernel
def _shares(n):
    """Return (p - 1)! m! / (p + m)! for p and m up to n, 0 for p = 0."""
    found = np.zeros((n + 1, n + 1))
    for p in range(1, n + 1):
        found[p, 0] = 1.0 / p
        for m in range(1, n + 1):
            found[p, m] = found[p, m - 1] * m / (p + m)
    return found


@inner_kernel
def _pass_on(node, words, x, pattern, is_new, bit, left, below_left, below_right):
    """Write the columns in which the rows of two children pass, a bit for each column of the path, and 1 for the node's column."""
    divide(node, words, x, left)
    for r in range(x.shape[0]):
        passed = is_new or pattern[r] & bit
        without = pattern[r] & ~bit
        below_left[r] = pattern[r] | bit if passed and left[r] else without
        below_right[r] = pattern[r] | bit if passed and not left[r] else without


@inner_kernel
def _add_to_tables(pattern, n_columns, shares, counts, table):
    """Write the values of rows at a leaf, shape (n_columns, 2 ** n_columns), from the columns in which background rows pass."""
    n_sets = 1 << n_columns
    counts[:n_sets] = 0.0
    for r in range(pattern.shape[0]):
        counts[pattern[r]] += 1.0 / pattern.shape[0]
    for passed in range(n_sets):
        if counts[passed] == 0.0:
            continue
        needed = n_sets - 1 - passed
        p = 0
        for j in range(n_columns):
            p += (needed >> j) & 1
        subset = passed
        while True:  # the columns in which both pass
            m = 0
            for j in range(n_columns):
                m += ((passed ^ subset) >> j) & 1
            mine = needed | subset
            for j in range(n_columns):
                if (needed >> j) & 1:
                    table[j, mine] += counts[passed] * shares[p, m]
                elif ((passed ^ subset) >> j) & 1:
                    table[j, mine] -= counts[passed] * shares[m, p]
            if subset == 0:
                break
            subset = (subset - 1) & passed


@kernel
def walk_with_tables(paths, tree, X, tables, out):
    """Build the tables of a tree, or use them.

    ``X`` has shape (n_columns, n). If ``out`` is empty, X is the background, and ``tables`` are zeros to be filled, of shape (n_leaves,
    n_columns of the longest path, 2 to the power of these). Otherwise the values of the rows of X are added to ``out``, shape
    (n_columns, n_values, n).
    """
    n = X.shape[1]
    nodes, value = paths.nodes[paths.roots[tree] : paths.roots[tree + 1]], paths.value[paths.roots[tree] : paths.roots[tree + 1]]
    depth = paths.depth[tree]
    pattern, left = np.zeros((depth + 1, 2, n), np.uint8), np.empty(n, np.bool_)
    at, done, side = np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64), np.zeros(depth + 1, np.int64)
    is_new, columns, place = np.empty(depth + 1, np.bool_), np.zeros(depth + 1, np.int64), np.full(X.shape[0], -1)
    shares, counts = _shares(paths.n_distinct[tree]), np.empty(tables.shape[2])
    leaf = n_columns = d = 0
    while d >= 0:
        node, mine = nodes[at[d]], pattern[d, side[d]]
        if node.feature < 0:
            table = tables[leaf]
            leaf += 1
            if out.shape[0] == 0:
                _add_to_tables(mine, n_columns, shares, counts, table)
            else:
                for j in range(n_columns):
                    of_column = table[j]
                    for k in range(out.shape[1]):
                        total, v = out[columns[j], k], value[at[d], k]
                        for r in range(n):
                            total[r] += v * of_column[mine[r]]
            d -= 1
            continue
        if done[d] == 0:
            is_new[d] = place[node.feature] < 0
            if is_new[d]:
                place[node.feature] = n_columns
                columns[n_columns] = node.feature
                n_columns += 1
            bit = np.uint8(1 << place[node.feature])
            _pass_on(node, paths.words, X[node.feature], mine, is_new[d], bit, left, pattern[d + 1, 0], pattern[d + 1, 1])
        if done[d] == 2:
            if is_new[d]:
                n_columns -= 1
                place[node.feature] = -1
            d -= 1
            continue
        done[d] += 1
        at[d + 1], done[d + 1], side[d + 1] = node.left if done[d] == 1 else node.right, 0, done[d] - 1
        d += 1


@kernel
def add_by_pairs(paths, tree, X, background, out):
    """Add the values of the rows ``X``, shape (n_columns, n), for a tree, to ``out``, shape (n_columns, n_values, n)."""
    nodes, value = paths.nodes[paths.roots[tree] : paths.roots[tree + 1]], paths.value[paths.roots[tree] : paths.roots[tree + 1]]
    most = paths.n_distinct[tree]
    shares = _shares(most)
    # The columns in which only one of the two rows passes, in order, and the branches still to be taken.
    path, branch, branch_length, branch_own = np.empty((4, most), np.int64)
    who = np.zeros(X.shape[0], np.int8)  # 1 if the row's branch is taken in a column, 2 if the background row's
    n_background = background.shape[1]
    for r in range(X.shape[1]):
        for b in range(n_background):
            node, length, own, n_branches = np.int64(0), 0, 0, 0
            while True:
                feature = nodes[node].feature
                if feature >= 0:
                    mine = who[feature] != 2 and goes_left(nodes[node], paths.words, X[feature, r])
                    if who[feature] == 0:
                        others = goes_left(nodes[node], paths.words, background[feature, b])
                        if mine != others:
                            branch[n_branches], branch_length[n_branches], branch_own[n_branches] = node, length, own
                            n_branches += 1
                            who[feature], path[length] = 1, feature
                            length += 1
                            own += 1
                    elif who[feature] == 2:
                        mine = goes_left(nodes[node], paths.words, background[feature, b])
                    node = np.int64(nodes[node].left) if mine else np.int64(nodes[node].right)
                    continue
                gain, loss = shares[own, length - own] / n_background, shares[length - own, own] / n_background
                for j in range(length):
                    share = gain if who[path[j]] == 1 else -loss
                    for k in range(out.shape[1]):
                        out[path[j], k, r] += value[node, k] * share
                if n_branches == 0:
                    break
                # Return to where the rows separated last, and take the background row's branch from there.
                n_branches -= 1
                while length > branch_length[n_branches]:
                    length -= 1
                    who[path[length]] = 0
                at, own = branch[n_branches], branch_own[n_branches]
                feature = nodes[at].feature
                who[feature], path[length] = 2, feature
                length += 1
                others = goes_left(nodes[at], paths.words, background[feature, b])
                node = np.int64(nodes[at].left) if others else np.int64(nodes[at].right)
            while length > 0:
                length -= 1
                who[path[length]] = 0
