"""The packed form of splits and subtrees in messages.

Nodes of subtrees are in preorder: a left child follows its parent, a right child follows the last node of its sibling's subtree. Packing
reduces them to two fifths of their bytes, as the rows and sums of an inner node are the totals of its leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import plain
from dtrees.split.grow.best_first import in_preorder
from dtrees.split.node.records import NODE, Nodes
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.compact import add_up


class Splits(NamedTuple):
    """The chosen splits, a structure of arrays of shape (n,).

    ``node`` is the node that is split, ``left`` the number of its left child; the right child has the next number. The other fields are as
    in
    :class:`~dtrees.split.node.records.Candidates`.
    """

    node: NDArray[np.int64]
    left: NDArray[np.int64]
    column: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    n_left: NDArray[np.int64]

    def take(self, which: NDArray[np.bool_]) -> Splits:
        """Return a subset of the splits."""
        columns: Any = self
        return Splits(*[column[which] for column in columns])


class RouteBits(NamedTuple):
    """The rows that go left, as bits: split i has the bytes ``offsets[i]:offsets[i + 1]``, one bit for each row of its node, or none."""

    bits: NDArray[np.uint8]
    offsets: NDArray[np.int64]


def join_subtrees(upper: Nodes, subtrees: Mapping[int, Nodes]) -> Nodes:
    """Replace nodes by subtrees; return one tree in preorder."""
    if list(subtrees) == [0]:
        return subtrees[0]
    n_sums = min((part.sums.shape[1] for part in subtrees.values()), default=upper.sums.shape[1])
    records = upper.records.copy()
    offset = records.shape[0]
    root_of, parts = np.arange(offset), [Nodes(records, upper.sums[:, :n_sums])]
    for node, part in subtrees.items():
        below = part.records.copy()
        for side in ("left", "right"):
            below[side][below["column"] >= 0] += offset
        root_of[node] = offset
        offset += below.shape[0]
        parts.append(Nodes(below, part.sums))
    split = records["left"] >= 0
    for side in ("left", "right"):
        records[side][split] = root_of[records[side][split]]
    return in_preorder(Nodes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True))))


class PackedNodes(NamedTuple):
    """A subtree in packed form.

    Attributes
    ----------
    column : ndarray of int32, shape (n,)
        The column of each node's split, -1 for leaves.
    missing_left : ndarray of bool, shape (n_inner,)
    threshold, gain : ndarray of float64, shape (n_inner,)
    n_inside, n_outside : ndarray of uint32, shape (n_leaves,)
        Numbers of rows of each leaf in sample and out of sample; ``n_outside`` is empty if there are no rows out of sample.
    sums : ndarray of int64, shape (n_leaves, n_sums)
    start : int
        The first place of the root's rows.
    """

    column: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    threshold: NDArray[np.float64]
    gain: NDArray[np.float64]
    n_inside: NDArray[np.uint32]
    n_outside: NDArray[np.uint32]
    sums: NDArray[np.int64]
    start: int

    @classmethod
    def of(cls, nodes: Nodes, start: int) -> PackedNodes:
        """Return the packed form of nodes in preorder, whose first place is ``start`` for the receiver."""
        records = nodes.records
        leaf = records["column"] < 0
        inner, leaves = records[~leaf], records[leaf]
        n_outside = (leaves["stop"] - leaves["in_stop"]).astype(np.uint32)
        return cls(
            records["column"].copy(),
            inner["missing_left"].copy(),
            inner["threshold"].copy(),
            inner["gain"].copy(),
            (leaves["in_stop"] - leaves["start"]).astype(np.uint32),
            n_outside if n_outside.any() else n_outside[:0],
            nodes.sums[leaf],
            start,
        )

    def unpacked(self) -> Nodes:
        """Return the nodes."""
        inner = self.column >= 0
        n_outside = self.n_outside if self.n_outside.shape[0] else np.zeros_like(self.n_inside)
        left, right, totals = add_up(plain(self.column), np.column_stack([self.n_inside, n_outside, self.sums]))
        n_rows = totals[:, 0] + totals[:, 1]
        of_leaves = np.where(inner, 0, n_rows)
        records = np.zeros(inner.shape[0], NODE)
        records["column"], records["left"], records["right"] = self.column, left, right
        records["missing_left"][inner], records["threshold"][inner], records["gain"][inner] = self.missing_left, self.threshold, self.gain
        records["start"] = self.start + np.cumsum(of_leaves) - of_leaves
        records["in_stop"], records["stop"] = records["start"] + totals[:, 0], records["start"] + n_rows
        return Nodes(records, np.ascontiguousarray(totals[:, 2:]))


class DelegatedNodes(NamedTuple):
    """Subtrees; for each, its rows out of sample, leaf by leaf (only if they are needed), and its sets of categories."""

    subtrees: list[PackedNodes]
    outside: list[NDArray[np.uint32]]
    sets: list[CategorySets]


NO_SUBTREES = DelegatedNodes([], [], [])
