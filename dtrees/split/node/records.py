"""The nodes of a growing tree: their records, the inputs of a search, and its results.

A search finds the best split of a node in one column, as codes. The split becomes a *candidate*, with its threshold, gain and left sums.
The splits of a node are ordered by larger score, then lower column; within a column the sweep ensures the rest of the order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inlined_kernel, inner_kernel, kernel, lean_kernel
from dtrees.split.criteria.constraints import note_words
from dtrees.split.criteria.parts import gain, is_worthwhile, node_statistic, spread
from dtrees.split.criteria.statistics import write_sums
from dtrees.split.node.partition import Cut, RowPartition
from dtrees.split.numbers.hashing import draw
from dtrees.split.table.columns import highest_code_below, value_at

#: A node without its sums. Leaves have ``left``, ``right`` and ``column`` -1; ``start``, ``in_stop`` and ``stop`` are places. There are
#: up to two nodes for each row, so the record is packed without alignment.
NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("gain", np.float64),
        ("left", np.int32),
        ("right", np.int32),
        ("column", np.int32),
        ("start", np.uint32),
        ("in_stop", np.uint32),
        ("stop", np.uint32),
        ("missing_left", np.bool_),
    ]
)


class Nodes(NamedTuple):
    """Nodes of a growing tree.

    Attributes
    ----------
    records : ndarray of NODE, shape (n,)
    sums : ndarray of int64, shape (n, n_sums)
        Or (n, 0), if no value of the finished tree is computed from them.
    """

    records: NDArray[Any]
    sums: NDArray[np.int64]


def empty_nodes(n: int, n_sums: int) -> Nodes:
    """Return uninitialized buffers for ``n`` nodes."""
    return Nodes(np.empty(n, NODE), np.empty((n, n_sums), np.int64))


@inlined_kernel
def make_leaf(record, start, in_stop, stop):
    """Write the record of a leaf."""
    record.start, record.in_stop, record.stop = start, in_stop, stop
    record.column, record.left, record.right = -1, -1, -1
    record.threshold, record.gain, record.missing_left = 0.0, 0.0, False


@inlined_kernel
def note_split(record, split):
    """Turn a leaf into an inner node."""
    record.column = split.column
    record.threshold = split.threshold
    record.missing_left = split.missing_left
    record.gain = split.gain


@inlined_kernel
def link(records, parent, side, node):
    """Write the number of its left (side 0) or right child to a parent, if there is one (-1: none)."""
    if parent >= 0:
        if side == 0:
            records[parent].left = node
        else:
            records[parent].right = node


@kernel
def leaf_means(criterion, rows, b, target, starts, in_stops, means, spreads):
    """Compute the weighted mean of the target in each leaf, and its impurity about the mean times its weight.

    In float64, over each leaf's rows in ascending order: leaves have the full precision of the target whatever the range of the table.
    If all targets of a leaf are equal, the mean is exactly that target.
    """
    for i in range(starts.shape[0]):
        first = target[rows[starts[i]]]
        total = 0.0
        weight = 0.0
        for place in range(starts[i], in_stops[i]):
            w = float(b[place]) if b.shape[0] > 0 else 1.0
            total += w * (target[rows[place]] - first)
            weight += w
        mean = first + total / weight if weight > 0.0 else first
        total = 0.0
        for place in range(starts[i], in_stops[i]):
            w = float(b[place]) if b.shape[0] > 0 else 1.0
            total += w * spread(criterion, target[rows[place]], mean)
        means[i] = mean
        spreads[i] = max(total, 0.0)


@kernel
def add_values(records, values, total, rows):
    """Add to ``total`` the value of each row's leaf; ``rows`` are the rows by place, ``values`` of shape (n, 1) those of the nodes."""
    for i in range(records.shape[0]):
        record = records[i]
        if record.column < 0:
            for place in range(record.start, record.stop):
                total[rows[place]] += values[i, 0]


#: Placeholder for random bits that are not needed.
NO_BITS = np.uint64(0)


class NodeColumn(NamedTuple):
    """A node and a column, in which its best split is searched.

    Attributes
    ----------
    codes : ndarray of uint32, shape (n_rows,)
    values : ndarray of float32, shape (n_distinct, n_words)
        The column's distinct values; see :func:`~dtrees.split.table.columns.value_at`.
    partition : RowPartition
    start, in_stop : int
        The node's in-sample rows.
    sums : ndarray of int64, shape (n_sums,)
        The sums of the node.
    bits : uint64
        Random bits for this node and column (random thresholds only).
    """

    codes: NDArray[np.uint32]
    values: NDArray[np.float32]
    partition: RowPartition
    start: int
    in_stop: int
    sums: NDArray[np.int64]
    bits: np.uint64


class NodesOfTree(NamedTuple):
    """Nodes of a tree, to be searched in some columns.

    Attributes
    ----------
    partition : RowPartition
    start, in_stop : ndarray of int64, shape (n,)
        Their in-sample rows.
    sums : ndarray of int64, shape (n, n_sums)
    path : ndarray of uint64, shape (n,)
    key : uint64
        Key of the tree's stream of random thresholds.
    """

    partition: RowPartition
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]
    sums: NDArray[np.int64]
    path: NDArray[np.uint64]
    key: np.uint64


@inner_kernel
def pair_of(columns, column_ids, j, nodes, i):
    """Return the i-th of the nodes of a tree and the j-th of some columns, which have these numbers in the table, for a search."""
    values = columns.words[columns.offsets[j] : columns.offsets[j + 1]]
    bits = draw(np.uint64(nodes.key) ^ nodes.path[i], np.int64(column_ids[j]))
    return NodeColumn(columns.codes[j], values, nodes.partition, nodes.start[i], nodes.in_stop[i], nodes.sums[i], bits)


#: The column has one value in this node (and no value is missing, or all are).
CONSTANT = 0
#: The column varies, but no split is allowed.
NO_SPLIT = 1
#: There is a split.
SPLIT = 2

#: Special values of the code after a cut: no row of the node has a higher value; it is not known yet; the threshold is known instead.
NONE_HIGHER, UNKNOWN, HAS_THRESHOLD = np.int64(-1), np.int64(-2), np.int64(-3)

#: Rows with codes up to ``code`` go left; ``next_code`` is the next higher code in the node. ``by_chance`` is the amount that was
#: subtracted from the score of a set of categories.
FOUND = np.dtype(
    [
        ("code", np.int64),
        ("next_code", np.int64),
        ("n_left", np.int64),
        ("threshold", np.float64),
        ("by_chance", np.float64),
        ("missing_left", np.bool_),
    ],
    align=True,
)


@by_reference
class Found(NamedTuple):
    """The best split of a node in a column.

    Attributes
    ----------
    record : ndarray of FOUND, shape (1,)
    left : ndarray of int64, shape (n_sums,)
        Sums of the rows going left.
    """

    record: NDArray[Any]
    left: NDArray[np.int64]


def no_split_found(n_sums: int) -> Found:
    """Return buffers for a split."""
    return Found(np.zeros(1, FOUND), np.zeros(n_sums, np.int64))


@inlined_kernel
def note_found(found, code, next_code, missing_left, left):
    """Store a split; ``left`` is the statistic of the rows going left."""
    record = found.record[0]
    record.code = code
    record.next_code = next_code
    record.missing_left = missing_left
    record.n_left = left.n
    write_sums(left, found.left)


@lean_kernel
def copy_found(one, other):
    """Overwrite one split with another."""
    other.record[0] = one.record[0]
    for k in range(one.left.shape[0]):
        other.left[k] = one.left[k]


#: A candidate without its sums.
CANDIDATE = np.dtype(
    [
        ("status", np.int8),
        ("missing_left", np.bool_),
        ("column", np.int32),
        ("score", np.float64),
        ("gain", np.float64),
        ("threshold", np.float64),
        ("cut", np.int64),
        ("n_left", np.int64),
    ],
    align=True,
)


@by_reference
class Candidates(NamedTuple):
    """Best splits, one for each pair of a node and a column.

    Attributes
    ----------
    records : ndarray of CANDIDATE, shape (n,)
        ``status`` is CONSTANT, NO_SPLIT or SPLIT; the fields after ``column`` are defined for SPLIT only. ``score`` orders the splits of
        one node (:func:`~dtrees.split.criteria.parts.score`), ``gain`` those of a tree, both in fixed-point units. Rows with values up
        to ``threshold`` go left; ``cut`` is the highest code of such a value in the node, ``n_left`` the number of in-sample rows going
        left.
    left : ndarray of int64, shape (n, n_sums)
        Sums of the rows going left, followed by the node's words of constraints (:mod:`dtrees.split.criteria.constraints`).
    """

    records: NDArray[Any]
    left: NDArray[np.int64]

    def take(self, which: NDArray[Any] | slice) -> Candidates:
        """Return some of the candidates."""
        return Candidates(self.records[which], self.left[which])


def empty_candidates(n: int, n_sums: int) -> Candidates:
    """Return buffers for ``n`` candidates with status CONSTANT and column -1."""
    records = np.zeros(n, CANDIDATE)
    records["column"] = -1
    return Candidates(records, np.zeros((n, n_sums), np.int64))


@kernel
def midpoint(low, high):
    """Return a threshold t with low <= t < high, the midpoint if floating point allows."""
    t = low / 2.0 + high / 2.0
    return t if low <= t < high else low


@kernel
def bar_for(column, best_column, best_score):
    """Return the bar: a split of ``column`` replaces the best split so far if its score exceeds the bar."""
    if best_score >= 0.0 and column < best_column:
        return np.nextafter(best_score, -np.inf)  # the lower column wins a tie
    return best_score


@inlined_kernel
def better(best, found, column):
    """Return the better of the best result of a node's search in some columns and the result in one more, which exceeds the bar.

    A result is a status, a score, and whether values are missing; the best of some columns also has its column, -1 if there is no split.
    """
    status, score, has_missing, winner = best
    if found[0] == SPLIT:
        return SPLIT, found[1], found[2], np.int64(column)
    return max(status, found[0]), score, has_missing, winner


@inlined_kernel
def threshold_between(values, code, next_code):
    """Return the threshold of a split between two codes; ``next_code`` may be NONE_HIGHER."""
    return np.inf if next_code == NONE_HIGHER else midpoint(value_at(values, code), value_at(values, next_code))


@inlined_kernel
def complete(values, column, n_all, sums, limits, score, has_missing, found, out, t):
    """Write the split found in a node of ``n_all`` rows as candidate ``t`` of ``out``."""
    split = found.record[0]
    complete_but_threshold(values.shape[0], column, n_all, sums, limits, score, has_missing, found, out, t)
    if split.next_code != HAS_THRESHOLD:
        out.records[t].threshold = threshold_between(values, split.code, split.next_code)


@inlined_kernel
def complete_but_threshold(n_distinct, column, n_all, sums, limits, score, has_missing, found, out, t):
    """Write the split found as a candidate, with its threshold if it was drawn; other thresholds are left to the caller.

    The column has ``n_distinct`` values.
    """
    split = found.record[0]
    record = out.records[t]
    record.column = column
    record.score = score
    record.cut = n_distinct - 1 if split.next_code == NONE_HIGHER else split.code
    record.threshold = split.threshold
    record.n_left = split.n_left
    # If no value was missing, missing values in other rows go with the majority.
    record.missing_left = split.missing_left if has_missing else 2 * split.n_left > n_all
    for k in range(found.left.shape[0]):
        out.left[t, k] = found.left[k]
    note_words(limits.criterion, sums, out.left[t])
    node = node_statistic(limits.criterion, sums, n_all)
    record.gain = gain(limits.criterion, score, node)
    enough = record.gain >= limits.min_gain and is_worthwhile(limits.criterion, record.gain)
    record.status = SPLIT if enough else NO_SPLIT
    if limits.chance > 0.0 and split.next_code == HAS_THRESHOLD:
        record.gain = gain(limits.criterion, score + split.by_chance, node)


@kernel
def best_by_node(candidates, nodes, best):
    """Reduce candidates to the best of each node: candidate i belongs to node ``nodes[i]``, an index into ``best``.

    ``best`` starts with :func:`empty_candidates` or an earlier result.
    """
    for i in range(nodes.shape[0]):
        mine, theirs = best.records[nodes[i]], candidates.records[i]
        if mine.column < 0:
            better = True
        elif mine.status == SPLIT and theirs.status == SPLIT:
            better = theirs.column < mine.column if theirs.score == mine.score else theirs.score > mine.score
        else:
            better = theirs.status > mine.status
        if better:
            best.records[nodes[i]] = theirs
            best.left[nodes[i]] = candidates.left[i]


@inlined_kernel
def cut_of(columns, split, of_any_row):
    """Return the rule of a split on a number; if it is ``of_any_row``, values may lie between those of in-sample rows."""
    values = columns.words[columns.offsets[split.column] : columns.offsets[split.column + 1]]
    missing, cut = np.int64(values.shape[0]), split.cut
    if of_any_row:
        cut = highest_code_below(values, cut, missing - 1, split.threshold)
    return Cut(cut, missing, split.missing_left)
