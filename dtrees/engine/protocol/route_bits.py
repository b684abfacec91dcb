"""Route bits that shards send with the splits that they found, before any split is chosen.

A shard sends the bits of its own best split of a node. Only those of the best split of all are kept, until it is applied.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.splits import RouteBits
from dtrees.split.compile.kernels import kernel


class RouteBitStore:
    """The route bits at hand, by node.

    Examples
    --------
    >>> route_bits = RouteBitStore()
    >>> route_bits.note(np.array([3, 4]), RouteBits(np.array([7, 8, 9], np.uint8), np.array([0, 1, 3])), np.array([False, True]))
    >>> route_bits.has(np.array([3, 4]))
    array([False,  True])
    >>> route_bits.take(np.array([4]))
    RouteBits(bits=array([8, 9], dtype=uint8), offsets=array([0, 2]))
    """

    def __init__(self) -> None:
        self._bits: list[NDArray[np.uint8]] = []
        self._places = np.zeros((64, 3), np.int64)  # of a node's bits: which array, first and last byte
        self._n_kept = 0

    def note(self, nodes: NDArray[np.int64], bits: RouteBits, which: NDArray[np.bool_]) -> None:
        """Keep the bits of those nodes that ``which`` tells, unless they are empty."""
        first, last = bits.offsets[:-1], bits.offsets[1:]
        which = which & (first < last)
        if not which.any():
            return
        n, n_nodes = self._places.shape[0], int(nodes.max()) + 1
        if n < n_nodes:
            self._places = np.concatenate([self._places, np.zeros((max(n, n_nodes - n), 3), np.int64)])
        kept = nodes[which]
        self._places[kept, 0] = len(self._bits)
        self._places[kept, 1], self._places[kept, 2] = first[which], last[which]
        self._bits.append(bits.bits)
        self._n_kept += kept.shape[0]

    def has(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which nodes' bits are at hand."""
        known = nodes < self._places.shape[0]
        known[known] = self._places[nodes[known], 2] > 0
        return known

    def take(self, nodes: NDArray[np.int64]) -> RouteBits:
        """Return the bits of nodes, and keep them no longer."""
        places = self._places[nodes]
        offsets = np.concatenate([[0], np.cumsum(places[:, 2] - places[:, 1])]).astype(np.int64)
        bits = np.empty(offsets[-1], np.uint8)
        for k in np.unique(places[:, 0]).tolist():
            _copy(self._bits[k], places, np.flatnonzero(places[:, 0] == k), bits, offsets)
        self._places[nodes] = 0
        self._n_kept -= nodes.shape[0]
        if not self._n_kept:
            self._bits = []
        return RouteBits(bits, offsets)


@kernel
def _copy(bits, places, which, all_bits, all_offsets):  # type: ignore[no-untyped-def]
    """Copy the bits of some nodes to their place among those of all."""
    for k in range(which.shape[0]):
        to = all_offsets[which[k]]
        for i in range(places[which[k], 1], places[which[k], 2]):
            all_bits[to] = bits[i]
            to += 1
