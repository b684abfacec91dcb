"""What the coordinator and the shards of rows say to each other about forests, beside what :mod:`dtrees.engine.rows.messages` has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.grain import Grain
from dtrees.engine.rows.searching.zone_edges import Edges
from dtrees.tree.tree import Tree


class ForestScales(NamedTuple):
    """What the trees of a forest have in common.

    Attributes
    ----------
    center : float or ndarray of float64, shape (n_targets,)
        What is taken from targets.
    exponents : tuple of int
        The powers of two that targets and weights are multiplied by.
    largest : float
        The largest absolute target, or 1 for classes.
    n_draws : int
        Of each tree; of each class, where draws are balanced; 0 if trees have all rows.
    draw_exponent : int
        Of the power of two that weights are multiplied by, by which rows are drawn.
    points : ndarray of int64, shape (n_groups,)
        What all rows come to, of which draws are made, or those of each class.
    classes : ndarray of int64, shape (n_groups,) or (0,)
        The number of the class of each group; empty if draws are made of all rows.
    """

    center: float | NDArray[np.float64]
    exponents: tuple[int, int]
    largest: float
    n_draws: int
    draw_exponent: int
    points: NDArray[np.int64]
    classes: NDArray[np.int64]


@dataclass(frozen=True)
class OpenForest(Message):
    """Open the fit of a forest. Reply: None. ``stretches`` are those of each shard."""

    edges: Edges
    scales: ForestScales
    stretches: list[NDArray[np.int64]]


class Drawn(NamedTuple):
    """As :class:`~dtrees.engine.rows.steps.Derived`: g are targets, times weights, and h, if a tree has its own, weights.

    ``integral`` says whether these are whole numbers.
    """

    sums: tuple[float, ...]
    largest: tuple[float, ...]
    n_in: int
    integral: bool = True


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
