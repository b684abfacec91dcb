"""Prediction: passes blocks of rows through trees.

A block of rows passes through all trees of a :class:`~dtrees.tree.packing.Packed`, so that block and tree stay in the cache. The first
levels of a tree are evaluated completely, by comparing many rows at once. Below them, all rows of the block that have not reached their
leaf advance level by level, side by side, so that the processor waits for many nodes at a time. A small number of rows passes row by
row, through all trees side by side.

Values are added tree by tree, in order, separately for each row: predictions do not depend on blocks or threads.

Rows of a sparse table are converted to dense blocks of the columns that trees use:

>>> rows = csr_array([[5.0, 0.0, 0.0, 7.0], [0.0, 0.0, 0.0, 0.0]])
>>> [block.tolist() for _, block in dense_blocks(rows, 0, 2, np.array([1, 3]))]
[[[0.0, 7.0], [0.0, 0.0]]]
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dtrees.split.compile.kernels import bind, inner_kernel, kernel
from dtrees.split.compile.memory import prefetch
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.packing import Packed, add_leaves, pack
from dtrees.tree.predict_sets import PackedWithSets, pack_with_sets, visit_with_sets
from dtrees.tree.tree import Tree

#: Bytes of a block of sparse rows, and the fewest rows.
_DENSE_BYTES, _FEWEST_ROWS = 2**22, 16


#: Rows to be predicted; a sparse table is CSR with at most one cell for a row and column.
Table: TypeAlias = NDArray[Any] | csr_array


def dense_blocks(X: csr_array, first: int, last: int, columns: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the rows ``first:last`` of some columns of a sparse table as arrays, each with the number of its first row."""
    place_of = np.full(X.shape[1], -1, np.int64)
    place_of[columns] = np.arange(columns.shape[0])
    step = max(_FEWEST_ROWS, _DENSE_BYTES // (X.dtype.itemsize * (columns.shape[0] + 1)))
    for start in range(first, last, step):
        stop = min(start + step, last)
        block = np.zeros((columns.shape[0], stop - start), X.dtype)  # trees use one column after the other
        arguments = X.indptr[start : stop + 1].astype(np.int64), X.indices, X.data, place_of, block
        bind(_fill_dense, *arguments, any_layout=(X.indices, X.data))(*arguments)
        yield start, block.T


@kernel
def _fill_dense(starts, columns, data, place_of, block):
    """Write the cells of rows to a block of zeros, column by column."""
    for i in range(block.shape[1]):
        for k in range(starts[i], starts[i + 1]):
            place = place_of[columns[k]]
            if place >= 0:
                block[place, i] = data[k]


#: Rows of a block, at most, and bytes of their slots, at most.
_BLOCK, _BLOCK_BYTES = 512, 2**18
#: The same for a chunk.
_CHUNK, _CHUNK_BYTES = 2**15, 2**24
#: Up to this many rows pass through the trees row by row.
_FEW_ROWS = 16
#: Rows times trees for which starting threads pays.
SERIAL_WORK = 50_000
#: If the numbers of leaves are not needed.
_NO_NUMBERS = np.empty((0, 0), np.int32)


@inner_kernel
def _sizes(packed, X):
    """Return the number of rows of a block, and the number of blocks of a chunk of rows.

    A tree is fetched once for all blocks of a chunk: chunks are larger for large trees.
    """
    row_bytes = X.itemsize * 2 * packed.feature.shape[0]
    n_rows = min(_BLOCK, max(_FEW_ROWS, _BLOCK_BYTES // row_bytes))
    tree_nodes = packed.nodes.shape[0] // (packed.roots.shape[0] - 1)
    return n_rows, max(1, min(tree_nodes // 4, _CHUNK, _CHUNK_BYTES // row_bytes) // n_rows)


@inner_kernel
def _fill_slots(packed, X, first, n, slots):
    """Copy rows into slots, and return the shift that turns the number of a slot into its index.

    Without missing values one copy of a column serves both of its slots, which takes less of the cache.
    """
    missing = False
    slots[0, :n] = 0.0
    for k in range(1, packed.feature.shape[0]):
        feature = packed.feature[k]
        for i in range(n):
            x = X[first + i, feature]
            slots[k, i] = x
            missing |= x != x
    if not missing:
        return np.uint64(1)
    slots[1, :n] = 0.0
    for k in range(1, packed.feature.shape[0]):
        feature = packed.feature[k]
        for i in range(n):
            x = X[first + i, feature]
            slots[2 * k, i] = x
            slots[2 * k + 1, i] = -np.inf if x != x else x
    return np.uint64(0)


@inner_kernel
def _storey(slot, threshold, slots, shift, n, above, number, end):
    """Evaluate seven nodes, three levels, for the rows whose ``above`` is ``number``; add the index of the end that they reach."""
    s0, s1, s2, s3 = slot[0] >> shift, slot[1] >> shift, slot[2] >> shift, slot[3] >> shift
    s4, s5, s6 = slot[4] >> shift, slot[5] >> shift, slot[6] >> shift
    t0, t1, t2, t3, t4, t5, t6 = threshold[0], threshold[1], threshold[2], threshold[3], threshold[4], threshold[5], threshold[6]
    for i in range(n):
        # All seven are compared: there are no branches, so the loop is vectorised.
        end3 = np.int32(0) if slots[s3, i] <= t3 else np.int32(1)
        end4 = np.int32(2) if slots[s4, i] <= t4 else np.int32(3)
        end5 = np.int32(4) if slots[s5, i] <= t5 else np.int32(5)
        end6 = np.int32(6) if slots[s6, i] <= t6 else np.int32(7)
        end1 = end3 if slots[s1, i] <= t1 else end4
        end2 = end5 if slots[s2, i] <= t2 else end6
        end0 = end1 if slots[s0, i] <= t0 else end2
        end[i] = number + end0 if above[i] == number else end[i]


@inner_kernel
def _find_leaves(packed, slots, shift, n, tree, leaf, space):
    """Write the leaf number of each row of a block."""
    above, end, row, at = space
    slot, threshold, top_end = packed.top_slot[tree], packed.top_threshold[tree], packed.top_end[tree]
    for i in range(n):
        above[i] = 0
    _storey(slot[:7], threshold[:7], slots, shift, n, above, np.int32(0), end)
    for i in range(n):
        above[i] = end[i] = 8 * end[i]
    for s in range(8):
        if slot[7 * s + 7] > 1:
            _storey(slot[7 * s + 7 : 7 * s + 14], threshold[7 * s + 7 : 7 * s + 14], slots, shift, n, above, np.int32(8 * s), end)
    if packed.shallow[tree]:
        for i in range(n):
            leaf[i] = top_end[np.uint64(end[i])]
        return
    nodes = packed.nodes[packed.roots[tree] : packed.roots[tree + 1]]
    bits = packed.bits
    mask = (np.uint64(1) << bits) - np.uint64(1)
    for i in range(n):
        row[i] = i
        at[i] = top_end[np.uint64(end[i])]
    n_walking = n
    while n_walking > 0:
        # Rows that have arrived write their leaf and are overwritten.
        n_left = 0
        for i in range(n_walking):
            r = np.uint64(row[i])
            node = nodes[np.uint64(at[i])]
            place = np.uint64(node.place)
            s, target = place & mask, place >> bits
            leaf[r] = target
            child = target + (np.uint64(0) if slots[s >> shift, r] <= node.threshold else np.uint64(1))
            prefetch(nodes, np.int64(child))  # the other rows come before it is used
            row[n_left] = r
            at[n_left] = child
            n_left += s > 1
        n_walking = n_left


@inner_kernel
def _find_leaves_of_row(packed, slots, shift, i, start, stop, leaf, space):
    """Write the leaf number of one row in each of the trees ``start:stop``."""
    walking, at = space[2], space[3]
    bits, nodes = packed.bits, packed.nodes
    mask = (np.uint64(1) << bits) - np.uint64(1)
    n_walking = stop - start
    for k in range(n_walking):
        walking[k] = k
        at[k] = 0
    while n_walking > 0:
        n_left = 0
        for k in range(n_walking):
            t = np.uint64(walking[k])
            root = np.uint64(packed.roots[np.uint64(start) + t])
            node = nodes[root + np.uint64(at[k])]
            place = np.uint64(node.place)
            s, target = place & mask, place >> bits
            leaf[t] = target
            child = target + (np.uint64(0) if slots[s >> shift, i] <= node.threshold else np.uint64(1))
            prefetch(nodes, np.int64(root + child))
            walking[n_left] = t
            at[n_left] = child
            n_left += s > 1
        n_walking = n_left


@inner_kernel
def _make_space(n):
    """Return an array for leaf numbers and scratch arrays, for up to ``n`` rows, or trees for a single row."""
    return np.empty(n, np.uint32), (np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.uint32), np.empty(n, np.uint32))


@kernel
def _visit(packed, X, first, last, start, stop, out, numbers):
    """Add the values of the trees ``start:stop`` for the rows ``first:last`` or, if ``numbers`` has rows, write the leaves' numbers."""
    n_values = out.shape[1]
    if last - first < _FEW_ROWS and numbers.shape[0] == 0:
        slots = np.empty((2 * packed.feature.shape[0], last - first), X.dtype)
        leaf, space = _make_space(stop - start)
        shift = _fill_slots(packed, X, first, last - first, slots)
        for row in range(first, last):
            _find_leaves_of_row(packed, slots, shift, row - first, start, stop, leaf, space)
            for t in range(stop - start):
                place = packed.leaves[start + t] + np.int64(leaf[t])
                for k in range(n_values):
                    out[row, k] += packed.value[place, k]
        return
    n_rows, n_blocks = _sizes(packed, X)
    slots = np.empty((n_blocks, 2 * packed.feature.shape[0], n_rows), X.dtype)
    shift = np.empty(n_blocks, np.uint64)
    leaf, space = _make_space(n_rows)
    chunk = n_rows * n_blocks
    for begin in range(first, last, chunk):
        end = min(begin + chunk, last)
        for block, row in enumerate(range(begin, end, n_rows)):
            shift[block] = _fill_slots(packed, X, row, min(n_rows, end - row), slots[block])
        for tree in range(start, stop):
            first_leaf, last_leaf = packed.leaves[tree], packed.leaves[tree + 1]
            for block, row in enumerate(range(begin, end, n_rows)):
                n = min(n_rows, end - row)
                _find_leaves(packed, slots[block], shift[block], n, tree, leaf, space)
                if numbers.shape[0] == 0:
                    add_leaves(packed.value[first_leaf:last_leaf], leaf[:n], out[row : row + n])
                    continue
                for i in range(n):
                    numbers[row + i, tree] = packed.number[first_leaf + np.int64(leaf[i])]


def packed_for(trees: Sequence[Tree], dtype: Any) -> Packed | PackedWithSets:
    """Return trees packed for rows of a dtype, float32 or float64."""
    return pack_with_sets(trees) if any(tree.categories.node.shape[0] for tree in trees) else pack(trees, dtype)


def _run(
    packed: Packed | PackedWithSets,
    X: Table,
    out: NDArray[np.float64],
    start: int,
    stop: int,
    n_threads: int,
    numbers: NDArray[np.int32] = _NO_NUMBERS,
) -> None:
    """Pass all rows through the trees ``start:stop``, with or without sets, in threads if that pays; see :func:`_visit`."""
    if isinstance(packed, Packed) and packed.top_threshold.dtype == np.float32 and X.dtype != np.float32:
        raise ValueError(f"X has dtype {X.dtype}, but the trees are packed for float32; pack them for {X.dtype}")
    n_rows, is_sparse = X.shape[0], issparse(X)
    rows = np.empty((0, 0), X.dtype) if is_sparse else X
    visit = visit_with_sets if isinstance(packed, PackedWithSets) else _visit
    kernel = bind(visit, packed, rows, 0, 0, 0, 0, out, numbers, any_layout=(rows,))

    def run(first: int, last: int) -> None:
        if is_sparse:
            assert isinstance(packed, Packed), "sparse tables have no categories"
            own = packed._replace(feature=np.arange(-1, packed.feature.shape[0] - 1))  # columns of the blocks
            for begin, block in dense_blocks(X, first, last, packed.feature[1:]):
                of_block = slice(begin, begin + block.shape[0])
                kernel(own, block, 0, block.shape[0], start, stop, out[of_block], numbers[of_block])
        else:
            kernel(packed, X, first, last, start, stop, out, numbers)

    n_threads = min(n_threads, max(1, n_rows // _BLOCK)) if n_rows * (stop - start) > SERIAL_WORK else 1
    if n_threads == 1:
        run(0, n_rows)
        return
    step = -(-n_rows // (4 * n_threads) // _BLOCK) * _BLOCK
    firsts = range(0, n_rows, max(step, _BLOCK))
    with concurrent.futures.ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda first: run(first, min(first + firsts.step, n_rows)), firsts))


def sum_values(
    packed: Packed | PackedWithSets, X: Table, n_threads: int = 1, start: int = 0, stop: int | None = None
) -> NDArray[np.float64]:
    """Add the values of the leaves that rows fall into.

    Parameters
    ----------
    packed : Packed or PackedWithSets
    X : ndarray of float32 or float64, shape (n_rows, n_features), or a sparse table
        NaN is missing. Trees packed for float32 take no float64.
    n_threads : int, default=1
    start, stop : int, optional
        Use trees ``start:stop`` only.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_values)

    Raises
    ------
    ValueError
        If X has another dtype than the trees are packed for.
    """
    out = np.zeros((X.shape[0], packed.value.shape[1]))
    _run(packed, X, out, start, len(packed.roots) - 1 if stop is None else stop, n_threads)
    return out


def add_tree(packed: Packed | PackedWithSets, X: Table, tree: int, out: NDArray[np.float64], n_threads: int = 1) -> None:
    """Add the values of one tree to ``out``, shape (n_rows, n_values); X as for :func:`sum_values`."""
    _run(packed, X, out, tree, tree + 1, n_threads)


def apply(packed: Packed | PackedWithSets, X: Table, n_threads: int = 1) -> NDArray[np.int32]:
    """Return the number of the leaf that each row falls in, within each tree, shape (n_rows, n_trees); X as for :func:`sum_values`."""
    numbers = np.empty((X.shape[0], len(packed.roots) - 1), np.int32)
    _run(packed, X, np.empty((0, packed.value.shape[1])), 0, numbers.shape[1], n_threads, numbers)
    return numbers


def stump() -> Tree:
    """Return a tree with one split, of the first column, to compile kernels with."""
    return Tree.from_arrays(
        children_left=[1, -1, -1],
        children_right=[2, -1, -1],
        feature=[0, -2, -2],
        threshold=[0.0, -2.0, -2.0],
        missing_go_to_left=[True, False, False],
        impurity=[0.0] * 3,
        gain=[0.0] * 3,
        n_node_samples=[2, 1, 1],
        weighted_n_node_samples=[2.0, 1.0, 1.0],
        value=[[0.0]] * 3,
    )


def compile_prediction(with_sets: bool) -> None:
    """Compile the kernels of prediction, for trees with or without sets of categories."""
    some = CategorySets.of(np.zeros(1, np.int32), [np.zeros(1, np.int64)])
    tree = stump().with_categories(some) if with_sets else stump()
    sum_values(packed_for([tree], np.float64), np.zeros((1, 1)))
