"""Which rows the splits of a level send left, in tasks for many threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.splits import RouteBits
from dtrees.engine.shard.targets.places import bounds_of
from dtrees.engine.threads import Threads
from dtrees.split.node.limits import SplitLimits
from dtrees.split.node.marking import SplitsOfRows, mark_many
from dtrees.split.node.partition import RowPartition
from dtrees.split.policy import ROUTE_BYTES, THREAD_ROWS
from dtrees.split.search.categories.marking import NodesByCategory, mark_by_category, mark_by_sets
from dtrees.split.search.scratch import Scratch
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.tree.category_sets import CategorySets


def mark_by_threshold(
    threads: Threads,
    columns: AnyColumns,
    rows: NDArray[np.uint32],
    splits: SplitsOfRows,
    by_set: NDArray[np.int64],
) -> RouteBits:
    """Mark the rows that splits send left, but for those splits that have a set of categories: their bits are not written.

    Parameters
    ----------
    threads : Threads
    columns : Columns or SparseColumns
    rows : ndarray of uint32
        By place.
    splits : SplitsOfRows
    by_set : ndarray of int64
        Which splits have a set.
    """
    n_bytes = (splits.stop - splits.start + 7) // 8
    offsets = bounds_of(n_bytes)
    bits = np.empty(offsets[-1], np.uint8)
    step = max(ROUTE_BYTES, int(offsets[-1]) // (2 * threads.n_threads) + 1)
    n_bytes[by_set] = 0
    pieces = [(i, k, min(k + step, n)) for i, n in enumerate(n_bytes.tolist()) for k in range(0, n, step)]
    tasks = np.array(pieces, np.int64).reshape(-1, 3)
    marks = RouteBits(bits, offsets)
    threads.share(
        tasks.shape[0],
        lambda queue, _: mark_many(queue, tasks, columns, splits, rows, marks),
        most=1 + bits.shape[0] * 8 // THREAD_ROWS,
    )
    return marks


def mark_by_number(
    threads: Threads,
    columns: AnyColumns,
    rows: RowPartition,
    splits: SplitsOfRows,
    nodes: NodesByCategory,
    limits: SplitLimits,
    key: np.uint64,
    scratch: Sequence[Scratch],
    marks: RouteBits,
) -> None:
    """Mark the rows that splits of categories send left, which are numbers while a tree grows.

    Parameters
    ----------
    threads : Threads
    columns : Columns or SparseColumns
    rows : RowPartition
    splits : SplitsOfRows
    nodes : NodesByCategory
    limits : SplitLimits
    key : uint64
        Of the tree's stream of random thresholds.
    scratch : sequence of Scratch
        Of each thread.
    marks : RouteBits
        Written for these splits.
    """
    n = nodes.which.shape[0]
    threads.share(
        n,
        lambda queue, thread: mark_by_category(queue, nodes, splits, columns, rows, limits, key, scratch[thread], marks),
        most=min(n, 1 + int((splits.stop - splits.start)[nodes.which].sum()) // THREAD_ROWS),
    )


def mark_by_known_sets(columns: AnyColumns, rows: NDArray[np.uint32], splits: SplitsOfRows, sets: CategorySets, marks: RouteBits) -> None:
    """Mark the rows that splits of categories send left, whose sets are known.

    Parameters
    ----------
    columns : Columns or SparseColumns
    rows : ndarray of uint32
        By place.
    splits : SplitsOfRows
    sets : CategorySets
        Whose nodes are places among ``splits``.
    marks : RouteBits
        Written for these splits.
    """
    side = np.empty(int(np.diff(columns.offsets).max(initial=0)) + 1, np.uint8)
    mark_by_sets(sets, splits, columns, rows, side, marks)
