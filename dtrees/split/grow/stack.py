"""The stack of nodes of a subtree that wait while it is grown depth first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel
from dtrees.split.node.records import link, make_leaf
from dtrees.split.numbers.hashing import LEFT, child_path
from dtrees.split.table.mmap_arrays import mapped


@by_reference
class Stack(NamedTuple):
    """The waiting nodes.

    Attributes
    ----------
    todo : ndarray of int64, shape (n, 7)
        Start, in_stop, stop, depth, parent, side (0 is left) and, in a block, the first out-of-sample row.
    path : ndarray of uint64, shape (n,)
        Paths of the nodes.
    sums : ndarray of int64, shape (n, n_sums)
    """

    todo: NDArray[np.int64]
    path: NDArray[np.uint64]
    sums: NDArray[np.int64]


def make_stack(n_levels: int, n_rows: int, n_sums: int) -> Stack:
    """Return buffers for a subtree of ``n_levels`` levels and ``n_rows`` rows: at each level, at most one sibling waits."""
    capacity = min(n_levels, n_rows) + 2
    # Few trees reach the largest depth, so most of this is not used.
    todo, sums = (mapped(capacity * width, np.int64, large_pages=False).reshape(capacity, width) for width in (7, n_sums))
    return Stack(todo, mapped(capacity, np.uint64, large_pages=False), sums)


@inlined_kernel
def put(stack, n, start, in_stop, stop, depth, parent, side, path):
    """Write the n-th node."""
    todo = stack.todo[n]
    todo[0], todo[1], todo[2], todo[3], todo[4], todo[5] = start, in_stop, stop, depth, parent, side
    stack.path[n] = path


@inlined_kernel
def put_root(stack, start, in_stop, stop, depth, path, sums):
    """Write the only node: the root of a subtree."""
    put(stack, ZERO(), start, in_stop, stop, depth, NONE(), ZERO(), path)
    for k in range(sums.shape[0]):
        stack.sums[0, k] = sums[k]


@inlined_kernel
def put_children(stack, n, node, right_side, middle, left_in_stop, left_sums):
    """Replace the n-th node, now number ``node``, by its two children, the left one on top."""
    start, in_stop, stop, depth, _, _, _ = stack.todo[n]
    path, sums = stack.path[n], stack.sums[n]
    right_in_stop = middle + (in_stop - start) - (left_in_stop - start)
    put(stack, n, middle, right_in_stop, stop, depth + 1, node, ZERO() + 1, child_path(path, right_side))
    put(stack, n + 1, start, left_in_stop, middle, depth + 1, node, ZERO(), child_path(path, LEFT))
    for k in range(sums.shape[0]):
        stack.sums[n, k] = sums[k] - left_sums[k]
        stack.sums[n + 1, k] = left_sums[k]


@inlined_kernel
def open_node(stack, n, nodes, node):
    """Write the n-th entry of the stack as node number ``node``, a leaf so far."""
    start, in_stop, stop, _, parent, side, _ = stack.todo[n]
    for k in range(nodes.sums.shape[1]):
        nodes.sums[node, k] = stack.sums[n, k]
    make_leaf(nodes.records[node], start, in_stop, stop)
    link(nodes.records, parent, side, node)
