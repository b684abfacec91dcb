"""What the coordinator and the shards of rows say to each other about forests, beside what :mod:`dtrees.engine.rows.messages` has.

What is about a tree travels in :class:`~dtrees.engine.protocol.messages.Many`, with the slot of the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message
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
    """Open the fit of a forest. Reply: None."""

    edges: Edges
    scales: ForestScales


@dataclass(frozen=True)
class CountClasses(Message):
    """Draw the rows of a tree of a forest, and count the draws of each class, of all targets.

    Reply: ndarray of int64, shape (n_classes,).
    """

    tree: int


@dataclass(frozen=True)
class Draw(Message):
    """Draw the rows of a tree of a forest. Reply: :class:`Drawn`.

    Where a tree weighs the classes of its own rows, ``factor`` is by how much the draws of each class count.
    """

    tree: int
    factor: NDArray[np.float64] | None = None


class Drawn(NamedTuple):
    """As :class:`~dtrees.engine.rows.messages.Derived`: g are targets, times weights, and h, if a tree has its own, weights.

    ``integral`` says whether these are whole numbers.
    """

    sums: tuple[float, ...]
    largest: tuple[float, ...]
    n_in: int
    integral: bool = True


@dataclass(frozen=True)
class MeasureMeans(Message):
    """Find the means of the targets of the leaves of a tree of a forest, and their spreads. Reply: :class:`LeafMeans`.

    Parcels: rows of leaves, to the shards that measure these: shard i those from ``begins[i]`` to ``begins[i + 1]``. ``node`` and ``leaf``
    are as of :class:`~dtrees.engine.rows.by_order.messages.MeasureLeaves`.
    """

    serial: int
    tree: Tree
    node: NDArray[np.int64]
    leaf: NDArray[np.int64]
    begins: NDArray[np.int64]


class LeafMeans(NamedTuple):
    """Of each leaf that the shard has measured, in their order: the mean of each target, shape (n, n_targets), and the spread."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]


@dataclass(frozen=True)
class AddVotes(Message):
    """Add what a tree of a forest says of the rows that it did not draw to their sums. Reply: None."""

    number: int
    tree: Tree


@dataclass(frozen=True)
class CountVotes(Message):
    """Ask for these sums. Reply: :class:`Votes`."""


class Votes(NamedTuple):
    """Sums for the shard's rows, in fixed point, shape (n_rows, n_values), and of how many trees they are, shape (n_rows,)."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
