"""A tree under way, on one of the shards of rows that grow it together: what is done in each of its steps.

Names of parcels say what travels: "totals" of gradients, "sums" of nodes to the searchers of columns, "bars" of searchers to all shards,
"flags" to all (what may hold a better split), "finer sums" and "finer flags" of those that have many rows, the rows in there to searchers
("picked"), and "apart", rows of small nodes to who is to grow them. Those from "finer sums" to "picked" are repeated for each further batch
of flagged rows, whose number is then said, too. "root", "level", "further columns" and "subtrees" are what comes of steps, which all tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.grower import Grower
from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.protocol.messages import Root
from dtrees.engine.rows import steps as s
from dtrees.engine.rows.between.shards import Shards, Steps
from dtrees.engine.rows.exchange import Arrays, Turn
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.searching.searcher import Wanted

R = TypeVar("R", bound=RowsInTree)


@dataclass(frozen=True)
class TreeOfShards(Generic[R]):
    """What a shard does in the steps of a tree, together with all others.

    Attributes
    ----------
    shards : Shards
    rows : RowsInTree
        Those of this shard.
    """

    shards: Shards
    rows: R

    def fix(self, exponents: tuple[int, int], summed: s.Levelled, shift: int, search: s.FindBars | None) -> Steps[list[s.Fixed]]:
        """Put gradients in fixed point, sum the root, and search it.

        ``search`` is of the root, but for its sums and slope, which follow from the totals of all: 0 stand in their place. None if the tree
        is to be grown by one shard.
        """
        totals, sums = self.rows.fix(exponents, summed, shift)
        levelled = None if search is None else (yield from self._search_root(totals, sums, search))
        return (yield from self.shards.gather("root", s.Fixed(totals, levelled)))

    def _search_root(self, totals: s.Totals, sums: dict[int, Arrays], search: s.FindBars) -> Steps[s.Levelling | None]:
        shards, serial = self.shards, next(self.shards.serials)
        sent = yield shards.to_all("totals", serial, (totals.sums, np.array([totals.slope])))
        root = search.root
        of_all = root.sums.copy()
        of_all[: sent[0][0].shape[0]] = np.sum([one[0] for one in sent], axis=0)
        root = root._replace(sums=of_all, slope=float(np.max([one[1] for one in sent])))
        rules, kept = shards.plan.rules, SumsKept.of(shards.plan)
        whole = Root(root.n_in, root.n_in, of_all, root.exponents, 0, None)
        grower = Grower(rules, kept.n_classes, rules.columns_per_tree, whole, 0, kept.targets)
        sent = yield shards.step("sums", serial, sums, shards.everyone if sums else ())
        if not grower.to_search.shape[0]:
            return None
        return (yield from self._search(serial, search._replace(root=root, sums=of_all[None]), sent))

    def level(self, divide: s.Divide, search: s.FindBars | None, apart: s.Apart | None) -> Steps[list[s.Levelling]]:
        """Divide nodes, then search some of their children, or have small ones grown to their ends, if no other is left."""
        shards, serial = self.shards, next(self.shards.serials)
        cut, sums = self.rows.divide(divide)
        sent = yield shards.step("sums", serial, sums, shards.everyone if sums else ())
        if search is not None:
            own = (yield from self._search(serial, search, sent))._replace(cut=cut)
        else:
            own = s.Levelling(cut, None, 0, None, None if apart is None else (yield from self._grow_apart(apart)))
        return (yield from shards.gather("level", own))

    def search_further(self, drawn: NDArray[np.bool_]) -> Steps[list[s.Levelling]]:
        """Search the nodes searched last in other columns, ``drawn`` as of :class:`~dtrees.engine.rows.steps.FindBars`."""
        scanned, flagged = yield from self._scan(next(self.shards.serials), np.full(drawn.shape[0], -1.0), drawn)
        return (yield from self.shards.gather("further columns", s.Levelling(None, scanned, flagged)))

    def grow_apart(self, apart: s.Apart) -> Steps[list[s.Subtrees | None]]:
        """Have small nodes grown to their ends, each by one shard; return what those of each have become."""
        return (yield from self.shards.gather("subtrees", (yield from self._grow_apart(apart))))

    def _grow_apart(self, apart: s.Apart) -> Steps[s.Subtrees | None]:
        shards, grow = self.shards, apart.grow[self.shards.shard]
        yield Turn(apart.n_rows * SumsKept.of(shards.plan).cells_sent(shards.plan.rules))
        senders = () if grow is None else shards.everyone
        sent = yield shards.step("apart", next(shards.serials), self.rows.send_rows(apart.nodes), senders)
        return None if grow is None else self.rows.grow_sent(grow, sent)

    def _search(self, serial: int, search: s.FindBars, sent: list[Arrays]) -> Steps[s.Levelling]:
        """Find the best splits of nodes that all shards have sent sums of."""
        bars = yield self.shards.to_all("bars", serial, (self.rows.find_bars(search, sent),))
        scanned, flagged = yield from self._scan(serial, np.max([one[0] for one in bars], axis=0), search.drawn)
        return s.Levelling(None, scanned, flagged)

    def _scan(self, serial: int, bars: NDArray[np.float64], drawn: NDArray[np.bool_]) -> Steps[tuple[s.Scanned, int]]:
        """Find the best splits, knowing bars, of nodes whose sums are ready; return them, and how many rows that has taken."""
        shards, rows = self.shards, self.rows
        own = rows.flag(bars, drawn)
        every = [Wanted(*one) for one in (yield shards.to_all("flags", serial, own))]
        for number in range(max(one.n_batches for one in every)):
            batch, of_batch = [one.batch(number) for one in every], f" of batch {number}" if number else ""
            rows.searcher.open_batch(number)
            if any(one.is_cut for one in batch):
                sums = yield shards.step("finer sums" + of_batch, serial, rows.sum_finer(batch), shards.everyone)
                finer = rows.searcher.refine([one[0] for one in sums])
                del sums
                batch = [Wanted(*one) for one in (yield shards.to_all("finer flags" + of_batch, serial, finer))]
            rows.searcher.scan((yield shards.step("picked" + of_batch, serial, rows.pick(batch), shards.everyone)))
        return rows.best(), int(own.tasks[:, 3].sum())
