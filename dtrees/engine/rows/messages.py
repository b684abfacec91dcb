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
from dtrees.engine.rows.zone_edges import Edges, Sketches


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
    :class:`~dtrees.engine.shard.targets.scales.ForestScales`. Payloads: targets and weights, to shard 0; and to each shard what is of
    its rows.

    Attributes
    ----------
    edges : Edges
    ranges : list of ndarray
        Of each shard.
    initial : ndarray of float64, optional
        Of boosting, which only shard 0 needs: as of :meth:`~dtrees.engine.shard.shard.Shard.begin`.
    """

    edges: Edges
    ranges: list[NDArray[np.int64]]
    initial: NDArray[np.float64] | None = None


class Introduced(NamedTuple):
    """A shard's ranges of rows, shape (n, 2), sketches of its columns, and how many categories they have (None: not asked for)."""

    ranges: NDArray[np.int64]
    sketches: Sketches | None
    n_categories: NDArray[np.int64] | None
