"""What the coordinator and the shards of rows say to each other, beside what :mod:`dtrees.engine.protocol.messages` has.

What shards send one another to carry a message out is named by the step that it is of (:class:`~dtrees.engine.protocol.exchange.Step`):
"targets" and "held out" before the first tree; those of trees as :mod:`dtrees.engine.rows.tree` says; "losses" and "scores" after one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.steps import BlockLosses
from dtrees.engine.rows.zone_edges import Edges, Sketches
from dtrees.tree.tree import Tree


@dataclass(frozen=True)
class Introduce(Message):
    """Ask for what a shard has. Reply: :class:`Introduced`. Nodes of up to ``sent_rows`` rows are to be grown by one shard."""

    shard: int
    n_shards: int
    plan: BoostingPlan | ForestPlan
    sent_rows: int
    sketches: bool


@dataclass(frozen=True)
class Open(Message):
    """Open the fit, once shard 0 has found out what follows from all targets. Reply, from shard 0: what the coordinator is to know of it.

    That is :class:`~dtrees.engine.shard.targets.scales.BoostingScales`, or
    :class:`~dtrees.engine.shard.targets.scales.ForestScales`. Parcels: targets and weights, to shard 0; and to each shard what is of
    its rows.

    Attributes
    ----------
    edges : Edges
    stretches : list of ndarray
        Of each shard.
    initial : ndarray of float64, optional
        Of boosting, which only shard 0 needs: as of :meth:`~dtrees.engine.shard.shard.Shard.begin`.
    """

    edges: Edges
    stretches: list[NDArray[np.int64]]
    initial: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Replay(Message):
    """Add a finished tree to the predictions. Reply: None."""

    tree: Tree
    output: int


@dataclass(frozen=True)
class GrowTree(Message):
    """Grow a tree, and add it to the predictions. Reply: :class:`Grown`.

    Every shard takes the steps of the tree (:func:`~dtrees.engine.rows.tree.boosted_tree_steps`). Parcels: those of the steps; and losses
    of rows in blocks that begin on other shards, to these, if ``score`` asks for losses.
    """

    tree: int
    output: int
    learning_rate: float
    score: bool


@dataclass(frozen=True)
class GrowTrees(Message):
    """Grow the trees of a forest that are number ``first`` to ``last - 1`` side by side. Reply: :class:`Grown`."""

    first: int
    last: int


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


class Introduced(NamedTuple):
    """A shard's stretches of rows, shape (n, 2), sketches of its columns, and how many categories they have (None: not asked for)."""

    stretches: NDArray[np.int64]
    sketches: Sketches | None
    n_categories: NDArray[np.int64] | None


class Grown(NamedTuple):
    """What has become of trees.

    Attributes
    ----------
    trees : list of Tree
        From shard 0; from others none.
    checksum : int
        Of the trees.
    losses : BlockLosses or None
        If they were asked for.
    undrawn : float
        What the rows trained on weigh that are not drawn, where rows are drawn for each round.
    score : float or None
        That of the rows held out, if there is one, from shard 0.
    """

    trees: list[Tree]
    checksum: int
    losses: BlockLosses | None = None
    undrawn: float = 0.0
    score: float | None = None
