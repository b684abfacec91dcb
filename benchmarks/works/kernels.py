"""What kernels cost for a row and column, for those who optimise them.

Each kernel is prepared by a function of the number of rows, which returns a call and the number of cells that it goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dtrees
from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run
from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO
from dtrees.split.compile.kernels import kernel as compiled
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.statistics import Moments, no_moments
from dtrees.split.grow.block import fill_block, make_block
from dtrees.split.node import partition
from dtrees.split.node.limits import NO_CATEGORIES, BestThreshold, SplitLimits
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import NONE_HIGHER, NodesOfTree, empty_candidates
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import to_fixed
from dtrees.split.policy import BLOCK_ROWS
from dtrees.split.search.column import search_many
from dtrees.split.search.scratch import make_scratch
from dtrees.split.search.sweep import SortedRows, sweep_sorted
from dtrees.split.table.columns import Columns, presort, presort_column
from dtrees.split.table.sorting import RADIX, sort_places


@compiled
def _sort(codes, rows, start, in_stop, keys, spare, counts):  # type: ignore[no-untyped-def]
    sort_places(codes, rows, start, in_stop, keys, spare, counts)


@compiled
def _sweep(limits, keys, partition, root, scratch):  # type: ignore[no-untyped-def]
    rows = SortedRows(keys, ZERO(), keys.shape[0], partition.g, partition.h, ZERO())
    found, none = scratch.found, no_moments()
    return sweep_sorted(limits, rows, none, none, root, NONE_HIGHER, -1.0, found.left, found)


class _Limits(NamedTuple):
    thresholds: BestThreshold


@by_reference
class _Filling(NamedTuple):
    """What :func:`~dtrees.split.grow.block.fill_block` reads of a task."""

    limits: _Limits
    pool: Any
    partition: Any
    target: Any
    block: Any
    scratch: Any


@compiled
def _fill(columns, task, start, in_stop, stop):  # type: ignore[no-untyped-def]
    fill_block(columns, task, start, in_stop, stop)


Prepared = tuple[Callable[[], Any], int]
_KERNELS: dict[str, tuple[str, int, Callable[[int], Prepared]]] = {}


def kernel(name: str, cell: str = "row and column", of: int = 1) -> Callable[[Callable[[int], Prepared]], Callable[[int], Prepared]]:
    """Register a kernel; ``cell`` says what is counted, and it is given the number of rows divided by ``of``."""

    def register(prepare: Callable[[int], Prepared]) -> Callable[[int], Prepared]:
        _KERNELS[name] = (cell, of, prepare)
        return prepare

    return register


@benchmark("kernels")
def kernels(run: Run) -> Iterator[Yielded]:
    """Nanoseconds a row and column of each kernel, on one core."""
    n = run.size(tiny=3_000, small=100_000, full=1_000_000)
    for name, (cell, of, prepare) in _KERNELS.items():
        call, n_cells = prepare(n // of)
        call()
        measure = run.measure({name: call})[name]
        scale = 1e9 / n_cells
        yield Row(f"kernel: {name}", "", None, Measure(measure.median * scale, measure.spread * scale, measure.n, f"ns a {cell}"))


@dataclass(frozen=True)
class Node:
    """A column, and a root of all its rows with gradients to search it for.

    ``partition`` has the rows in order, gradients in fixed point, and all hessians 1.
    """

    columns: Columns
    partition: RowPartition
    sums: NDArray[np.int64]
    limits: SplitLimits

    @classmethod
    def of(cls, x: NDArray[Any]) -> Node:
        """Return the root over a column."""
        n = x.shape[0]
        g, _ = to_fixed(np.sin(x.astype(np.float64)) + np.random.default_rng(1).standard_normal(n))
        rows = RowPartition(np.arange(n, dtype=np.uint32), g, np.empty(0, np.int64))
        limits = SplitLimits(
            BestThreshold(), float(np.abs(g).max()), 1, 1, 0.0, NO_CATEGORIES, criterion_named("newton").for_kernels(0, 1.0)
        )
        return cls(presort([x]), rows, np.array([g.sum(), n]), limits)

    @property
    def n_distinct(self) -> int:
        """Number of distinct values of the column."""
        return int(self.columns.offsets[1])

    def search(self, n_nodes: int = 1) -> Prepared:
        """Prepare the search of the column for the best split of the root, or of as many nodes of equal size."""
        n = self.columns.n_rows
        bounds = np.linspace(0, n, n_nodes + 1).astype(np.int64)
        sums = np.array([[self.partition.g[i:j].sum(), j - i] for i, j in pairwise(bounds)])
        tasks = np.stack([np.arange(n_nodes), np.zeros(n_nodes, np.int64)], axis=1)
        scratch = make_scratch(n, self.n_distinct, 0)
        found = empty_candidates(n_nodes, 2)
        paths, key = np.full(n_nodes, hashing.ROOT), np.uint64(1)
        ids = np.zeros(1, np.int32)
        nodes = NodesOfTree(self.partition, bounds[:-1].copy(), bounds[1:].copy(), sums, paths, key)
        return lambda: search_many(self.columns, ids, tasks, 0, n_nodes, nodes, self.limits, scratch, found), n


def normal(n: int, dtype: Any = np.float32) -> NDArray[Any]:
    """Return a column of many values."""
    return np.random.default_rng(0).standard_normal(n).astype(dtype)


@kernel("sort, by NumPy's argsort of float32, for comparison")
def argsort(n: int) -> Prepared:
    """A floor for presorting."""
    x = normal(n)
    return lambda: np.argsort(x), n


@kernel("presort, float32")
def presort_float32(n: int) -> Prepared:
    """Sorting a column and numbering its values."""
    x, codes = normal(n), np.empty(n, np.uint32)
    return lambda: presort_column(x, codes), n


@kernel("presort, float64")
def presort_float64(n: int) -> Prepared:
    """Sorting a column of values that need all their bits."""
    x, codes = normal(n, np.float64), np.empty(n, np.uint32)
    return lambda: presort_column(x, codes), n


@kernel("sort a node's rows by code")
def sort_rows(n: int) -> Prepared:
    """Radix sort."""
    node = Node.of(normal(n))
    keys, spare, counts = np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty(RADIX, np.int64)
    return lambda: _sort(node.columns.codes[0], node.partition.rows, 0, n, keys, spare, counts), n


@kernel("sweep of sorted rows")
def sweep(n: int) -> Prepared:
    """The gain between every two neighbouring values."""
    node = Node.of(normal(n))
    keys, counts = np.empty(n, np.uint64), np.empty(RADIX, np.int64)
    _sort(node.columns.codes[0], node.partition.rows, 0, n, keys, np.empty(n, np.uint64), counts)
    root, scratch = Moments(node.sums[0], node.sums[1], np.int64(n)), make_scratch(n, node.n_distinct, 0)
    return lambda: _sweep(node.limits, keys, node.partition, root, scratch), n


@kernel("search of a root, many values")
def search_root(n: int) -> Prepared:
    """By sorting."""
    return Node.of(normal(n)).search()


@kernel("search of a root, 50 values")
def search_few_values(n: int) -> Prepared:
    """By bins."""
    return Node.of(np.round(normal(n) * 8)).search()


@kernel("search of nodes of 500 rows, many values")
def search_small_nodes(n: int) -> Prepared:
    """By sorting in the node."""
    return Node.of(normal(n)).search(max(1, n // 500))


@kernel("partition: a bit a row, then divide")
def divide(n: int) -> Prepared:
    """Applying a split to a root. The second time the rows are divided already, and stay so: every call does the same."""
    node = Node.of(normal(n))
    codes, cut = node.columns.codes[0], node.n_distinct // 2
    bits = np.empty((n + 7) // 8, np.uint8)
    spare = node.partition.spare(n)

    def call() -> None:
        partition.mark_left(codes, partition.Cut(cut, node.n_distinct, False), node.partition.rows, 0, n, bits)
        partition.divide(bits, node.partition, 0, n, n, spare)

    return call, n


@kernel("block: copy and sort the rows of a small node")
def block(n: int) -> Prepared:
    """Filling a block, which every node of up to some thousand rows begins with."""
    m = min(n, BLOCK_ROWS)
    X, y = synthetic(n)
    columns = presort(list(X.T))
    root = Node.of(X[:, 0]).partition
    pool = np.arange(N_COLUMNS, dtype=np.int32)
    block, scratch = make_block(m, 0, False, pool, columns, False, 0), make_scratch(m, m, 0)
    task = _Filling(_Limits(BestThreshold()), pool, root, y, block, scratch)
    return lambda: _fill(columns, task, 0, m, m), m * N_COLUMNS


@kernel("trees of full depth on 3,000 rows, a level", of=10)
def subtree(n: int) -> Prepared:
    """Trees of full depth on small tables, presorting included; a row and column of a level."""
    m = min(n, 3_000)
    X, y = synthetic(m)
    tree = dtrees.DecisionTreeRegressor()
    depth = tree.fit(X, y).get_depth()
    return lambda: tree.fit(X, y), m * N_COLUMNS * max(1, depth)


@kernel("boosting of 10 trees of depth 6, a level")
def level(n: int) -> Prepared:
    """Fits of ten rounds, presorting included, over the levels of their trees."""
    X, y = synthetic(n)
    n_trees, depth = 10, 6
    return lambda: libraries.our_boosting(n_trees, 1).fit(X, y), n * N_COLUMNS * n_trees * depth


@kernel("prediction, boosting of 100 trees of depth 6", "row and tree", of=10)
def predict_boosting(n: int) -> Prepared:
    """A row through a tree."""
    X, y = synthetic(n)
    model = libraries.our_boosting(100, 1).fit(X[:2_000], y[:2_000])
    return lambda: model.predict(X), n * 100


@kernel("prediction, 10 full trees of 20,000 rows", "row and tree", of=10)
def predict_forest(n: int) -> Prepared:
    """A row through a deep tree."""
    X, y = synthetic(n)
    model = dtrees.RandomForestRegressor(10, random_state=0, n_jobs=1).fit(X[:20_000], y[:20_000])
    return lambda: model.predict(X), n * 10
