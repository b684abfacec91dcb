"""Results of a tree that the sums of its nodes do not determine: means, quantiles and deviations measured on rows, category sets.

When a tree is grown over shards, different shards find its sets of categories.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import splits_of_categories
from dtrees.engine.plan.plans import Rules
from dtrees.engine.protocol.messages import Measured
from dtrees.engine.threads import Threads
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import leaf_means
from dtrees.split.search.deviations import node_quantiles
from dtrees.tree.category_sets import NO_SETS, CategorySets

_FIELDS = ("left", np.int32), ("right", np.int32), ("start", np.int64), ("in_stop", np.int64)


def measure_leaves(
    rows: RowPartition, labels: NDArray[Any], criterion: Criterion, start: NDArray[np.int64], stop: NDArray[np.int64], threads: Threads
) -> Measured:
    """Return the mean target and the weighted impurity of each leaf.

    Leaf i has the rows at the places ``start[i]:stop[i]``; ``rows.g`` is not read. For multi-output targets, the impurity is the mean over
    targets.
    """
    if labels.ndim == 2:
        return _together([measure_leaves(rows, labels[:, t], criterion, start, stop, threads) for t in range(labels.shape[1])])
    n, value = start.shape[0], criterion.for_kernels(0, 0.0)
    mean, spread = np.empty(n), np.empty(n)
    bounds = np.linspace(0, n, min(n, 4 * threads.n_threads) + 1).astype(np.int64)

    def measure(i: int) -> None:
        s = slice(bounds[i], bounds[i + 1])
        leaf_means(value, rows.rows, rows.h, labels, start[s], stop[s], mean[s], spread[s])

    threads.map(measure, range(bounds.shape[0] - 1))
    return Measured(mean, spread)


def measure_nodes(
    rows: RowPartition, labels: NDArray[Any], targets: NDArray[np.int64] | None, criterion: Criterion, records: NDArray[Any]
) -> Measured:
    """Return the target quantile of each node of a tree in preorder, and the weighted sum of deviations from it.

    ``records`` are those of the nodes. ``targets`` has the rank of each target value, shape (n_rows, n_targets), for multi-output targets;
    the deviations are then means over targets.
    """
    if targets is not None:
        by_target = []
        for t in range(targets.shape[1]):
            numbered = rows._replace(g=np.ascontiguousarray(targets[rows.rows, t]))
            by_target.append(measure_nodes(numbered, labels[:, t], None, criterion, records))
        return _together(by_target)
    n, value = records.shape[0], criterion.for_kernels(0, 0.0)
    left, right, start, in_stop = (records[name].astype(kind) for name, kind in _FIELDS)
    quantile, spread = np.empty(n), np.empty(n)
    node_quantiles(value, rows, labels, left, right, start, in_stop, quantile, spread)
    return Measured(quantile, spread)


def _together(by_target: list[Measured]) -> Measured:
    """Combine the measurements of single targets: stack the centers and average the spreads."""
    centers, spreads = zip(*by_target, strict=True)
    return Measured(np.stack(centers, axis=1), np.sum(spreads, axis=0) / len(spreads))


class KnownSets:
    """Sets of categories, found by the places of the nodes' rows in the row partition of the whole table.

    The place identifies a node, as no two split nodes have the same.

    Examples
    --------
    >>> known = KnownSets()
    >>> splits = np.array([(0, 9), (9, 12)], [("start", np.int64), ("in_stop", np.int64)])
    >>> known.add(splits, CategorySets.of(np.array([1]), [np.array([3])]))
    >>> len(known.sets)
    1
    """

    def __init__(self) -> None:
        self.sets: dict[tuple[int, int], NDArray[np.uint32]] = {}

    def add(self, records: NDArray[Any], sets: CategorySets) -> None:
        """Store the sets of nodes, given the records that ``sets.node`` refers to."""
        for i, words in words_of(sets).items():
            self.sets[_place(records[i])] = words

    def lacking(self, records: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of the records whose sets are not known yet."""
        return np.array([i for i in range(records.shape[0]) if _place(records[i]) not in self.sets], np.int64)

    def of_tree(self, records: NDArray[Any], rules: Rules) -> CategorySets:
        """Return the sets of a tree, given the records of all its nodes."""
        if not rules.categorical:
            return NO_SETS
        node = splits_of_categories(records, rules)[0]
        return sets_of({int(i): self.sets[_place(records[i])] for i in node.tolist()})


def _place(record: Any) -> tuple[int, int]:
    return int(record["start"]), int(record["in_stop"])


def words_of(sets: CategorySets) -> dict[int, NDArray[np.uint32]]:
    """Return the words of the bitset of each node that has a set."""
    ends = sets.offset.tolist()
    return {node: sets.words[ends[k] : ends[k + 1]] for k, node in enumerate(sets.node.tolist())}


def sets_of(words: dict[int, NDArray[np.uint32]]) -> CategorySets:
    """Return the category sets of nodes, given their words; nodes are in ascending order.

    Examples
    --------
    >>> sets = CategorySets.of(np.array([0, 4]), [np.array([1, 33]), np.array([0])])
    >>> sets_of(words_of(sets)).equals(sets)
    True
    """
    if not words:
        return NO_SETS
    offset = np.concatenate([[0], np.cumsum([some.shape[0] for some in words.values()])]).astype(np.int64)
    return CategorySets(np.array(list(words), np.int32), offset, np.concatenate(list(words.values())))
