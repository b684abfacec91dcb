"""What the coordinator and the shards of rows say to each other about forests, beside what :mod:`dtrees.engine.rows.messages` has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.grain import Grain
from dtrees.engine.rows.searching.zone_edges import Edges
from dtrees.engine.shard.targets.forest_scales import ForestScales
from dtrees.tree.tree import Tree


@dataclass(frozen=True)
class OpenForest(Message):
    """Open the fit of a forest. Reply: None. ``stretches`` are those of each shard."""

    edges: Edges
    scales: ForestScales
    stretches: list[NDArray[np.int64]]


@dataclass(frozen=True)
class GrowTrees(Message):
    """Grow trees of a forest side by side. Reply: :class:`GrownTrees`.

    Attributes
    ----------
    serial : int
        Those of the exchanges of the trees come after it.
    first, last : int
        The trees are number ``first`` to ``last - 1``.
    sent_rows : int
        Up to how many rows a node is grown by one shard.
    grain : Grain
        How finely nodes are summed.
    """

    serial: int
    first: int
    last: int
    sent_rows: int
    grain: Grain


class GrownTrees(NamedTuple):
    """What has become of trees: themselves, from shard 0, else none; and as of :class:`~dtrees.engine.rows.messages.Grown`."""

    trees: list[Tree]
    checksum: int
    serial: int
    grain: Grain


@dataclass(frozen=True)
class AddVotes(Message):
    """Add what trees of a forest, from number ``first`` on, say of the rows that they did not draw to their sums. Reply: None."""

    first: int
    trees: list[Tree]


@dataclass(frozen=True)
class CountVotes(Message):
    """Ask for these sums. Reply: :class:`Votes`."""


class Votes(NamedTuple):
    """Sums for the shard's rows, in fixed point, shape (n_rows, n_values), and of how many trees they are, shape (n_rows,)."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
