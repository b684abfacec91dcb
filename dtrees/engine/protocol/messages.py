"""Messages between the coordinator and the shards, and the interface of executors that carry them.

A message names the fit and the epoch, which increases when lost workers are replaced. A shard refuses messages of another fit or epoch, so
a worker that was replaced and wakes up later has no effect. Messages and replies are picklable, immutable, and hold numbers and arrays
only, except for the plan and trees. The data that shards exchange with each other to carry out a message belong to steps
(:mod:`dtrees.engine.protocol.exchange`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.tree.tree import Tree


class ShardsLost(RuntimeError):
    """Shards were lost, and with them the unfinished tree; :meth:`Executor.repair` replaces them."""


class StaleMessage(RuntimeError):
    """A message of another fit or epoch."""


class ShardsDisagree(RuntimeError):
    """Shards disagree about a tree: about its rows, the number of rows that a split sends left, or the finished tree."""


@dataclass(frozen=True)
class Message:
    """The fields of every message."""

    fit: str
    epoch: int


@dataclass(frozen=True)
class Open(Message):
    """Open the fit on shards, or continue it in a new epoch, without unfinished trees. Reply: :class:`Opened`.

    Attributes
    ----------
    shard, n_shards : int
        The number of this shard, and of all.
    plan : BoostingPlan or ForestPlan
    initial : ndarray of float64 or None
        The initial raw prediction, shape (K,), or that of each row, shape (K, n_rows); None lets the loss choose (boosting). Of the shards
        of rows, only shard 0 receives it.
    n_side_by_side : int
        The number of trees that grow side by side; 0 for one at a time.
    least, most : int
        The range of the number of finished trees that the restored state may contain
        (:mod:`dtrees.engine.run.lasting`).
    edges : Edges or None
        The edges of zones of shards of rows, if they are known from an earlier epoch.
    """

    shard: int
    n_shards: int
    plan: BoostingPlan | ForestPlan
    initial: NDArray[np.float64] | None
    n_side_by_side: int = 0
    least: int = 0
    most: int = 0
    edges: Any = None


class Opened(NamedTuple):
    """The number of finished trees that shards know, and the initial raw prediction of boosting, shape (K,).

    Shard 0 of shards of rows also replies the edges of zones, if these were not known, and the row ranges of each shard.
    """

    n_finished: int
    initial: NDArray[np.float64]
    edges: Any = None
    ranges: Sequence[NDArray[np.int64]] = ()


@dataclass(frozen=True)
class Replay(Message):
    """Add a finished tree, given its place in its round, to the predictions. Reply: None."""

    tree: Tree
    place: int


@dataclass(frozen=True)
class GrowTree(Message):
    """Grow a tree of boosting, and add it to the predictions; with ``score``, compute losses afterwards. Reply: :class:`Grown`."""

    tree: int
    output: int
    learning_rate: float
    score: bool


@dataclass(frozen=True)
class GrowTrees(Message):
    """Grow the trees ``first`` to ``last - 1`` of a forest side by side. Reply: :class:`Grown`."""

    first: int
    last: int


@dataclass(frozen=True)
class AddVotes(Message):
    """Add the out-of-bag predictions of trees of a forest, from number ``first`` on, to their sums. Reply: None."""

    first: int
    trees: list[Tree]


@dataclass(frozen=True)
class CountVotes(Message):
    """Request the out-of-bag sums. Reply: :class:`Votes`."""


class Votes(NamedTuple):
    """Out-of-bag sums of the shard's rows, shape (n_rows, n_values), how many trees they sum, shape (n_rows,), and their exponent."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    exponent: int


class Grown(NamedTuple):
    """The result of growing trees.

    Attributes
    ----------
    trees : list of Tree
        The trees, from shard 0; empty from other shards.
    checksum : int
        The checksum of the trees.
    losses : Losses or None
        If requested, the losses of some blocks of rows.
    """

    trees: list[Tree]
    checksum: int
    losses: Losses | None = None


class Root(NamedTuple):
    """The root of a tree: its rows in sample and in all, its sums, and the exponents of the powers of two that scale the two sums.

    Over shards of rows also the largest slope of a row, the shift of sizes in zone sums, and the expected gain of a split by chance
    (:func:`~dtrees.engine.plan.node_limits.noise_of`).
    """

    n_in: int
    n_rows: int
    sums: NDArray[np.int64]
    exponents: tuple[int, int]
    slope: float = 0.0
    shift: int = 0
    noise: float = 0.0


class Measured(NamedTuple):
    """Mean target and weighted sum of squares about it, or median and sum of absolute deviations; in units of the weights.

    Shape (n,); for multi-output targets, centers have shape (n, n_targets), and spreads are means over targets.
    """

    center: NDArray[np.float64]
    spread: NDArray[np.float64]


class Scores(NamedTuple):
    """Mean loss of the training rows, of held-out rows (NaN if none; or a score), of undrawn rows, and of the latter before round 0."""

    train: float
    validation: float
    out_of_bag: float = 0.0
    before: float = 0.0


NO_SCORES = Scores(np.nan, np.nan)


class Losses(NamedTuple):
    """Sums of weighted losses over blocks of rows, shape (n_blocks, n_parts), and the weight of all rows of each part of the scores.

    ``score`` is the score of the held-out rows if requested, from shard 0. ``block`` has the numbers of the blocks, unless the blocks of
    all shards are in order.
    """

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    score: float | None = None
    block: NDArray[np.int64] | None = None


class Executor(Protocol):
    """Carries messages to shards, independent of their content.

    Attributes
    ----------
    places_rows : bool
        Whether shards hold rows of the table, not columns.
    n_shards : int
    n_rows, n_columns : int
        Size of the whole table.
    """

    places_rows: bool
    n_shards: int
    n_rows: int
    n_columns: int

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Have some shards carry out messages together; return their replies.

        Raises
        ------
        ShardsLost
        """

    def wants_repair(self) -> bool:
        """Return whether shards should be replaced before the next tree."""

    def repair(self) -> None:
        """Replace lost shards by new ones with the same part of the table, which have no state of the fit yet.

        Raises
        ------
        ShardsLost
            If further shards are lost meanwhile.
        """

    def close(self) -> None:
        """Release the resources of the executor."""
