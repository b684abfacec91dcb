"""Trees laid out for prediction.

A tree's nodes are stored in a table of small records, the two children of a node side by side, so that one addition finds the child,
without a branch to mispredict. Its first levels are stored separately, as a complete tree that vector instructions evaluate for many
rows at once.

Terms
-----
slot
    a column as nodes read it: even with its missing values above every threshold, odd with them below. Prediction copies a block of rows
    into slots first, and the comparison ``x <= threshold`` then sends missing values to the right side. If no value is missing, an even
    slot and the odd one after it are equal. Slots 0 and 1 are unused and mark leaves.
position
    a node's index in its tree's table; the root has 0.
leaf number
    a leaf's index among the leaves of its tree, in the order of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inner_kernel, kernel, plain
from dtrees.split.numbers.ordered import rounded_down
from dtrees.tree.tree import Tree

#: Numbers below this fit the small records.
_SMALL_PLACES = 2**32
#: Nodes and ends of the complete first part of a tree: two tiers of three levels.
TOP_NODES, TOP_ENDS = 63, 64


@by_reference
class Packed(NamedTuple):
    """Trees in shared arrays.

    Attributes
    ----------
    feature : ndarray of int64, shape (n_slots // 2,)
        The column of each pair of slots; -1 for the first pair.
    nodes : structured ndarray, shape (n_nodes,)
        ``threshold``, and ``place``: in the upper bits (from ``bits`` on) the position of a node's left child or the number of a leaf,
        in the lower bits the slot. The right child follows the left one.
    bits : int
    top_slot : ndarray of uint64, shape (n_trees, 63)
        A tier is three levels, seven nodes by level: first the upper tier, then the eight tiers below it.
    top_threshold : ndarray, shape (n_trees, 63)
    top_end : ndarray of uint32, shape (n_trees, 64)
        The nodes that the first levels lead to: numbers of leaves for shallow trees, positions for others.
    shallow : ndarray of bool, shape (n_trees,)
        Whether the first levels are the whole tree.
    value : ndarray of float64, shape (n_leaves, n_values)
    number : ndarray of int32, shape (n_leaves,)
        The node numbers of the leaves in their trees.
    roots, leaves : ndarray of int64, shape (n_trees + 1,)
        Tree ``t`` has the nodes ``roots[t]:roots[t + 1]`` and the leaves ``leaves[t]:leaves[t + 1]``.
    """

    feature: NDArray[np.int64]
    nodes: NDArray[Any]
    bits: np.uint64
    top_slot: NDArray[np.uint64]
    top_threshold: NDArray[Any]
    top_end: NDArray[np.uint32]
    shallow: NDArray[np.bool_]
    value: NDArray[np.float64]
    number: NDArray[np.int32]
    roots: NDArray[np.int64]
    leaves: NDArray[np.int64]


def columns_of(trees: Sequence[Tree]) -> NDArray[np.int64]:
    """Return the columns that trees split on, ascending."""
    return np.unique(np.concatenate([np.unique(tree.feature[tree.feature >= 0]) for tree in trees])).astype(np.int64)


def pack(trees: Sequence[Tree], dtype: Any = np.float64, used: NDArray[np.int64] | None = None) -> Packed:
    """Pack at least one tree; all must have values of the same shape.

    Parameters
    ----------
    trees : sequence of Tree
    dtype : {float32, float64}, default=float64
        Dtype of the rows to be predicted. Trees packed for float32 take half the space, decide alike for every float32, and cannot be
        used for float64.
    used : ndarray of int64, optional
        The columns that get slots, :func:`columns_of` the trees by default; more are allowed.
    """
    used = columns_of(trees) if used is None else used
    slot_of = np.zeros(used.max(initial=0) + 1, np.int64)
    slot_of[used] = 2 * np.arange(1, used.shape[0] + 1)
    bits = int(2 * used.shape[0] + 1).bit_length()
    sizes = np.array([tree.node_count for tree in trees])
    narrow = np.dtype(dtype) == np.float32 and int(sizes.max()) << bits <= _SMALL_PLACES
    record = np.dtype([("threshold", np.float32), ("place", np.uint32)] if narrow else [("threshold", np.float64), ("place", np.uint64)])
    roots, leaves = (np.concatenate([[0], np.cumsum(counts)]).astype(np.int64) for counts in (sizes, (sizes + 1) // 2))
    n_trees = len(trees)
    packed = Packed(
        feature=np.concatenate([[-1], used]),
        nodes=np.empty(roots[-1], record),
        bits=np.uint64(bits),
        top_slot=np.zeros((n_trees, TOP_NODES), np.uint64),
        top_threshold=np.zeros((n_trees, TOP_NODES), record["threshold"]),
        top_end=np.empty((n_trees, TOP_ENDS), np.uint32),
        shallow=np.empty(n_trees, np.bool_),
        value=np.empty((leaves[-1], trees[0].value.shape[1])),
        number=np.empty(leaves[-1], np.int32),
        roots=roots,
        leaves=leaves,
    )
    for t, tree in enumerate(trees):
        threshold = rounded_down(tree.threshold, record["threshold"])
        own = tree.children_left, tree.children_right, tree.feature, threshold, tree.missing_go_to_left, tree.n_node_samples
        packed.shallow[t] = _lay_out(
            *map(plain, own),
            slot_of, packed.bits, packed.nodes[roots[t] : roots[t + 1]], packed.top_slot[t], packed.top_threshold[t], packed.top_end[t],
            packed.number[leaves[t] : leaves[t + 1]],
        )  # fmt: skip
        packed.value[leaves[t] : leaves[t + 1]] = tree.value[packed.number[leaves[t] : leaves[t + 1]]]
    return packed


def node_record(**more: Any) -> np.dtype[Any]:
    """Return the dtype of a node record with the fields that :func:`pack_nodes` writes, and ``more`` fields, which it does not change.

    ``feature`` is -1 at leaves; ``first_word`` and ``n_words`` are the words of the node's set, -1 and 0 if it has a threshold.
    """
    fields = {"threshold": np.float64, "first_word": np.int64, **more, "n_words": np.int32, "feature": np.int32}
    return np.dtype([*(fields | {"left": np.int32, "right": np.int32, "missing_left": np.bool_}).items()], align=True)


def pack_nodes(trees: Sequence[Tree], record: np.dtype[Any]) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.uint32]]:
    """Return the start of each tree's nodes, the records of all nodes in their order, and the words of their sets of categories.

    ``record`` is the dtype of a node (:func:`node_record`).
    """
    roots = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])]).astype(np.int64)
    nodes = np.empty(roots[-1], record)
    nodes["first_word"], nodes["n_words"] = -1, 0
    n_words = 0
    for tree, first in zip(trees, roots.tolist(), strict=False):
        mine = nodes[first : first + tree.node_count]
        mine["threshold"], mine["missing_left"] = tree.threshold, tree.missing_go_to_left
        mine["feature"] = np.maximum(tree.feature, -1)
        mine["left"], mine["right"] = tree.children_left, tree.children_right
        sets = tree.categories
        mine["first_word"][sets.node] = n_words + sets.offset[:-1]
        mine["n_words"][sets.node] = np.diff(sets.offset)
        n_words += sets.words.shape[0]
    return roots, nodes, np.concatenate([tree.categories.words for tree in trees])


@kernel
def _lay_out(left, right, feature, threshold, missing_left, n_rows, slot_of, bits, nodes, top_slot, top_threshold, top_end, number):  # type: ignore[no-untyped-def]
    """Fill one tree's part of the arrays; return whether the first levels are the whole tree."""
    n = left.shape[0]
    position = np.zeros(n, np.uint64)
    leaf_number = np.empty(n, np.uint64)
    slot = np.zeros(n, np.uint64)
    n_placed = np.uint64(1)
    n_leaves = 0
    stack = np.zeros(n, np.int64)
    n_stack = 1
    while n_stack > 0:
        n_stack -= 1
        node = stack[n_stack]
        record = nodes[position[node]]
        if feature[node] < 0:
            leaf_number[node] = n_leaves
            record.threshold = 0.0
            record.place = np.uint64(n_leaves) << bits
            number[n_leaves] = node
            n_leaves += 1
        else:
            slot[node] = slot_of[feature[node]] + np.int64(missing_left[node])
            record.threshold = threshold[node]
            record.place = (n_placed << bits) | slot[node]
            # The larger child's children come next, likely in the same cache line.
            i, j = left[node], right[node]
            position[i], position[j] = n_placed, n_placed + np.uint64(1)
            n_placed += np.uint64(2)
            if n_rows[i] < n_rows[j]:
                i, j = j, i
            stack[n_stack], stack[n_stack + 1] = j, i
            n_stack += 2
    end = np.zeros(64, np.int64)
    storey = np.zeros(15, np.int64)
    for s in range(9):
        # The upper tier starts at the root, the others at its ends. Below a leaf, the leaf is repeated.
        first = 7 * s
        storey[0] = end[8 * (s - 1)] if s > 0 else 0
        for i in range(7):
            node = storey[i]
            inner = feature[node] >= 0
            storey[2 * i + 1] = left[node] if inner else node
            storey[2 * i + 2] = right[node] if inner else node
            top_slot[first + i] = slot[node]
            top_threshold[first + i] = threshold[node] if inner else 0.0
        for i in range(8):
            if s == 0:
                end[8 * i] = storey[7 + i]
            else:
                end[8 * (s - 1) + i] = storey[7 + i]
    shallow = True
    for i in range(64):
        shallow = shallow and feature[end[i]] < 0
    for i in range(64):
        top_end[i] = leaf_number[end[i]] if shallow else position[end[i]]
    return shallow


@inner_kernel
def add_leaves(value, leaf, out):  # type: ignore[no-untyped-def]
    """Add the values of the leaves that rows reached in a tree."""
    if value.shape[1] == 1:
        for i in range(leaf.shape[0]):
            out[i, 0] += value[np.uint64(leaf[i]), 0]
    else:
        for i in range(leaf.shape[0]):
            for k in range(value.shape[1]):
                out[i, k] += value[np.uint64(leaf[i]), k]


@inner_kernel
def goes_left(node, words, x):  # type: ignore[no-untyped-def]
    """Return whether a number, or a category, goes left at a node from :func:`pack_nodes`."""
    if x != x:
        return node.missing_left
    if node.first_word < 0:
        return x <= node.threshold
    number = np.int64(x)
    word = number >> 5
    return 0 <= word < node.n_words and (words[node.first_word + word] >> np.uint32(number & 31)) & np.uint32(1) == 1


@inner_kernel
def divide(node, words, x, left):  # type: ignore[no-untyped-def]
    """Write which values go left at a node."""
    if node.first_word < 0:
        threshold, missing = node.threshold, node.missing_left
        for r in range(x.shape[0]):
            left[r] = missing if x[r] != x[r] else x[r] <= threshold
    else:
        for r in range(x.shape[0]):
            left[r] = goes_left(node, words, x[r])
