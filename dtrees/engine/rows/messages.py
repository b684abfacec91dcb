"""What the coordinator and the shards of rows say to each other, beside what :mod:`dtrees.engine.protocol.messages` has.

A message that shards send one another parcels about has the ``serial`` number of its exchange. Parcels are named by the step that they are
of (:class:`~dtrees.engine.rows.exchange.Step`): "targets" and "held out" before the first tree; those of trees as
:mod:`dtrees.engine.rows.growing` says; "losses" and "scores" after one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.grain import Grain
from dtrees.engine.rows.searching.zone_edges import Edges, Sketches
from dtrees.engine.rows.steps import BlockLosses
from dtrees.engine.shard.targets.boosting_scales import BoostingScales
from dtrees.tree.tree import Tree


@dataclass(frozen=True)
class Introduce(Message):
    """Ask for what a shard has. Reply: :class:`Introduced`."""

    shard: int
    n_shards: int
    plan: BoostingPlan | ForestPlan
    sketches: bool


@dataclass(frozen=True)
class Prepare(Message):
    """Have shard 0 find out what follows from all targets.

    Reply, from shard 0, else None: :class:`~dtrees.engine.shard.targets.boosting_scales.BoostingScales`, or
    :class:`~dtrees.engine.shard.targets.forest_scales.ForestScales`.

    Parcels: targets and weights, to shard 0; which rows are held out, to each shard, and which rows of all may be drawn for a round, if not
    all may; for a forest that draws rows, what the rows before each stretch of the shard come to; for one of several targets, the numbers
    of rows that differ in some target. ``initial``, which only shard 0 needs, is as of
    :class:`~dtrees.engine.protocol.messages.Begin`, None for a forest.
    """

    serial: int
    initial: NDArray[np.float64] | None


@dataclass(frozen=True)
class Open(Message):
    """Open the fit. Reply: None.

    ``scales.initial`` is of all rows, shape (K,), or of the shard's, shape (K, n); ``elsewhere`` and ``helpers`` are as
    :func:`~dtrees.engine.rows.between.torn_blocks.meetings` says; ``stretches`` are those of each shard.
    """

    scales: BoostingScales
    edges: Edges
    elsewhere: dict[int, int]
    helpers: list[int]
    stretches: list[NDArray[np.int64]]


@dataclass(frozen=True)
class Replay(Message):
    """Add a finished tree to the predictions. Reply: None."""

    tree: Tree
    output: int


@dataclass(frozen=True)
class GrowTree(Message):
    """Grow a tree, and add it to the predictions. Reply: :class:`Grown`.

    Every shard takes the steps of the tree (:func:`~dtrees.engine.rows.tree.boosted_tree_steps`). Parcels: those of the steps; and losses
    of rows in blocks that begin on other shards, to these.

    Attributes
    ----------
    serial : int
        Those of the exchanges of the tree come after it.
    tree, output : int
        As of ``Start``.
    learning_rate : float
    score : bool
        Whether losses are wanted.
    sent_rows : int
        Up to how many rows a node is grown by one shard.
    grain : Grain
        How finely nodes are summed.
    """

    serial: int
    tree: int
    output: int
    learning_rate: float
    score: bool
    sent_rows: int
    grain: Grain


class Introduced(NamedTuple):
    """A shard's stretches of rows, shape (n, 2), sketches of its columns, and how many categories they have (None: not asked for)."""

    stretches: NDArray[np.int64]
    sketches: Sketches | None
    n_categories: NDArray[np.int64] | None


class Grown(NamedTuple):
    """What has become of a tree.

    Attributes
    ----------
    tree : Tree or None
        From shard 0.
    checksum : int
        Of the tree.
    serial : int
        Of the last exchange.
    grain : Grain
        For the next tree.
    losses : BlockLosses or None
        If they were asked for.
    undrawn : float
        What the rows trained on weigh that are not drawn, where rows are drawn for each round.
    score : float or None
        That of the rows held out, if there is one, from shard 0.
    """

    tree: Tree | None
    checksum: int
    serial: int
    grain: Grain
    losses: BlockLosses | None
    undrawn: float = 0.0
    score: float | None = None
