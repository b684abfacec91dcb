"""What messages about trees are carried out with, one after the other, whichever tree they are about."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtrees.engine.crew import Crew
from dtrees.engine.threads import Threads
from dtrees.split.partition import RowPartition, no_rows


@dataclass
class Workspace:
    """Threads, what they search with and grow subtrees with, and room to divide rows."""

    threads: Threads
    crew: Crew
    _spare: RowPartition = field(default_factory=no_rows)

    def spare_for(self, rows: RowPartition) -> RowPartition:
        """Return room to divide a tree's rows in."""
        n = rows.rows.shape[0]
        if self._spare.rows.shape[0] < n or self._spare.b.shape[0] < rows.b.shape[0]:
            self._spare = rows.spare(n)
        return self._spare
