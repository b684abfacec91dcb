"""Which nodes of a level sum their zones, and which inherit them; see :mod:`dtrees.split.level`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plans import Rules
from dtrees.split.columns import Columns
from dtrees.split.level import MAX_PACKED_ROWS, Sums, map_zones
from dtrees.split.zones import MAX_ZONES

#: Slots may take this many bytes, or as many a row as below, whichever is more.
_MIN_BYTES = 64 * 2**20
_BYTES_PER_ROW = 32
#: Below this many rows, bounding zones costs more than it saves.
_MIN_ROWS = 512


def inherits_sums(rules: Rules, n_classes: int) -> bool:
    """Tell whether every node is searched exactly in all columns of the tree, by two sums."""
    return not rules.random_splits and n_classes <= 2 and rules.max_features >= rules.columns_per_tree


def smallest_node(n_rows: int, n_columns: int) -> int:
    """Return the rows of the smallest nodes to be searched by zone sums: so many that those of a level have room for their slots."""
    slot = n_columns * MAX_ZONES * 24
    room = max(_MIN_BYTES, _BYTES_PER_ROW * n_rows)
    return max(_MIN_ROWS, 2 * slot * n_rows // room)


class ZoneSums:
    """The slots of one shard, and the nodes they belong to.

    Parameters
    ----------
    columns : Columns
    map : callable
        A thread pool's.
    """

    def __init__(self, columns: Columns, map: Any) -> None:
        self.zone_map = map_zones(columns, map)
        self._n_columns = columns.n_columns
        self._max_slots = max(_MIN_BYTES, _BYTES_PER_ROW * columns.n_rows) // max(1, columns.n_columns * MAX_ZONES * 24)
        self._slots = np.empty((0, columns.n_columns, MAX_ZONES, 2), np.int64)
        self._slot_of: dict[int, int] = {}
        self._free: list[int] = []

    def start(self, a: NDArray[np.int64], weighted: bool) -> None:
        """Forget all nodes: a new tree, with sums ``a`` of its in-sample rows."""
        width = 3 if weighted else 2
        if self._slots.shape[3] != width:
            self._slots = np.empty((0, self._n_columns, MAX_ZONES, width), np.int64)
        self._free = list(range(self._slots.shape[0]))
        self._slot_of = {}
        total = int(np.abs(a).sum())
        self._size_shift = max(0, total.bit_length() - 30)
        self._usable = a.shape[0] < MAX_PACKED_ROWS

    def _take(self) -> int:
        if not self._free:
            n = self._slots.shape[0]
            larger = np.empty((max(4, 2 * n), *self._slots.shape[1:]), np.int64)
            larger[:n] = self._slots
            self._slots = larger
            self._free = list(range(n, larger.shape[0]))
        return self._free.pop()

    def slots_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the slots of nodes."""
        return np.array([self._slot_of[node] for node in nodes.tolist()], np.int64)

    def plan(
        self,
        parents: NDArray[np.int64],
        left: NDArray[np.int64],
        search: NDArray[np.int64],
        start: NDArray[np.int64],
        mid: NDArray[np.int64],
    ) -> Sums | None:
        """Say how nodes get their sums, and give them slots.

        Parameters
        ----------
        parents, left : ndarray of int64, shape (n,)
            Nodes just split, and their left children; the right ones have the next number.
        search : ndarray of int64
            The nodes to be searched.
        start, mid : ndarray of int64
            Places of all nodes.

        Returns
        -------
        Sums or None
            None if there is no room.
        """
        inherited = {}
        for parent, child in zip(parents.tolist(), left.tolist(), strict=True):
            slot = self._slot_of.pop(parent, None)
            if slot is not None:
                inherited[child] = slot
        if not self._usable or len(self._slot_of) + 2 * search.shape[0] > self._max_slots:
            self._free.extend(inherited.values())
            return None
        summed: list[tuple[int, int]] = []
        subtracted: list[tuple[int, int]] = []
        temporary: list[int] = []
        wanted = set(search.tolist())
        for child, slot in inherited.items():
            n_left, n_right = (int(mid[node] - start[node]) for node in (child, child + 1))
            smaller, larger = (child, child + 1) if n_left <= n_right else (child + 1, child)
            if larger in wanted:
                other = self._take()
                summed.append((smaller, other))
                subtracted.append((slot, other))
                self._slot_of[larger] = slot
                if smaller in wanted:
                    self._slot_of[smaller] = other
                else:
                    temporary.append(other)
            elif smaller in wanted:
                summed.append((smaller, slot))
                self._slot_of[smaller] = slot
            else:
                self._free.append(slot)
            wanted -= {smaller, larger}
        for node in sorted(wanted):
            self._slot_of[node] = slot = self._take()
            summed.append((node, slot))
        self._free.extend(temporary)
        places = [(int(start[node]), int(mid[node]), slot) for node, slot in summed]
        return Sums(
            self._slots,
            self._size_shift,
            np.array(places, np.int64).reshape(-1, 3),
            np.array(subtracted, np.int64).reshape(-1, 2),
        )
