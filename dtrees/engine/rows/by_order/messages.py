"""What is asked of shards of rows about what leaves hold that follows from the order of residuals, or from other sums than splits do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message
from dtrees.tree.tree import Tree


@dataclass(frozen=True)
class MeasureSizes(Message):
    """Find a quantile of the sizes of residuals of each output, over all rows trained on. Reply: those of the outputs that the shard owns.

    ``output`` is that of the tree that is next. ``n_values`` are at least as many as all shards have of all outputs. Parcels are as of
    :func:`~dtrees.engine.rows.by_order.quantiles.quantiles`.
    """

    serial: int
    output: int
    quantile: float
    n_values: int


@dataclass(frozen=True)
class MeasureLeaves(Message):
    """Find a quantile of the residuals of each leaf of a tree. Reply: :class:`Measured`. Parcels are as of :class:`MeasureSizes`.

    Rows of node ``node[i]`` are in leaf ``leaf[i]`` of the tree, others are looked up; it has ``n_rows`` rows in sample.
    """

    serial: int
    tree: Tree
    output: int
    node: NDArray[np.int64]
    leaf: NDArray[np.int64]
    quantile: float
    n_rows: int


class Measured(NamedTuple):
    """The quantiles of leaves that the shard owns, and what the shard's rows of each leaf weigh, in fixed point."""

    quantiles: NDArray[np.float64]
    weights: NDArray[np.int64]


@dataclass(frozen=True)
class AddDeviations(Message):
    """Go on with sums, in the order of rows, of how far residuals are from their leaf's center, cut off. Reply: the sums.

    It is of one of the shard's stretches, and of the leaves measured last.
    """

    output: int
    stretch: int
    center: NDArray[np.float64]
    cut: float
    totals: NDArray[np.float64]


@dataclass(frozen=True)
class SumLeaves(Message):
    """Ask for the sums of gradients and hessians of the leaves of a tree. Reply: these, shape (n_leaves, 2), of the shard's rows.

    ``node`` and ``leaf`` are as of :class:`MeasureLeaves`, ``exponent`` is of the power of two that hessians are multiplied by.
    """

    tree: Tree
    output: int
    node: NDArray[np.int64]
    leaf: NDArray[np.int64]
    exponent: int
