"""The data that shards of rows exchange in the steps of a tree (:mod:`dtrees.engine.rows.tree`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Root
from dtrees.engine.shard.node_search import NodeTable
from dtrees.split.node.records import Candidates
from dtrees.tree.category_sets import NO_SETS, CategorySets

_NO_PATHS = np.empty(0, np.uint64)


#: Numbers by which shards know some of the leaves of a tree, and the numbers of these leaves in the tree.
KnownLeaves = tuple[NDArray[np.int64], NDArray[np.int64]]


class Levelled(NamedTuple):
    """Nodes to be summed, arrays of shape (n,); ``grain`` is the fineness of their sums."""

    node: NDArray[np.int64]
    grain: NDArray[np.int64]


class FindBars(NamedTuple):
    """Nodes whose best splits are to be found.

    Attributes
    ----------
    root : Root
    tasks : ndarray of int64, shape (n_summed, 4)
        See :func:`~dtrees.split.zones.over_shards.flagging.settle_sums`; parents are positions among the nodes searched last.
    summed : Levelled
        The nodes whose sums shards have sent, in the order of ``tasks``.
    n_slots : int
        Number of slots, for these nodes and those of which only sums are needed.
    node, n_rows, grain : ndarray of int64, shape (n_nodes,)
        The nodes to be searched, their numbers of rows, and the fineness of their sums.
    sums : ndarray of int64, shape (n_nodes, n_sums)
    drawn : ndarray of bool, shape (n_nodes, n_columns) or (0, 0)
        Which of the tree's columns are searched for each node; empty for all.
    path : ndarray of uint64, shape (n_nodes,) or (0,)
        The identities of the nodes if thresholds are random, where rows are summed by category only; otherwise empty.
    """

    root: Root
    tasks: NDArray[np.int64]
    summed: Levelled
    n_slots: int
    node: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    grain: NDArray[np.int64]
    sums: NDArray[np.int64]
    drawn: NDArray[np.bool_]
    path: NDArray[np.uint64] = _NO_PATHS


class Scanned(NamedTuple):
    """The best splits of nodes in a shard's columns, the next value above each cut (NaN if unknown), and sets of categories.

    ``sets.node`` refers to positions in these arrays.
    """

    candidates: Candidates
    above: NDArray[np.float64]
    sets: CategorySets = NO_SETS


class Cut(NamedTuple):
    """The number of rows that went left, and the next value above each cut (infinite if none exists or is requested), shape (n,)."""

    n_left: NDArray[np.int64]
    above: NDArray[np.float64]


class GrowSent(NamedTuple):
    """Nodes to be grown to their ends by one shard; ``table`` has them, ``origin`` and ``first`` are as for ``TreeState.grow``."""

    tree: int
    root: Root
    node: NDArray[np.int64]
    table: NodeTable
    origin: NDArray[Any]
    first: NDArray[Any]
