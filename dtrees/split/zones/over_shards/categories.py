"""Splits by sets of categories, of nodes whose rows are spread over shards: combines the shards' sums by category.

Every shard sums its rows of a node by category, and sends a list of the categories that occur to the searcher of the column: their
codes, which are the numbers of the categories, ascending, each with its sums. The search needs only these lists
(:mod:`dtrees.split.search.categories`); no rows are sent. As with zone sums, the sums of the larger of two siblings are its parent's
minus the other's.

Missing values have the code after the last category of any shard.

If weights of classes are summed, a list has an element for each class of a category that occurs: its code is that of the category times
the number of classes, plus the class, and only weights are summed. For several targets, classes have a common numbering; for several
numeric targets, a list has an element for each target of a category.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claimed
from dtrees.split.criteria.constraints import begin_column
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments, n_first_classes, n_sums
from dtrees.split.node.records import CONSTANT, SPLIT, complete_but_threshold
from dtrees.split.numbers.hashing import draw
from dtrees.split.search.categories import choose_sides, merge_rare, search_groups


@by_reference
class Lists(NamedTuple):
    """Sums of nodes by category, one list for each node and column.

    Attributes
    ----------
    begin, length : ndarray of int64, shape (n_lists,)
        List i has the elements ``begin[i]:begin[i] + length[i]`` of the other arrays.
    code, n : ndarray of uint32
    g, h : ndarray of int64
        ``h`` is empty if every weight is 1.
    """

    begin: NDArray[np.int64]
    length: NDArray[np.int64]
    code: NDArray[np.uint32]
    n: NDArray[np.uint32]
    g: NDArray[np.int64]
    h: NDArray[np.int64]


def make_lists(offsets: NDArray[np.int64], weighted: bool) -> Lists:
    """Return empty lists with the given capacities."""
    total = int(offsets.sum())
    return Lists(
        np.cumsum(offsets) - offsets,
        np.zeros(offsets.shape[0], np.int64),
        np.empty(total, np.uint32),
        np.empty(total, np.uint32),
        np.empty(total, np.int64),
        np.empty(total if weighted else 0, np.int64),
    )


class Tally(NamedTuple):
    """Buffers for sums by code: all 0 between two nodes.

    Attributes
    ----------
    n : ndarray of int64, shape (n_codes,)
    sums : ndarray of int64, shape (n_codes, 2)
    marks : ndarray of uint64
        A bit for each code that occurs.
    """

    n: NDArray[np.int64]
    sums: NDArray[np.int64]
    marks: NDArray[np.uint64]


def make_tally(n_codes: int) -> Tally:
    """Return buffers for the sums of ``n_codes`` codes."""
    return Tally(np.zeros(n_codes, np.int64), np.zeros((n_codes, 2), np.int64), np.zeros(n_codes // 64 + 1, np.uint64))


@lean_kernel
def _note(tally, code, n, g, h):
    """Add rows of a code to a tally."""
    if tally.n[code] == 0:
        tally.marks[code >> 6] |= np.uint64(1) << np.uint64(code & 63)
    tally.n[code] += n
    tally.sums[code, 0] += g
    tally.sums[code, 1] += h


@lean_kernel
def _list(tally, lists, i):
    """Write a tally to a list, and clear it."""
    weighted, at = lists.h.shape[0] > 0, lists.begin[i]
    for place in range(tally.marks.shape[0]):
        word, code = tally.marks[place], place << 6
        while word != np.uint64(0):
            if word & np.uint64(1):
                lists.code[at], lists.n[at], lists.g[at] = code, tally.n[code], tally.sums[code, 0]
                if weighted:
                    lists.h[at] = tally.sums[code, 1]
                tally.n[code] = tally.sums[code, 0] = tally.sums[code, 1] = 0
                at += 1
            word >>= np.uint64(1)
            code += 1
        tally.marks[place] = 0
    lists.length[i] = at - lists.begin[i]


@kernel
def sum_by_category(queue, tasks, codes, partition, tally, lists, n_classes, targets):
    """Sum the rows of nodes by category, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 4)
        First and last place of a node, a column, and the index of the list to write.
    codes : ndarray of uint32, shape (n_columns, n_rows)
    n_classes : int
        Number of classes whose weights are summed; 0 for moments, or amounts.
    targets : ndarray of int64, shape (n_rows, n_targets)
        For several targets, the amounts of rows, or their classes in a common numbering; for one target, shape (0, 0).
    """
    weighted, n_targets = partition.h.shape[0] > 0, targets.shape[1]
    for k in claimed(queue, tasks.shape[0]):
        start, stop, j, to = tasks[k]
        mine = codes[j]
        for i in range(start, stop):
            code, g, h = np.int64(mine[partition.rows[i]]), partition.g[i], partition.h[i] if weighted else ZERO() + 1
            if n_targets > 0:
                for t in range(n_targets):
                    amount = targets[g, t]
                    if n_classes > 0:
                        _note(tally, code * n_classes + amount, 1, ZERO(), h)
                    else:
                        _note(tally, code * n_targets + t, 1, amount, h)
                continue
            if n_classes > 0:
                code, g = code * n_classes + g, ZERO()
            _note(tally, code, 1, g, h)
        _list(tally, lists, to)


@kernel
def settle_lists(queue, tasks, sent, begins, before, tally, lists):
    """Merge the lists of shards, and compute those of siblings, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 3)
        The list to write; that of the parent in ``before``, or -1; and the list of the sibling, which is written if there is a parent.
    sent : Lists
        The lists of all shards.
    begins : ndarray of int64, shape (n_shards, n)
        The index in ``sent`` of the list for each task.
    """
    weighted = lists.h.shape[0] > 0
    for k in claimed(queue, tasks.shape[0]):
        to, parent, other = tasks[k]
        for shard in range(begins.shape[0]):
            which = begins[shard, k]
            for i in range(sent.begin[which], sent.begin[which] + sent.length[which]):
                n = np.int64(sent.n[i])
                _note(tally, np.int64(sent.code[i]), n, sent.g[i], sent.h[i] if weighted else n)
        _list(tally, lists, to)
        if parent >= 0:
            _subtract(before, parent, lists, to, other)


@lean_kernel
def _subtract(before, whole, lists, part, rest):
    """Write the difference of two lists; the second contains no code that is missing in the first."""
    weighted, i, at = lists.h.shape[0] > 0, lists.begin[part], lists.begin[rest]
    last = i + lists.length[part]
    for k in range(before.begin[whole], before.begin[whole] + before.length[whole]):
        n, g = before.n[k], before.g[k]
        h = before.h[k] if weighted else ZERO()
        if i < last and lists.code[i] == before.code[k]:
            n, g = np.uint32(n - lists.n[i]), g - lists.g[i]
            if weighted:
                h -= lists.h[i]
            i += 1
        if n > 0:
            lists.code[at], lists.n[at], lists.g[at] = before.code[k], n, g
            if weighted:
                lists.h[at] = h
            at += 1
    lists.length[rest] = at - lists.begin[rest]


@specialised
def _read(node, lists, i, groups):
    """Copy a list to the buffers for ordering categories, for the kind of the node's statistic; return the number of categories."""


@_read.of(Classes, ClassesOfTargets)
def _(node, lists, i, groups):
    weighted, n_classes, m, before = lists.h.shape[0] > 0, node.sums.shape[0], ZERO(), NONE()
    for k in range(lists.begin[i], lists.begin[i] + lists.length[i]):
        code, one, n = np.int64(lists.code[k]) // n_classes, np.int64(lists.code[k]) % n_classes, np.int64(lists.n[k])
        if code != before:
            before = code
            groups.code[m], groups.n[m] = code, 0
            groups.sums[m] = 0
            m += 1
        h = lists.h[k] if weighted else n
        groups.sums[m - 1, one] += h
        if one < n_first_classes(node):  # every row has a class of the first target
            groups.n[m - 1] += n
            if groups.sums.shape[1] > n_classes:  # for several targets, the weight comes last
                groups.sums[m - 1, n_classes] += h
    return m


@_read.of(Moments, AmountsOfTargets)
def _(node, lists, i, groups):
    weighted, n_targets, first = lists.h.shape[0] > 0, n_sums(node), lists.begin[i]
    m = lists.length[i] // n_targets
    for k in range(m):
        at = first + k * n_targets
        n = np.int64(lists.n[at])
        groups.code[k], groups.n[k] = np.int64(lists.code[at]) // n_targets, n
        for t in range(n_targets):
            groups.sums[k, t] = lists.g[at + t]
        groups.sums[k, n_targets] = lists.h[at] if weighted else n
    return m


@by_reference
class ListedNodes(NamedTuple):
    """Nodes, and the columns of categories in which a searcher searches them.

    Attributes
    ----------
    ids : ndarray of int32, shape (k,)
        Numbers of the columns in the table. In limits on splits, columns are numbered as here.
    n_codes : ndarray of int64, shape (k,)
        The code of missing values.
    values : ndarray of float32, shape (most codes, 1 or 2)
        The numbers of categories, as words; only their count is used for best splits.
    lists : Lists
        The list of node i in column j is at ``i * k + j``.
    n_rows : ndarray of int64, shape (n,)
    node_sums : ndarray of int64, shape (n, n_sums)
    key : uint64
        Key of the tree's stream of random thresholds.
    paths : ndarray of uint64, shape (n,)
        Paths of the nodes; best splits do not depend on these.
    """

    ids: NDArray[np.int32]
    n_codes: NDArray[np.int64]
    values: NDArray[np.float32]
    lists: Lists
    n_rows: NDArray[np.int64]
    node_sums: NDArray[np.int64]
    key: np.uint64
    paths: NDArray[np.uint64]


@kernel
def search_lists(queue, nodes, limits, drawn, scratch, out):
    """Find the best splits of nodes in columns of categories, by several threads.

    Parameters
    ----------
    nodes : ListedNodes
    drawn : ndarray of bool, shape (n, k)
        The columns in which each node is searched.
    out : Candidates
        In the order of lists; other candidates are not changed.
    """
    k = nodes.ids.shape[0]
    for t in claimed(queue, nodes.n_rows.shape[0] * k):
        i, j = t // k, t % k
        if drawn[i, j]:
            column, node_sums = np.int64(nodes.ids[j]), nodes.node_sums[i]
            out.records[t].column, out.records[t].status = column, CONSTANT
            if begin_column(limits.criterion, node_sums, column):
                status, score = _search_list(nodes, i, j, limits, scratch)
                out.records[t].status = status
                if status == SPLIT:
                    n_codes, n_rows = nodes.n_codes[j], nodes.n_rows[i]
                    complete_but_threshold(n_codes, column, n_rows, node_sums, limits, score, True, scratch.found, out, t)


@lean_kernel
def _read_node(nodes, i, j, limits, groups):
    """Read the list of a node in a column: its statistic, numbers of categories as for a search, values, and random bits."""
    node = node_statistic(limits.criterion, nodes.node_sums[i], nodes.n_rows[i])
    counts = merge_rare(j, _read(node, nodes.lists, i * nodes.ids.shape[0] + j, groups), limits, groups)
    return node, counts, nodes.values[: nodes.n_codes[j]], draw(np.uint64(nodes.key) ^ nodes.paths[i], np.int64(nodes.ids[j]))


@lean_kernel
def _search_list(nodes, i, j, limits, scratch):
    """Find the best split of a node in a column; return its status and score."""
    node, counts, values, bits = _read_node(nodes, i, j, limits, scratch.groups)
    status, score, _ = search_groups(node, j, values, counts, limits, bits, -1.0, scratch)
    return status, score


@lean_kernel
def _order_list(nodes, i, j, number, limits, groups):
    """Write the categories that go left in a split of a node to ``groups.side``."""
    node, counts, values, bits = _read_node(nodes, i, j, limits, groups)
    choose_sides(node, values, counts, limits, bits, number, groups)


@kernel
def find_sides(queue, which, numbers, nodes, limits, scratch, offsets, words):
    """Find the categories that go left in the splits of some nodes, by several threads.

    Parameters
    ----------
    which : ndarray of int64, shape (n, 2)
        A node and a column.
    numbers : ndarray of float64, shape (n,)
        The splits, stored as numbers.
    nodes : ListedNodes
    offsets : ndarray of int64, shape (n,)
        Start of the words of each split.
    words : ndarray of uint32
        Written, all 0 before: a bit for each category that goes left.
    """
    for t in claimed(queue, which.shape[0]):
        i, j = which[t]
        begin_column(limits.criterion, nodes.node_sums[i], np.int64(nodes.ids[j]))
        _order_list(nodes, i, j, numbers[t], limits, scratch.groups)
        side = scratch.groups.side
        for code in range(nodes.n_codes[j]):
            words[offsets[t] + (code >> 5)] |= np.uint32(side[code]) << np.uint32(code & 31)
