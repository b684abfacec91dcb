"""How finely large nodes are summed."""

from __future__ import annotations

from dtrees.split.policy import FOLD

#: More cells are flagged than one in so many, or less: finer, or coarser parts are tried. Finer ones are kept for so many trees then.
_MUCH_FLAGGED_SHARE, _FLAGGED_SHARE, _TREES_AS_FINE = 100, 1000, 20
_FIRST_GRAIN = 1
#: More cells of a level are flagged than one in so many: the next one is summed by finer parts already. The first tree of noise takes
#: 1.9 instead of 2.9 s with it, loading included (1M x 28, two shards).
_FAR_TOO_MUCH_FLAGGED_SHARE = 16


class Grain:
    """How finely large nodes are summed: by parts of zones, ``2**current`` of each, as fine as the last trees have wanted.

    Finer parts are more to sum and to send; by coarser ones more rows are flagged, and have to be looked at more closely.
    """

    def __init__(self) -> None:
        self.current = _FIRST_GRAIN
        self._flagged = self._cells = self._trees_as_fine = 0

    def note(self, flagged: int, cells: int) -> None:
        """Note how many cells of a level's nodes were flagged, of how many."""
        self._flagged += flagged
        self._cells += cells
        if flagged * _FAR_TOO_MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self._refine()
            self._flagged = self._cells = 0

    def _refine(self) -> None:
        self.current = min(FOLD, self.current + 2)
        self._trees_as_fine = _TREES_AS_FINE

    def adapt(self) -> None:
        """Choose for the next tree, by the cells noted since the last one."""
        flagged, cells = self._flagged, self._cells
        self._flagged = self._cells = 0
        self._trees_as_fine -= 1
        if flagged * _MUCH_FLAGGED_SHARE > cells and self.current < FOLD:
            self._refine()
        elif flagged * _FLAGGED_SHARE < cells and self.current > 0 and self._trees_as_fine <= 0:
            self.current = max(0, self.current - 2)
