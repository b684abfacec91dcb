"""Splits that were chosen, and which rows they send left, as messages carry them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray


class Splits(NamedTuple):
    """Splits that were chosen, a structure of arrays of shape (n,).

    ``node`` is the node split, ``left`` the number of its left child; the right one's is one higher. The others are as in
    :class:`~dtrees.split.node.candidate.Candidates`.
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
