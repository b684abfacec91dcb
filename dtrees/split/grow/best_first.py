"""Best-first growth: which nodes of a tree with a limited number of leaves are split.

The node with the largest gain is split next, the older one among equals, until there are enough leaves. The split of a node does not depend
on other nodes, so nodes may be searched in any order, as long as none is left out that would be split in the end.

The *priority* of a node is the smallest gain on the way from the root to it, its own included. A node is split after all nodes of larger
priority are. So while a tree is grown that may be split k times, the k largest priorities seen are kept (:class:`LeafBudget`). A node
below the least of them will never be split, and is not divided. What is grown is the wanted tree and some nodes more, the fewer, the
sooner those of large priority are looked at. :func:`prune` takes these away: it repeats the choice of nodes, which is cheap when
all gains are known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, kernel, lean_kernel
from dtrees.split.compile.work_queue import acquire, load, release
from dtrees.split.node.records import Nodes

#: What is in ``control``: the lock, how many priorities there are, and 1 if nobody wants the tree any more.
_LOCK, _COUNT, _GIVEN_UP = np.int64(0), np.int64(8), np.int64(12)


@by_reference
class LeafBudget(NamedTuple):
    """The largest priorities of nodes seen so far, shared by all threads, and those of the nodes that wait on the stack of one thread.

    Attributes
    ----------
    largest : ndarray of float64, shape (most_splits,)
        A heap, the least in front; empty if the number of leaves is not limited.
    control : ndarray of int64
        A lock, how many priorities there are, and whether the tree is given up.
    waiting : ndarray of float64
        The priority of the parent of each node on the stack; infinite for the root of a tree.
    """

    largest: NDArray[np.float64]
    control: NDArray[np.int64]
    waiting: NDArray[np.float64]


def make_budget(most_splits: int, largest: NDArray[np.float64] | None = None) -> LeafBudget:
    """Return the budget of a tree that may be split so often, 0 if that is not limited, and the largest priorities known already."""
    known = np.empty(0) if largest is None else np.sort(largest)
    budget = LeafBudget(np.empty(most_splits), np.zeros(16, np.int64), np.full(1, math.inf))
    budget.largest[: known.shape[0]] = known
    budget.control[_COUNT] = known.shape[0]
    return budget


def give_up_tree(control: NDArray[np.int64]) -> None:
    """Have threads that grow the nodes of a tree, which nobody wants any more, end soon; what they return is of no use."""
    control[_GIVEN_UP] = 1  # nobody else writes this number: it needs no lock


def was_given_up(control: NDArray[np.int64]) -> bool:
    """Tell whether :func:`give_up_tree` was called."""
    return bool(control[_GIVEN_UP])


@lean_kernel
def is_given_up(budget):
    """Tell whether nobody wants the tree any more."""
    return load(budget.control, _GIVEN_UP) != 0


@lean_kernel
def is_hopeless(budget, priority):
    """Tell whether no node whose parent has a priority will be split."""
    control, largest = budget.control, budget.largest
    if largest.shape[0] == 0:
        return False
    acquire(control, _LOCK)
    hopeless = control[_COUNT] == largest.shape[0] and priority < largest[0]
    release(control, _LOCK)
    return hopeless


@lean_kernel
def may_be_chosen(budget, priority):
    """Note the priority of a node; tell whether the node may be split in the end."""
    control, largest = budget.control, budget.largest
    if largest.shape[0] == 0:
        return True
    acquire(control, _LOCK)
    n = control[_COUNT]
    chosen = n < largest.shape[0] or priority >= largest[0]
    if n < largest.shape[0]:
        _rise(largest, n, priority)
        control[_COUNT] = n + 1
    elif chosen:
        _sink(largest, n, priority)
    release(control, _LOCK)
    return chosen


@lean_kernel
def waits_in_vain(budget, n):
    """Tell whether the n-th node of the stack will not be split."""
    return budget.largest.shape[0] > 0 and is_hopeless(budget, budget.waiting[n])


@lean_kernel
def is_to_be_split(budget, n, gain):
    """Tell whether a node, the n-th of the stack until now, may be split in the end; its children will be the n-th and the next."""
    if budget.largest.shape[0] == 0:
        return True
    priority = min(budget.waiting[n], gain)
    budget.waiting[n] = budget.waiting[n + 1] = priority
    return may_be_chosen(budget, priority)


@lean_kernel
def bring_up_best(sum_slots, budget, stack, bottom, n):
    """Put on top of the stack, of ``n`` nodes, that whose parent has the largest priority; nodes below ``bottom`` stay where they are.

    They are a heap, which they are made again by :func:`put_in_order` when two more nodes have come. If the number of leaves is not
    limited, the stack stays as it is.
    """
    waiting = budget.waiting
    if budget.largest.shape[0] == 0 or n - bottom < 2:
        return
    size = n - 1 - bottom
    _swap(sum_slots, budget, stack, bottom, n - 1)
    i = ZERO()
    while True:
        child = 2 * i + 1
        if child + 1 < size and waiting[bottom + child + 1] > waiting[bottom + child]:
            child += 1
        if child >= size or waiting[bottom + i] >= waiting[bottom + child]:
            return
        _swap(sum_slots, budget, stack, bottom + i, bottom + child)
        i = child


@lean_kernel
def put_in_order(sum_slots, budget, stack, bottom, n):
    """Make a heap of the nodes from ``bottom`` on, all but the last two of which are one."""
    if budget.largest.shape[0] == 0:
        return
    for last in range(n - 2, n):
        i = last - bottom
        while i > 0:
            parent = (i - 1) // 2
            if budget.waiting[bottom + parent] >= budget.waiting[bottom + i]:
                break
            _swap(sum_slots, budget, stack, bottom + i, bottom + parent)
            i = parent


@lean_kernel
def _swap(sum_slots, budget, stack, i, j):
    """Have two nodes of the stack change places."""
    for k in range(stack.todo.shape[1]):
        stack.todo[i, k], stack.todo[j, k] = stack.todo[j, k], stack.todo[i, k]
    for k in range(stack.sums.shape[1]):
        stack.sums[i, k], stack.sums[j, k] = stack.sums[j, k], stack.sums[i, k]
    stack.path[i], stack.path[j] = stack.path[j], stack.path[i]
    budget.waiting[i], budget.waiting[j] = budget.waiting[j], budget.waiting[i]
    if sum_slots is not None:
        sum_slots.slot_of[i], sum_slots.slot_of[j] = sum_slots.slot_of[j], sum_slots.slot_of[i]


@lean_kernel
def _rise(heap, n, key):
    """Add a key to a heap of ``n``."""
    while n > 0:
        parent = (n - 1) // 2
        if heap[parent] <= key:
            break
        heap[n] = heap[parent]
        n = parent
    heap[n] = key


@lean_kernel
def _sink(heap, n, key):
    """Put a key in place of the least of a heap of ``n``."""
    i = ZERO()
    while True:
        child = 2 * i + 1
        if child + 1 < n and heap[child + 1] < heap[child]:
            child += 1
        if child >= n or heap[child] >= key:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = key


class MergedLeaves(NamedTuple):
    """Leaves of a pruned tree that were split when it was grown: where their rows lie.

    Attributes
    ----------
    first : ndarray of int64, shape (n + 1,)
        Leaf i was made of the stretches ``first[i]:first[i + 1]``, which follow upon each other.
    start, in_stop, stop : ndarray of int64, shape (first[n],)
        The places of each stretch: the first one, those after its rows in sample, and after all.
    """

    first: NDArray[np.int64]
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]
    stop: NDArray[np.int64]


def prune(nodes: Nodes, max_leaves: int) -> tuple[Nodes, MergedLeaves]:
    """Return the tree that best-first growth up to so many leaves gives, and those of its leaves that were split.

    Parameters
    ----------
    nodes : Nodes
        The root first, in any order; no node lacks its children that would be split in that tree.
    max_leaves : int

    Returns
    -------
    Nodes
        In preorder.
    MergedLeaves
    """
    nodes = in_preorder(nodes)
    leaf = nodes.records["column"] < 0
    if np.count_nonzero(leaf) <= max_leaves:
        nothing = np.empty(0, np.int64)
        return nodes, MergedLeaves(np.zeros(1, np.int64), nothing, nothing, nothing)
    return cut(nodes, _choose(nodes.records, max_leaves - 1))


def cut(nodes: Nodes, is_kept: NDArray[np.bool_]) -> tuple[Nodes, MergedLeaves]:
    """Return the tree that consists of some nodes of a tree in preorder, whose children come in pairs, and its leaves that were split."""
    leaf = nodes.records["column"] < 0
    number = np.where(is_kept, np.cumsum(is_kept) - 1, -1)
    kept = np.flatnonzero(is_kept)
    records = nodes.records[kept]
    for side in ("left", "right"):
        inner = records[side] >= 0
        records[side][inner] = number[records[side][inner]]
    # A node whose children are gone is a leaf now; the nodes up to the next one that is kept were below it.
    merged = (records["column"] >= 0) & (records["left"] < 0)
    for name, value in (("left", -1), ("right", -1), ("column", -1), ("threshold", 0.0), ("gain", 0.0), ("missing_left", False)):
        records[name][merged] = value
    above = np.repeat(merged, np.diff(np.append(kept, leaf.shape[0])))
    stretch = np.flatnonzero(above & leaf)
    first = np.append(np.searchsorted(stretch, kept[merged]), stretch.shape[0])
    places = nodes.records[stretch]
    return Nodes(records, nodes.sums[kept]), MergedLeaves(first, *(places[name].astype(np.int64) for name in ("start", "in_stop", "stop")))


@kernel
def _choose(records, most_splits):
    """Tell which nodes are in the tree after so many splits, the best first."""
    n = records.shape[0]
    chosen = np.zeros(n, np.bool_)
    node_of = np.empty(n, np.int64)  # in the order in which nodes become known
    heap = np.empty(n, np.int64)  # of such places in that order
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
    """Tell whether, of the i-th and the j-th node known, the i-th is split first."""
    mine, other = records[node_of[i]].gain, records[node_of[j]].gain
    return mine > other or (mine == other and i < j)


@lean_kernel
def _rise_place(records, node_of, heap, n, i):
    """Add the i-th node known to a heap of ``n``."""
    while n > 0:
        parent = (n - 1) // 2
        if not _goes_first(records, node_of, i, heap[parent]):
            break
        heap[n] = heap[parent]
        n = parent
    heap[n] = i


@lean_kernel
def _sink_place(records, node_of, heap, n, i):
    """Put the i-th node known in place of the first of a heap of ``n``."""
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
    """Return nodes, the root of which is the first, in preorder; those that are not below it are left out."""
    order, number = _preorder(nodes.records["left"].copy(), nodes.records["right"].copy())
    records = nodes.records[order]
    inner = records["column"] >= 0
    for side in ("left", "right"):
        records[side][inner] = number[records[side][inner]]
    return Nodes(records, nodes.sums[order])


@kernel
def _preorder(left, right):
    """Return the nodes reachable from node 0 in preorder, and the place of each node in that order."""
    order, number = np.empty(left.shape[0], np.int64), np.full(left.shape[0], -1, np.int32)
    stack = np.empty(left.shape[0], np.int64)
    stack[0] = 0
    n_stack = 1
    n = 0
    while n_stack > 0:
        n_stack -= 1
        node = stack[n_stack]
        order[n], number[node] = node, n
        n += 1
        if left[node] >= 0:
            stack[n_stack] = right[node]
            stack[n_stack + 1] = left[node]
            n_stack += 2
    return order[:n], number


@kernel
def merge_rows(partition, first, start, in_stop, stop):
    """Put the rows of merged leaves in the order they would have, had the leaves not been split: those in sample first, each ascending.

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
