"""What messages about trees are carried out with, one after the other, whichever tree they are about."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.shard.subtrees.runner import Runner
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition, no_rows


@dataclass
class Workspace:
    """Threads, what they search with and grow subtrees with, and room to divide rows.

    Attributes
    ----------
    threads : Threads
    runner : Runner
    by_turns : bool
        Whether messages about other trees are carried out with it before a tree is finished.
    """

    threads: Threads
    runner: Runner
    by_turns: bool = False
    _spare: RowPartition = field(default_factory=no_rows)

    def spare_for(self, rows: RowPartition) -> RowPartition:
        """Return room to divide a tree's rows in."""
        n = rows.rows.shape[0]
        if self._spare.rows.shape[0] < n or self._spare.h.shape[0] < rows.h.shape[0]:
            self._spare = rows.spare(n)
        return self._spare

    def divide_in(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
        """Take arrays by row number, which nobody else needs any more, for room to divide rows in."""
        rows = self._spare.rows
        self._spare = no_rows()
        self._spare = RowPartition(rows if rows.shape[0] == a.shape[0] else np.empty(a.shape[0], np.uint32), a, b)
