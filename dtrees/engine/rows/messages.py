"""Messages between the coordinator and shards of rows, besides those of :mod:`dtrees.engine.protocol.messages`.

Payloads between shards are named by their step (:class:`~dtrees.engine.protocol.exchange.Step`): "targets" and "held out" before the first
tree; the names in :mod:`dtrees.engine.rows.tree` during trees; "losses" and "scores" after a tree.
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
    """Request a description of a shard's rows. Reply: :class:`Introduced`. Nodes of up to ``sent_rows`` rows will be grown by one shard."""

    shard: int
    n_shards: int
    plan: BoostingPlan | ForestPlan
    sent_rows: int
    sketches: bool


@dataclass(frozen=True)
class Open(Message):
    """Open the fit, after shard 0 has computed the scales from all targets. Reply of shard 0: the scales for the coordinator.

    The reply is :class:`~dtrees.engine.shard.targets.scales.BoostingScales` or :class:`~dtrees.engine.shard.targets.scales.ForestScales`.
    Payloads: targets and weights to shard 0; from there, to each shard, the arrays of its rows.

    Attributes
    ----------
    edges : Edges
    ranges : list of ndarray
        The row ranges of each shard.
    initial : ndarray of float64, optional
        The initial raw prediction of boosting, for shard 0 only; see :meth:`~dtrees.engine.shard.shard.Shard.begin`.
    """

    edges: Edges
    ranges: list[NDArray[np.int64]]
    initial: NDArray[np.float64] | None = None


class Introduced(NamedTuple):
    """A shard's row ranges, shape (n, 2), sketches of its columns, and their numbers of categories (None if not requested)."""

    ranges: NDArray[np.int64]
    sketches: Sketches | None
    n_categories: NDArray[np.int64] | None
