"""Subsets of categories that go left, for the splits of a tree on columns of categories.

Such a split has a *set* in place of a threshold: a bit for each category, by its number. Categories that are not in the set go right,
including those with numbers beyond its last bit. Missing values go where the node sends them.

>>> import numpy as np
>>> sets = CategorySets.of(np.array([0, 4]), [np.array([1, 33]), np.array([0])])
>>> sets.node.tolist(), sets.offset.tolist(), sets.words.tolist()
([0, 4], [0, 2, 3], [2, 2, 1])
>>> sets.of_node(0).tolist()
[1, 33]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Bits of a word.
_BITS = 32
#: Most categories of a column: their numbers are exact in float64, and rows with them are numbered by 32 bits.
MAX_CATEGORIES = 2**32


class CategorySets(NamedTuple):
    """The sets of some nodes.

    Attributes
    ----------
    node : ndarray of int32, shape (n,)
        The numbers of the nodes, ascending.
    offset : ndarray of int64, shape (n + 1,)
        Set i has the words ``offset[i]:offset[i + 1]``; the last of these is not 0.
    words : ndarray of uint32
        Bit ``c % 32`` of word ``c // 32`` of a set says whether category ``c`` goes left.
    """

    node: NDArray[np.int32]
    offset: NDArray[np.int64]
    words: NDArray[np.uint32]

    @classmethod
    def of(cls, node: NDArray[np.integer], categories: Sequence[NDArray[np.integer]]) -> CategorySets:
        """Return the sets of nodes, given the numbers of the categories that go left in each."""
        sizes = [int(some.max(initial=-1)) // _BITS + 1 for some in categories]
        words = np.zeros(sum(sizes), np.uint32)
        offset = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        for first, some in zip(offset.tolist(), categories, strict=False):
            np.bitwise_or.at(words, first + some // _BITS, np.uint32(1) << (some % _BITS).astype(np.uint32))
        return cls(np.asarray(node, np.int32), offset, words)

    @classmethod
    def of_words(cls, words: Mapping[int, NDArray[np.uint32]]) -> CategorySets:
        """Return the sets of nodes, in ascending order, given the words of each.

        Examples
        --------
        >>> sets = CategorySets.of(np.array([0, 4]), [np.array([1, 33]), np.array([0])])
        >>> CategorySets.of_words(sets.by_node).equals(sets)
        True
        """
        if not words:
            return NO_SETS
        offset = np.concatenate([[0], np.cumsum([some.shape[0] for some in words.values()])]).astype(np.int64)
        return cls(np.array(list(words), np.int32), offset, np.concatenate(list(words.values())))

    @property
    def by_node(self) -> dict[int, NDArray[np.uint32]]:
        """The words of each node's set."""
        return {node: self._words_of(i) for i, node in enumerate(self.node.tolist())}

    def take(self, nodes: NDArray[np.integer]) -> CategorySets:
        """Return the sets of some nodes, numbered by the positions of the nodes among these."""
        if not self.node.shape[0]:
            return NO_SETS
        place = np.searchsorted(self.node, nodes)
        has = np.flatnonzero((place < self.node.shape[0]) & (self.node[np.minimum(place, self.node.shape[0] - 1)] == nodes))
        return CategorySets.of_words({node: self._words_of(i) for node, i in zip(has.tolist(), place[has].tolist(), strict=True)})

    def of_node(self, node: int) -> NDArray[np.int64]:
        """Return the numbers of the categories that a node sends left, ascending.

        Raises
        ------
        KeyError
            If the node has no set.
        """
        place = int(np.searchsorted(self.node, node))
        if place == self.node.shape[0] or self.node[place] != node:
            raise KeyError(node)
        words = self._words_of(place)
        bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")
        return np.flatnonzero(bits)

    def _words_of(self, i: int) -> NDArray[np.uint32]:
        return self.words[self.offset[i] : self.offset[i + 1]]

    def equals(self, other: CategorySets) -> bool:
        """Return whether both are the same sets of the same nodes."""
        pairs: Iterable[tuple[Any, Any]] = zip(self, other, strict=True)
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def validate(self, inner: NDArray[np.bool_]) -> None:
        """Check that these can be the sets of a tree, given which of its nodes are inner ones.

        Raises
        ------
        ValueError
            If a set belongs to a node that is not an inner one, or the words do not match the offsets.
        """
        node, offset, words = self
        kinds = [array.dtype.name for array in self]
        if kinds != ["int32", "int64", "uint32"] or {array.ndim for array in self} != {1}:
            raise ValueError(f"a tree's sets of categories have dtypes {', '.join(kinds)}")
        if offset.shape[0] != node.shape[0] + 1 or offset[0] != 0 or offset[-1] != words.shape[0] or np.any(np.diff(offset) < 0):
            raise ValueError("a tree's sets of categories do not have the words there are")
        if np.any(np.diff(offset) > MAX_CATEGORIES // _BITS):
            raise ValueError(f"a tree's set of categories has more than {MAX_CATEGORIES} of them")
        if node.shape[0] and (node[0] < 0 or node[-1] >= inner.shape[0] or np.any(np.diff(node) <= 0) or not inner[node].all()):
            raise ValueError("a tree has sets of categories for nodes that are not inner nodes")


#: The sets of a tree with numeric columns only.
NO_SETS = CategorySets(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.uint32))
