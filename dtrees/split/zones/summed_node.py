"""A node that is searched by its zone sums, as the functions that search it get it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.partition import RowPartition
from dtrees.split.search.node_column import NO_BITS, NodeColumn
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.sums import Sums


class SummedNode(NamedTuple):
    """A node, and its sums by zone.

    Attributes
    ----------
    zone_map : ZoneMap
    ids : ndarray of int32, shape (n_columns,)
        The numbers of the table's columns.
    sums : Sums
    partition : RowPartition
        That the node's rows lie in.
    place : (start, in_stop, slot)
        Where its in-sample rows are, and its slot among ``sums``.
    node_sums : ndarray of int64, shape (n_sums,)
        What all its rows add up to.
    """

    zone_map: ZoneMap
    ids: NDArray[np.int32]
    sums: Sums
    partition: RowPartition
    place: tuple[int, int, int]
    node_sums: NDArray[np.int64]


@inlined_kernel
def moments_of(summed):
    """Return the sums of a node as moments."""
    start, in_stop, _ = summed.place
    return Moments(summed.node_sums[0], summed.node_sums[1], in_stop - start)


@inlined_kernel
def with_column(summed, columns, column):
    """Return the pair of a node and a column of its table."""
    start, in_stop, _ = summed.place
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    return NodeColumn(columns.codes[column], values, summed.partition, start, in_stop, summed.node_sums, NO_BITS)
