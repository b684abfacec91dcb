"""Values of rows with the sums of the rows of each, as shards pick them, and as searchers merge them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO
from dtrees.split.compile.specialised import specialised
from dtrees.split.zones.over_shards.many_sums.elements import add_row


@by_reference
class ValueSums(NamedTuple):
    """Values with moments.

    Attributes
    ----------
    values : ndarray of float64
    g, h : ndarray of int64
        ``h`` is empty where every weight is 1.
    n : ndarray of uint32
        Numbers of rows.
    """

    values: NDArray[np.float64]
    g: NDArray[np.int64]
    h: NDArray[np.int64]
    n: NDArray[np.uint32]


@by_reference
class ValueElements(NamedTuple):
    """Values where many numbers are summed.

    Attributes
    ----------
    values : ndarray of float64
    elements : ndarray of int64, shape (n_values, width)
        See :mod:`dtrees.split.zones.over_shards.many_sums.elements`.
    """

    values: NDArray[np.float64]
    elements: NDArray[np.int64]


@specialised
def open_value(out: Any, at: Any, value: Any) -> Any:
    """Have the place ``at`` hold a value that has no rows yet."""


@open_value.of(ValueSums)
def _(out, at, value):
    out.values[at], out.g[at], out.n[at] = value, 0, 0
    if out.h.shape[0] > 0:
        out.h[at] = 0


@open_value.of(ValueElements)
def _(out, at, value):
    out.values[at] = value
    out.elements[at] = 0


@specialised
def add_shard_row(out: Any, at: Any, rows: Any, place: Any) -> Any:
    """Add the row of a place of a shard's partition to the value at ``at``."""


@add_shard_row.of(ValueSums)
def _(out, at, rows, place):
    out.g[at] += rows.partition.g[place]
    out.n[at] += np.uint32(1)
    if out.h.shape[0] > 0:
        out.h[at] += rows.partition.h[place]


@add_shard_row.of(ValueElements)
def _(out, at, rows, place):
    weighted = rows.partition.h.shape[0] > 0
    weight = rows.partition.h[place] if weighted else ZERO() + 1
    add_row(out.elements[at], rows.partition.g[place], weight, weighted, rows.targets, rows.n_classes)


@specialised
def add_value(out: Any, at: Any, runs: Any, i: Any) -> Any:
    """Add the rows of the i-th value of others to the value at ``at``."""


@add_value.of(ValueSums)
def _(out, at, runs, i):
    out.g[at] += runs.g[i]
    out.n[at] += runs.n[i]
    if out.h.shape[0] > 0:
        out.h[at] += runs.h[i]


@add_value.of(ValueElements)
def _(out, at, runs, i):
    for k in range(runs.elements.shape[1]):
        out.elements[at, k] += runs.elements[i, k]
