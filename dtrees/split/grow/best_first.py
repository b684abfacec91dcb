"""Best-first growth: which nodes of a tree with a limited number of leaves are split.

The node with the largest gain is split next, the older one among equals, until there are enough leaves. The split of a node does not
depend on other nodes, so nodes may be searched in any order, as long as no node is omitted that would be split in the end.

While a tree with up to k splits is grown, the first k known splits are stored in this order (:class:`LeafBudget`). A split is inserted
after that of its parent, and before the first later one with a smaller gain. Splits found later do not change this order; they are only
inserted. So a node beyond the k-th will never be split, nor will any below it, and none of these is divided. The grown tree is the
wanted one plus some nodes; these are fewer the earlier nodes are searched whose parents are split first. :func:`prune` removes them: it
repeats the choice of nodes, which is cheap when all gains are known.

Inserting a split takes longer the more splits there are. Above a limit only the least gain on the path from the root to a node is
stored: a node is split after all those with a larger one. That excludes fewer nodes: if gains increase towards the leaves, as in late
trees of boosting, the least gain may be the root's for all nodes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, kernel, lean_kernel, separate_kernel
from dtrees.split.compile.work_queue import acquire, load, release
from dtrees.split.node.records import Nodes
from dtrees.split.policy import MOST_RANKED
from dtrees.split.zones.sum_slots import has_slots

#: A split: its node and its gain, which child (0: left) of which node (-1: of none) that is, and its rank and that of its parent. The
#: split with the lower rank goes first; with equal ranks, either may.
RANKED = np.dtype(
    [
        ("node", np.int64),
        ("gain", np.float64),
        ("parent", np.int64),
        ("side", np.int64),
        ("rank", np.float64),
        ("rank_of_parent", np.float64),
    ]
)
#: The origin of a node: which child of which node it is (-1: of none), and the rank of its parent's split.
ORIGIN = np.dtype([("parent", np.int64), ("side", np.int64), ("rank", np.float64)])
#: Relative position of a new rank between its neighbours: most are inserted one after the other, before those of small gains.
_RANK_SHARE = 0.125
#: Indices of ``control``: the lock, the number of splits, the next number of a node, and 1 if the tree has been abandoned.
_LOCK, _COUNT, _NEXT, _GIVEN_UP = np.int64(0), np.int64(8), np.int64(9), np.int64(12)
#: First number of nodes that kernels split, beyond the numbers of others.
_FIRST_NUMBER = 2**32


@by_reference
class LeafBudget(NamedTuple):
    """The first known splits of a tree, shared by all threads, and the origins of nodes on the stack of one thread.

    Attributes
    ----------
    first : ndarray of RANKED, shape (most_splits,)
        In order; if there are more than MOST_RANKED, a heap of ranks, the highest in front. Empty if the number of leaves is not
        limited.
    control : ndarray of int64
        A lock, the number of splits, the next number of a node, and whether the tree has been abandoned.
    waiting : ndarray of ORIGIN
        Origin of each node on the stack.
    """

    first: NDArray[Any]
    control: NDArray[np.int64]
    waiting: NDArray[Any]


def origins(n: int) -> NDArray[Any]:
    """Return the origins of ``n`` roots of trees."""
    roots = np.zeros(n, ORIGIN)
    roots["parent"], roots["rank"] = -1, -math.inf
    return roots


def make_budget(most_splits: int, known: NDArray[Any] | None = None) -> LeafBudget:
    """Return the budget of a tree with up to ``most_splits`` splits, 0 for any number, and its first splits if some are known."""
    budget = LeafBudget(np.empty(most_splits, RANKED), np.zeros(16, np.int64), origins(1))
    budget.control[_NEXT] = _FIRST_NUMBER
    if known is not None:
        budget.first[: known.shape[0]] = known
        budget.control[_COUNT] = known.shape[0]
    return budget


def give_up_tree(control: NDArray[np.int64]) -> None:
    """Stop the threads that grow the nodes of an abandoned tree; their results are invalid."""
    control[_GIVEN_UP] = 1  # only this function writes this element: no lock is needed


def was_given_up(control: NDArray[np.int64]) -> bool:
    """Return whether :func:`give_up_tree` was called."""
    return bool(control[_GIVEN_UP])


@lean_kernel
def is_given_up(budget):
    """Return whether the tree has been abandoned."""
    return load(budget.control, _GIVEN_UP) != 0


@inlined_kernel
def _are_many(first):
    """Return whether there are too many splits to be stored in order."""
    return first.shape[0] > MOST_RANKED


@lean_kernel
def _place_of(first, n, node, rank):
    """Return the place of a node's split among the first ``n``, in order, -1 if it is not among them."""
    place, stop = ZERO(), n
    while place < stop:
        middle = (place + stop) // 2
        if first[middle].rank < rank:
            place = middle + 1
        else:
            stop = middle
    while place < n and first[place].rank == rank:
        if first[place].node == node:
            return place
        place += 1
    return NONE()


@lean_kernel
def _is_first(first, n, node, rank, stop):
    """Return whether a split is, or may be, among the first ``stop`` of ``n``; above the limit, only the last of these is compared."""
    if n < first.shape[0]:
        return True
    return rank <= first[0].rank if _are_many(first) else 0 <= _place_of(first, n, node, rank) < stop


@lean_kernel
def _goes_before(first, n, gain, origin, other):
    """Return whether a split goes before a known one: its gain is larger, or equal and its node is older."""
    if gain != other.gain:
        return gain > other.gain
    if origin.parent == other.parent:
        return origin.side < other.side
    return _place_of(first, n, origin.parent, origin.rank) < _place_of(first, n, other.parent, other.rank_of_parent)


@lean_kernel
def _rank(first, n, node, origin, gain):
    """Insert a split among the first ``n``, if it is one of them; return their new number, whether it is, and its rank."""
    if _are_many(first):
        rank = max(origin.rank, -gain)
        n, is_ranked = _put_in_heap(first, n, rank)
        return n, is_ranked, rank
    place, most = ZERO(), first.shape[0]
    if origin.parent >= 0:
        place = _place_of(first, n, origin.parent, origin.rank) + 1
        if place == 0:
            return n, False, 0.0
    while place < n and not _goes_before(first, n, gain, origin, first[place]):
        place += 1
    if place == most:
        return n, False, 0.0
    rank = first[place - 1].rank + 1.0 if place > 0 else 0.0
    if place < n:
        rank = first[place - 1].rank + _RANK_SHARE * (first[place].rank - first[place - 1].rank)
    last = min(n, most - 1)
    for i in range(last, place, -1):
        first[i] = first[i - 1]
    one = first[place]
    one.node, one.gain, one.parent, one.side, one.rank, one.rank_of_parent = node, gain, origin.parent, origin.side, rank, origin.rank
    return last + 1, True, rank


@lean_kernel
def _put_in_heap(first, n, rank):
    """Insert a rank into a heap of ``n``, unless it is full of lower ones; return the new size, and whether it was inserted."""
    if n < first.shape[0]:
        i = n
        while i > 0 and first[(i - 1) // 2].rank < rank:
            first[i].rank = first[(i - 1) // 2].rank
            i = (i - 1) // 2
        first[i].rank = rank
        return n + 1, True
    if rank > first[0].rank:
        return n, False
    i = ZERO()
    while True:
        child = 2 * i + 1
        if child + 1 < n and first[child + 1].rank > first[child].rank:
            child += 1
        if child >= n or first[child].rank <= rank:
            break
        first[i].rank = first[child].rank
        i = child
    first[i].rank = rank
    return n, True


@kernel
def rank_splits(first, n, nodes, origins_of, gains, ranks):
    """Insert the splits of nodes among the first ``n`` of a tree; return the new number of these.

    Parameters
    ----------
    first : ndarray of RANKED, shape (most_splits,)
        Updated.
    n : int
    nodes : ndarray of int64
        Numbers of nodes, none of which is a descendant of another.
    origins_of : ndarray of ORIGIN
    gains : ndarray of float64
    ranks : ndarray of float64
        Written: the ranks of the splits.
    """
    for i in range(nodes.shape[0]):
        n, _, ranks[i] = _rank(first, n, nodes[i], origins_of[i], gains[i])
    return n


@kernel
def are_first(first, n, nodes, ranks):
    """Return which splits of nodes are, or may be, among the first ``n``."""
    found = np.empty(nodes.shape[0], np.bool_)
    for i in range(nodes.shape[0]):
        found[i] = _is_first(first, n, nodes[i], ranks[i], n)
    return found


@inlined_kernel
def is_limited(budget):
    """Return whether the number of leaves is limited."""
    return budget.first.shape[0] > 0


@lean_kernel
def is_hopeless(budget, origin):
    """Return whether a node will not be split, because its parent will not, or is the last one."""
    return is_limited(budget) and origin.parent >= 0 and _is_too_late(budget, origin.parent, origin.rank, ZERO() + 1)


@separate_kernel(returns=types.boolean)
def _is_too_late(budget, node, rank, n_after):
    """Return whether a split will not be made, or is one of the last ``n_after`` ones."""
    control, first = budget.control, budget.first
    acquire(control, _LOCK)
    n = control[_COUNT]
    hopeless = not _is_first(first, n, node, rank, n - n_after)
    release(control, _LOCK)
    return hopeless


@lean_kernel
def is_still_first(budget, child):
    """Return whether the split of a child's parent may still be made in the end."""
    return not is_limited(budget) or not _is_too_late(budget, child.parent, child.rank, ZERO())


@lean_kernel
def number_split(budget, origin, gain):
    """Store the split of a node; return the node's number if it may be split in the end, otherwise -1, and the rank of the split."""
    if not is_limited(budget):
        return ZERO(), 0.0
    return _number_split(budget, origin, gain)


@separate_kernel(returns=types.Tuple((types.int64, types.float64)))
def _number_split(budget, origin, gain):
    control, first = budget.control, budget.first
    acquire(control, _LOCK)
    node = control[_NEXT]
    n, is_ranked, rank = _rank(first, control[_COUNT], node, origin, gain)
    control[_COUNT], control[_NEXT] = n, node + 1
    release(control, _LOCK)
    return (node if is_ranked else NONE()), rank


@inlined_kernel
def come_from(origin, node, side, rank):
    """Write that a node is a child of another one whose split has the given rank."""
    origin.parent, origin.side, origin.rank = node, side, rank


@lean_kernel
def waits_in_vain(budget, n):
    """Return whether the n-th node on the stack will not be split."""
    return is_limited(budget) and is_hopeless(budget, budget.waiting[n])


@lean_kernel
def is_to_be_split(budget, n, gain):
    """Return whether the n-th node on the stack may be split in the end; its children become the next and the n-th."""
    if not is_limited(budget):
        return True
    node, rank = number_split(budget, budget.waiting[n], gain)
    if node < 0:
        return False
    come_from(budget.waiting[n], node, ZERO() + 1, rank)
    come_from(budget.waiting[n + 1], node, ZERO(), rank)
    return True


@lean_kernel
def bring_up_best(sum_slots, budget, stack, bottom, n):
    """Move the node whose parent is split first to the top of the stack of ``n`` nodes; nodes below ``bottom`` are not moved.

    The nodes are a heap, which :func:`put_in_order` restores when two more nodes have been added. If the number of leaves is not
    limited, the stack is not changed.
    """
    if is_limited(budget) and n - bottom > 1:
        _bring_up_best(sum_slots, budget, stack, bottom, n)


@separate_kernel(returns=types.none)
def _bring_up_best(sum_slots, budget, stack, bottom, n):
    waiting = budget.waiting
    size = n - 1 - bottom
    _swap(sum_slots, budget, stack, bottom, n - 1)
    i = ZERO()
    while True:
        child = 2 * i + 1
        if child + 1 < size and waiting[bottom + child + 1].rank < waiting[bottom + child].rank:
            child += 1
        if child >= size or waiting[bottom + i].rank <= waiting[bottom + child].rank:
            return
        _swap(sum_slots, budget, stack, bottom + i, bottom + child)
        i = child


@lean_kernel
def put_in_order(sum_slots, budget, stack, bottom, n):
    """Restore the heap of the nodes from ``bottom`` on after two nodes were added."""
    if is_limited(budget):
        _put_in_order(sum_slots, budget, stack, bottom, n)


@separate_kernel(returns=types.none)
def _put_in_order(sum_slots, budget, stack, bottom, n):
    for last in range(n - 2, n):
        i = last - bottom
        while i > 0:
            parent = (i - 1) // 2
            if budget.waiting[bottom + parent].rank <= budget.waiting[bottom + i].rank:
                break
            _swap(sum_slots, budget, stack, bottom + i, bottom + parent)
            i = parent


@lean_kernel
def _swap(sum_slots, budget, stack, i, j):
    """Exchange two nodes of the stack."""
    for k in range(stack.todo.shape[1]):
        stack.todo[i, k], stack.todo[j, k] = stack.todo[j, k], stack.todo[i, k]
    for k in range(stack.sums.shape[1]):
        stack.sums[i, k], stack.sums[j, k] = stack.sums[j, k], stack.sums[i, k]
    stack.path[i], stack.path[j] = stack.path[j], stack.path[i]
    one, other = budget.waiting[i], budget.waiting[j]
    one.parent, other.parent = other.parent, one.parent
    one.side, other.side = other.side, one.side
    one.rank, other.rank = other.rank, one.rank
    if sum_slots is not None and has_slots(sum_slots):
        sum_slots.slot_of[i], sum_slots.slot_of[j] = sum_slots.slot_of[j], sum_slots.slot_of[i]


class MergedLeaves(NamedTuple):
    """Leaves of a pruned tree that were split while it was grown, and the places of their rows.

    Attributes
    ----------
    first : ndarray of int64, shape (n + 1,)
        Leaf i consists of the ranges ``first[i]:first[i + 1]``, which are adjacent.
    start, in_stop, stop : ndarray of int64, shape (first[n],)
        The places of each range: the first one, the end of its in-sample rows, and the end of all.
    """

    first: NDArray[np.int64]
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]
    stop: NDArray[np.int64]


def prune(nodes: Nodes, max_leaves: int) -> tuple[Nodes, MergedLeaves]:
    """Return the tree of best-first growth up to ``max_leaves`` leaves, and those of its leaves that were split.

    Parameters
    ----------
    nodes : Nodes
        The root first, then in any order; the children of every node that is split in the result are included.
    max_leaves : int

    Returns
    -------
    Nodes
        In preorder.
    MergedLeaves
    """
    return cut(nodes, _choose(nodes.records, max_leaves - 1))


def cut(nodes: Nodes, is_kept: NDArray[np.bool_]) -> tuple[Nodes, MergedLeaves]:
    """Return the tree that consists of the kept nodes of a tree, and its leaves that were split; children come in pairs."""
    records = np.empty(np.count_nonzero(is_kept), nodes.records.dtype)
    order, first, below = _cut(nodes.records, is_kept, records)
    places = (nodes.records[name][below].astype(np.int64) for name in ("start", "in_stop", "stop"))
    return Nodes(records[: order.shape[0]], nodes.sums[order]), MergedLeaves(first, *places)


@kernel
def _cut(records, is_kept, cut):
    """Write the kept nodes in preorder; return their old numbers, and the old leaves below each node that has become a leaf.

    The i-th of these has the leaves ``below[first[i] : first[i + 1]]``.
    """
    n = records.shape[0]
    order, below, first, todo = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty((n, 2), np.int64)
    todo[0] = 0, -1
    n_todo = 1
    n_kept = n_below = n_merged = ZERO()
    while n_todo > 0:
        n_todo -= 1
        node, right_of = todo[n_todo]
        left, right, number = np.int64(records[node].left), np.int64(records[node].right), NONE()
        if is_kept[node]:
            number = n_kept
            order[number], cut[number] = node, records[node]
            if right_of >= 0:
                cut[right_of].right = number
            n_kept += 1
            if left >= 0 and is_kept[left]:
                cut[number].left = number + 1
            elif left >= 0:
                one = cut[number]
                one.left, one.right, one.column, one.threshold, one.gain, one.missing_left = -1, -1, -1, 0.0, 0.0, False
                first[n_merged] = n_below
                n_merged += 1
        elif left < 0:
            below[n_below] = node
            n_below += 1
        if left >= 0:
            todo[n_todo], todo[n_todo + 1] = (right, number), (left, NONE())
            n_todo += 2
    first[n_merged] = n_below
    return order[:n_kept], first[: n_merged + 1], below[:n_below]


@kernel
def _choose(records, most_splits):
    """Return which nodes are in the tree after ``most_splits`` splits, the best first."""
    n = records.shape[0]
    chosen = np.zeros(n, np.bool_)
    node_of = np.empty(n, np.int64)  # in the order in which nodes become known
    heap = np.empty(n, np.int64)  # indices into that order
    node_of[0] = 0
    n_known = 1
    n_waiting = ZERO()
    if records[0].column >= 0:
        heap[0] = 0
        n_waiting += 1
    chosen[0] = True
    for _ in range(most_splits):
        if n_waiting == 0:
            break
        node = node_of[heap[0]]
        n_waiting -= 1
        if n_waiting > 0:
            _sink_place(records, node_of, heap, n_waiting, heap[n_waiting])
        for child in (records[node].left, records[node].right):
            chosen[child] = True
            node_of[n_known] = child
            if records[child].column >= 0:
                _rise_place(records, node_of, heap, n_waiting, n_known)
                n_waiting += 1
            n_known += 1
    return chosen


@lean_kernel
def _goes_first(records, node_of, i, j):
    """Return whether the i-th known node is split before the j-th."""
    mine, other = records[node_of[i]].gain, records[node_of[j]].gain
    return mine > other or (mine == other and i < j)


@lean_kernel
def _rise_place(records, node_of, heap, n, i):
    """Add the i-th known node to a heap of ``n``."""
    while n > 0:
        parent = (n - 1) // 2
        if not _goes_first(records, node_of, i, heap[parent]):
            break
        heap[n] = heap[parent]
        n = parent
    heap[n] = i


@lean_kernel
def _sink_place(records, node_of, heap, n, i):
    """Replace the first of a heap of ``n`` by the i-th known node."""
    k = ZERO()
    while True:
        child = 2 * k + 1
        if child + 1 < n and _goes_first(records, node_of, heap[child + 1], heap[child]):
            child += 1
        if child >= n or not _goes_first(records, node_of, heap[child], i):
            break
        heap[k] = heap[child]
        k = child
    heap[k] = i


def in_preorder(nodes: Nodes) -> Nodes:
    """Return nodes, the first of which is the root, in preorder; nodes that are not its descendants are left out."""
    return cut(nodes, np.ones(nodes.records.shape[0], np.bool_))[0]


@kernel
def merge_rows(partition, first, start, in_stop, stop):
    """Put the rows of merged leaves into the order of leaves that were never split: those in sample first, each ascending.

    Parameters
    ----------
    partition : RowPartition
    first, start, in_stop, stop : ndarray of int64
        See :class:`MergedLeaves`.
    """
    rows, a, b = partition.rows, partition.g, partition.h
    for leaf in range(first.shape[0] - 1):
        begin, end = start[first[leaf]], stop[first[leaf + 1] - 1]
        n_inside = ZERO()
        for k in range(first[leaf], first[leaf + 1]):
            n_inside += in_stop[k] - start[k]
        old_a, old_b = a[begin:end].copy(), b[begin : end if b.shape[0] > 0 else begin].copy()
        keys = np.empty(end - begin, np.uint64)  # row << 32 | place
        inside, outside = ZERO(), n_inside
        for k in range(first[leaf], first[leaf + 1]):
            for place in range(start[k], stop[k]):
                key = np.uint64(rows[place]) << np.uint64(32) | np.uint64(place - begin)
                if place < in_stop[k]:
                    keys[inside] = key
                    inside += 1
                else:
                    keys[outside] = key
                    outside += 1
        keys[:n_inside].sort()
        keys[n_inside:].sort()
        for i in range(end - begin):
            rows[begin + i] = keys[i] >> np.uint64(32)
        for i in range(n_inside):
            place = keys[i] & np.uint64(0xFFFFFFFF)
            a[begin + i] = old_a[place]
            if b.shape[0] > 0:
                b[begin + i] = old_b[place]
