"""Splits that were chosen, and which rows they send left, as messages carry them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray


class Splits(NamedTuple):
    """Splits that were chosen, a structure of arrays of shape (n,).

    ``node`` is the node split, ``left`` the number of its left child; the right one's is one higher. The others are as in
    :class:`~dtrees.split.node.records.Candidates`.
    """

    node: NDArray[np.int64]
    left: NDArray[np.int64]
    column: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    n_left: NDArray[np.int64]
    left_sums: NDArray[np.int64]

    def take(self, which: NDArray[np.bool_]) -> Splits:
        """Return some of the splits."""
        return Splits(*(cast(NDArray[Any], array)[which] for array in self))


class RouteBits(NamedTuple):
    """Which rows go left: split i has the bytes ``offsets[i]:offsets[i + 1]``, a bit for each place of its node, or no bytes."""

    bits: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def spread(self, which: NDArray[np.bool_]) -> RouteBits:
        """Return the bits of as many splits as ``which`` has elements: those of the true ones, in order; the others have none.

        Examples
        --------
        >>> RouteBits(np.array([7, 8], np.uint8), np.array([0, 2])).spread(np.array([False, True, False])).offsets
        array([0, 0, 2, 2])
        """
        return RouteBits(self.bits, self.offsets[np.concatenate([[0], np.cumsum(which)])])


class RouteBitStore(dict[int, NDArray[np.uint8]]):
    """The bits that the owners of the best splits sent with these, by node, until the splits are applied.

    Examples
    --------
    >>> route_bits = RouteBitStore()
    >>> route_bits.note(np.array([3, 4]), RouteBits(np.array([7, 8, 9], np.uint8), np.array([0, 1, 3])), np.array([False, True]))
    >>> route_bits.take(np.array([4]))
    RouteBits(bits=array([8, 9], dtype=uint8), offsets=array([0, 2]))
    """

    def note(self, nodes: NDArray[np.int64], marks: RouteBits, which: NDArray[np.bool_]) -> None:
        """Keep the bits of those nodes that ``which`` tells."""
        bounds = marks.offsets.tolist()
        self.update((node, marks.bits[bounds[i] : bounds[i + 1]]) for i, node in enumerate(nodes.tolist()) if which[i])

    def take(self, nodes: NDArray[np.int64]) -> RouteBits:
        """Return the bits of nodes, and keep no others either: a split that is not chosen at once never is."""
        bits = [self[node] for node in nodes.tolist()]
        self.clear()
        return RouteBits(np.concatenate(bits), np.cumsum([0, *map(len, bits)]))
