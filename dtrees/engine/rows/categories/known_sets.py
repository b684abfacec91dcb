"""The sets of categories of a tree over shards of rows, as who takes its steps comes to know them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import splits_of_categories
from dtrees.engine.plan.plans import Rules
from dtrees.tree.category_sets import NO_SETS, CategorySets


class KnownSets:
    """Sets of categories by the places where their nodes would lie if all rows were in one place.

    No two nodes that are split have the same place.

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
        """Note sets of nodes, given their records, which ``sets.node`` are places among."""
        for i, words in words_of(sets).items():
            self.sets[_place(records[i])] = words

    def of_tree(self, records: NDArray[Any], rules: Rules) -> CategorySets:
        """Return the sets of a tree, given the records of all its nodes."""
        if not rules.categorical:
            return NO_SETS
        node = splits_of_categories(records, rules)[0]
        return sets_of({int(i): self.sets[_place(records[i])] for i in node.tolist()})


def _place(record: Any) -> tuple[int, int]:
    return int(record["start"]), int(record["in_stop"])


def words_of(sets: CategorySets) -> dict[int, NDArray[np.uint32]]:
    """Return the words of each node that has a set."""
    ends = sets.offset.tolist()
    return {node: sets.words[ends[k] : ends[k + 1]] for k, node in enumerate(sets.node.tolist())}


def sets_of(words: dict[int, NDArray[np.uint32]]) -> CategorySets:
    """Return sets of nodes by their words; nodes ascend.

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
