"""What the coordinator and the shards say to each other, and who carries it.

A message names the fit and the epoch (raised when lost workers are replaced); a shard refuses one of another fit or epoch, so a worker that
was given up and wakes up later can disturb nothing. Messages and replies are picklable, immutable, and hold numbers and arrays only; the
exceptions are the plan that a fit begins with, and trees. What shards send one another to carry a message out is of steps
(:mod:`dtrees.engine.protocol.exchange`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.tree.tree import Tree


class ShardsLost(RuntimeError):
    """Shards are gone, and so is the tree under way; :meth:`Executor.repair` replaces them."""


class StaleMessage(RuntimeError):
    """A message of another fit or epoch."""


class ShardsDisagree(RuntimeError):
    """Shards that must agree about a tree do not: about its rows, how many of them a split sends left, or the finished tree."""


@dataclass(frozen=True)
class Message:
    """What every message carries."""

    fit: str
    epoch: int


@dataclass(frozen=True)
class Open(Message):
    """Open the fit on shards of columns, or, in a new epoch, go on with it: trees under way are forgotten. Reply: :class:`Opened`.

    Attributes
    ----------
    shard, n_shards : int
        Which of how many this is.
    plan : BoostingPlan or ForestPlan
    initial : ndarray of float64 or None
        The raw prediction to start from, shape (K,), or that of each row, shape (K, n_rows); None lets the loss choose (boosting).
    n_slots : int
        The trees that will grow side by side; 0 for one at a time.
    least, most : int
        How many finished trees the state may be of that shards go on with (:meth:`~dtrees.engine.shard.fit.ColumnsFit.catch_up`).
    """

    shard: int
    n_shards: int
    plan: BoostingPlan | ForestPlan
    initial: NDArray[np.float64] | None
    n_slots: int = 0
    least: int = 0
    most: int = 0


class Opened(NamedTuple):
    """How many finished trees shards know, and the raw prediction that boosting starts from, shape (K,)."""

    n_finished: int
    initial: NDArray[np.float64]


@dataclass(frozen=True)
class Replay(Message):
    """Add a finished tree, by its place in its round, to the predictions. Reply: None."""

    tree: Tree
    place: int


@dataclass(frozen=True)
class GrowTree(Message):
    """Grow a tree of boosting, and add it to the predictions; ``score`` asks for losses afterwards. Reply: :class:`Grown`."""

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
    """Sums for the shard's rows, shape (n_rows, n_values), of how many trees they are, shape (n_rows,), and their power of two."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    exponent: int


class Grown(NamedTuple):
    """What has become of trees.

    Attributes
    ----------
    trees : list of Tree
        From shard 0; from others none.
    checksum : int
        Of the trees.
    losses : Losses or BlockLosses or None
        If they were asked for: of a share of all rows, or of the shard's rows.
    undrawn : float
        What the rows trained on weigh that are not drawn, where rows are drawn for each round.
    score : float or None
        That of the rows held out, if there is one, from shard 0.
    """

    trees: list[Tree]
    checksum: int
    losses: Any = None
    undrawn: float = 0.0
    score: float | None = None


class Root(NamedTuple):
    """A tree's root: its rows in sample and in all, its sums, and the powers of two that the two sums were multiplied by.

    Over shards of rows also the largest slope of a row, the shift of sizes in sums by zones, and what splits gain by chance
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

    Shape (n,); centres of several targets are of shape (n, n_targets), and spreads means over these.
    """

    center: NDArray[np.float64]
    spread: NDArray[np.float64]


class Scores(NamedTuple):
    """Mean loss on the rows trained on, on those held out (NaN for none; or their score), on those not drawn, and theirs before round 0."""

    train: float
    validation: float
    out_of_bag: float = 0.0
    before: float = 0.0


NO_SCORES = Scores(np.nan, np.nan)


class Losses(NamedTuple):
    """Sums of weighted losses over blocks of rows, shape (n_blocks, n_parts), and the weight of all such rows, for each part of the scores.

    ``score`` is that of the rows held out, where it is asked for, from the shard that adds up the last block.
    """

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    score: float | None = None


class Executor(Protocol):
    """What carries messages to shards, and knows nothing of what they say.

    Attributes
    ----------
    places_rows : bool
        Whether shards have rows of the table, not columns of it.
    n_shards : int
    n_rows, n_columns : int
        Of the whole table.
    """

    places_rows: bool
    n_shards: int
    n_rows: int
    n_columns: int

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Have some shards carry out messages together; return all replies.

        Raises
        ------
        ShardsLost
        """

    def wants_repair(self) -> bool:
        """Tell whether shards are to be replaced before the next tree."""

    def repair(self) -> None:
        """Replace shards that are gone by new ones with the same part of the table, which know nothing of the fit yet.

        Raises
        ------
        ShardsLost
            If further ones went meanwhile.
        """

    def close(self) -> None:
        """Release what the executor holds."""
