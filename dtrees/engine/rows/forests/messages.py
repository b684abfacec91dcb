"""What shards of rows tell one another, and the coordinator, of the trees of a forest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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


class Drawn(NamedTuple):
    """As :class:`~dtrees.engine.rows.steps.Derived`: g are targets, times weights, and h, if a tree has its own, weights.

    ``integral`` says whether these are whole numbers.
    """

    sums: tuple[float, ...]
    largest: tuple[float, ...]
    n_in: int
    integral: bool = True


class Votes(NamedTuple):
    """Sums for the shard's rows, in fixed point, shape (n_rows, n_values), and of how many trees they are, shape (n_rows,)."""

    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
