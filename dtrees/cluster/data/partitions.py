"""The user's collections as row partitions that belong together.

X, y and sample_weight may each be a Dask collection; the latter two may also be arrays. They are converted to lists of futures of equal
length, whose i-th entries have the same rows. Partitions without rows are left out. Only row counts are fetched by the client.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.delayed import Delayed
from distributed import Future
from numpy.typing import NDArray
from scipy import sparse

from dtrees.cluster.compat import partitions_together
from dtrees.cluster.reliability.waiting import Tasks
from dtrees.ensemble.in_process import drawn_rows, side_by_side
from dtrees.ensemble.input.schema import is_sparse
from dtrees.ensemble.input.target import target_of_rows, warn_of_column


@dataclass(frozen=True)
class Partitions:
    """Row partitions, in row order.

    Attributes
    ----------
    X, y : list of Future
    weight, margin : list of Future, or None
        Partitions of sample_weight and base_margin.
    lengths : list of int
        Number of rows of each partition, all positive.
    cells : int or None
        Number of stored cells of X, if its partitions are sparse.
    """

    X: list[Future]
    y: list[Future]
    weight: list[Future] | None
    lengths: list[int]
    cells: int | None = None
    margin: list[Future] | None = None

    @property
    def futures(self) -> list[Future]:
        """The futures of all arguments."""
        return [*self.X, *self.y, *(self.weight or ()), *(self.margin or ())]


def is_lazy(collection: Any) -> bool:
    """Return whether this is a Dask collection."""
    return bool(dask.is_dask_collection(collection))


def is_array(collection: Any) -> bool:
    """Return whether this is a Dask Array rather than a Dask frame."""
    return hasattr(collection, "chunks")


def computed(*values: Any) -> list[Any]:
    """Compute the Dask collections among some values; other values are returned unchanged.

    ``dask.compute`` with both frames and arrays returns results in another order, so collections of each kind are computed separately.
    """
    return _by_kind(values, dask.compute)


def partitions_of(collections: Sequence[Any]) -> list[list[Delayed]]:
    """Return the partitions of each collection; parts shared by collections of one kind are computed once."""
    return _by_kind(collections, lambda *of_kind: partitions_together(of_kind))


def _by_kind(values: Sequence[Any], function: Callable[..., Sequence[Any]]) -> list[Any]:
    """Apply a function to the collections of each kind; return the results in the order of the values."""
    found = list(values)
    kinds = ["" if not is_lazy(value) else "frame" if hasattr(value, "expr") else type(value).__qualname__ for value in values]
    for kind in sorted({*kinds} - {""}):
        places = [i for i, other in enumerate(kinds) if other == kind]
        for i, result in zip(places, function(*(values[i] for i in places)), strict=True):
            found[i] = result
    return found


def whole_rows(X: Any) -> Any:
    """Return a Dask Array or DataFrame whose partitions hold whole rows.

    Raises
    ------
    ValueError
        If it is not two-dimensional.
    TypeError
        If it is another kind of collection.
    """
    _check_kind("X", X, "a Dask DataFrame or a 2-D Dask Array")
    if X.ndim != 2:
        raise ValueError(f"X is a Dask collection of {X.ndim} dimension(s); wants rows and columns: ddf[['column']] or array[:, None]")
    if np.isnan(X.shape[1]):
        raise ValueError("X has an unknown number of columns; call X.compute_chunk_sizes(), or make it a DataFrame")
    return _in_whole_rows(X)


def _in_whole_rows(collection: Any) -> Any:
    """Return a Dask Array whose blocks have all columns; anything else as it is."""
    cut = is_array(collection) and collection.ndim == 2 and collection.numblocks[1] > 1
    return collection.rechunk({1: -1}) if cut else collection


def _check_kind(name: str, collection: Any, wanted: str) -> None:
    if isinstance(collection, Delayed) or not hasattr(collection, "to_delayed") or not hasattr(collection, "ndim"):
        raise TypeError(f"{name} is of type {type(collection).__module__}.{type(collection).__qualname__}; wants {wanted}")


def queries_beside(y: Any, qid: Any) -> Any:
    """Return relevances and queries as a Dask collection of two columns, of the kind and with the partitions of y; nothing is computed."""
    qid = rows_beside(y, qid, "y", "qid")
    if is_array(y):
        rows = y if y.ndim == 2 else y[:, None]
        return rows.map_blocks(side_by_side, qid, chunks=(rows.chunks[0], (2,)), dtype=np.float64, meta=np.empty((0, 2)))
    meta = pd.DataFrame(np.empty((0, 2)), columns=["y", "qid"])
    return y.map_partitions(_frame_of_queries, qid, meta=meta, align_dataframes=False)


def _frame_of_queries(y: Any, qid: Any) -> pd.DataFrame:
    return pd.DataFrame(side_by_side(y, qid), columns=["y", "qid"])


def rows_beside(X: Any, values: Any, name: str = "X", other: str = "base_margin") -> Any:
    """Return values of the rows of X as a collection of its kind and with its partitions; nothing is computed. Numbers are unchanged.

    Parameters
    ----------
    X : Dask DataFrame or 2-D Dask Array, of whole rows
    values : Dask Series, DataFrame or Array, or local array, of shape (n,) or (n, k), or number or None

    Returns
    -------
    Dask Series, DataFrame or 2-D Dask Array, or number or None

    Raises
    ------
    ValueError
        If their partitions or rows differ from those of X, or X is a frame of unknown lengths and the values are a local array.
    """
    import dask.array as da

    if is_lazy(values):
        _check_kind(other, values, "a Dask Series, DataFrame or Array, or an array")
    elif np.ndim(values) == 0:
        return values
    lengths = X.chunks[0] if is_array(X) else (np.nan,) * X.npartitions
    known = not np.isnan(lengths).any()
    if not is_lazy(values):
        if not known:
            raise ValueError(
                f"{other} is a {type(values).__name__} in memory, but {name} is a {type(X).__name__} of partitions whose numbers of rows "
                "are not known; wants a Dask collection with the same partitions, or one number for all"
            )
        values = da.from_array(np.asanyarray(values))  # masks are checked when scores are read
    if is_array(X) and not is_array(values):
        values = values.to_dask_array()
    if is_array(values):
        values = _in_whole_rows(values[:, None] if values.ndim == 1 else values)
        if known and not np.isnan(values.shape[0]):
            if values.shape[0] != sum(lengths):
                raise ValueError(f"{name} has {sum(lengths)} rows but {other} has {values.shape[0]}; both must describe the same rows")
            values = values.rechunk({0: lengths})
        values = values if is_array(X) else values.to_dask_dataframe()
    n_parts = values.numblocks[0] if is_array(values) else values.npartitions
    if n_parts != len(lengths):
        raise ValueError(f"{other} has {n_parts} partitions but {name} has {len(lengths)}; wants the rows of {name} in the same partitions")
    return values


def align(tasks: Tasks, X: Any, y: Any, sample_weight: Any, base_margin: Any = None) -> Partitions:
    """Compute the partitions of X, y, sample_weight and base_margin, and match their rows.

    Parameters
    ----------
    tasks : Tasks
    X : Dask DataFrame or 2-D Dask Array
    y : Dask Series or Array, or local array of shape (n,); for several targets a Dask DataFrame or an array of shape (n, k)
        If None, :func:`~dtrees.ensemble.input.target.target_of_rows` creates it.
    sample_weight : Dask Series or Array, local array of shape (n,), number or None
    base_margin : Dask Series, DataFrame or Array, or local array, of shape (n,) or (n, k), or None

    Raises
    ------
    ValueError
        If they do not have the same rows. Frames with equal numbers of partitions must agree in each partition, as otherwise their rows
        probably do not match. Other collections (Dask Arrays, and frames of different numbers of partitions) need only agree in the total,
        and are repartitioned.
    """
    named = {"X": whole_rows(X), "y": y, "sample_weight": sample_weight, "base_margin": base_margin}
    lazy = {name: collection for name, collection in named.items() if is_lazy(collection)}
    for name, collection in lazy.items():
        _check_kind(name, collection, "a Dask Series or Array, or an array")
    if "y" in lazy:
        lazy["y"] = named["y"] = targets_of(lazy["y"])
    computed = compute_partitions(tasks, lazy)
    counting = [
        tasks.map("count", _outline, parts, range(len(parts)), name=name, names=column_names(lazy[name]))
        for name, parts in computed.items()
    ]
    outlines = iter(tasks.waiter.gather([future for group in counting for future in group]))
    found = {name: list(itertools.islice(outlines, len(parts))) for name, parts in computed.items()}
    lengths = {name: [length for length, _, _ in outlines] for name, outlines in found.items()}
    wanted = lengths["X"]
    for name in lazy:
        for i, (_, is_in_order, _) in enumerate(found[name]):
            if not is_in_order:
                computed[name][i] = tasks.submit("align", in_order, computed[name][i], column_names(lazy[name]))
    non_empty = [i for i, length in enumerate(wanted) if length]

    def parts_of(name: str) -> list[Future]:
        if name == "y" and y is None:
            parts = [tasks.submit("align", target_of_rows, *bounds) for bounds in itertools.pairwise([0, *itertools.accumulate(wanted)])]
        elif name not in lazy:
            parts = _send(tasks, name, named[name], wanted)
        elif lengths[name] == wanted:
            parts = computed[name]
        else:
            whole = is_array(lazy["X"]) or is_array(lazy[name]) or len(lengths[name]) != len(wanted)
            parts = _cut_anew(tasks, name, computed[name], lengths[name], wanted, whole=whole)
        return [parts[i] for i in non_empty]

    return Partitions(
        X=[computed["X"][i] for i in non_empty],
        y=parts_of("y"),
        weight=None if sample_weight is None else parts_of("sample_weight"),
        lengths=[wanted[i] for i in non_empty],
        margin=None if base_margin is None else parts_of("base_margin"),
        cells=_stored_cells([found["X"][i] for i in non_empty]),
    )


def _stored_cells(outlines: Sequence[Outline]) -> int | None:
    """Return the total number of stored cells of sparse partitions, None if partitions are dense.

    Raises
    ------
    TypeError
        If only some partitions are sparse.
    """
    cells = [cells for _, _, cells in outlines]
    stored = [n for n in cells if n is not None]
    if stored and len(stored) < len(cells):
        raise TypeError(
            f"X has a sparse block for its partition {next(i for i, n in enumerate(cells) if n is not None)}, and a dense one for "
            f"{cells.index(None)}, those without rows not counted; wants all of a kind"
        )
    return sum(stored) if stored else None


def targets_of(y: Any) -> Any:
    """Convert a Dask Series or Array of shape (n, 1) to shape (n,), with scikit-learn's warning; give others partitions of whole rows."""
    if y.ndim != 2 or y.shape[1] != 1 or is_sparse(getattr(y, "_meta", None)):  # sparse ones are refused later
        return _in_whole_rows(y)
    warn_of_column()
    return y[:, 0] if is_array(y) else y.iloc[:, 0]


def lengths_by_target(tasks: Tasks, X: Any, y: Any) -> list[int]:
    """Return approximate row counts of the partitions that X and y will have; if unknown, counted by y, which is narrow."""
    if not is_lazy(X):
        return [len(X)]
    if not is_lazy(y):
        return [len(y)]
    if is_array(y) and not np.isnan(y.shape[0]):
        return [int(length) for length in y.chunks[0]]
    with Tasks(tasks.client) as counting:
        parts = compute_partitions(counting, {"y": y})["y"]
        return [length for length in counting.waiter.gather(counting.map("count", len, parts)) if length]


def column_names(X: Any) -> list[Any] | None:
    """Return the names of the columns of a frame or collection of frames; None if there are none."""
    return list(X.columns) if hasattr(X, "columns") else None


def in_order(part: Any, names: list[Any] | None, where: str = "X has in a partition") -> Any:
    """Return a partition with its columns in the order of the collection, which Dask does not guarantee.

    Raises
    ------
    ValueError
        If it has different columns.
    """
    columns = column_names(part)
    if columns == names or names is None:
        return part
    if columns is None or len(columns) != len(names) or set(columns) != set(names) or len(set(names)) != len(names):
        raise ValueError(f"{where} the columns {columns}; wants those of the collection's meta, {names}")
    return part[names]


#: Number of rows of a partition, whether its columns have the expected order, and its number of stored cells if it is sparse.
Outline = tuple[int, bool, int | None]


def _outline(part: Any, i: int, name: str, names: list[Any] | None) -> Outline:
    """Return the outline of partition ``i`` of an argument."""
    if is_sparse(part):
        if name != "X":
            raise TypeError(f"{name} is a Dask collection with sparse blocks; wants dense ones: {name}.map_blocks(lambda it: it.toarray())")
        return part.shape[0], True, part.nnz
    if not hasattr(part, "__len__"):
        raise TypeError(f"{name} has {part!r} for its partition {i}; wants a frame or an array, of no rows where there are none")
    has_names = len(part) and column_names(part) is not None
    return len(part), not has_names or in_order(part, names, f"{name} has in partition {i}") is part, None


def compute_partitions(tasks: Tasks, collections: dict[str, Any]) -> dict[str, list[Future]]:
    """Start computing collections; return their partitions of whole rows in row order."""
    delayed = partitions_of([_in_whole_rows(collection) for collection in collections.values()])
    futures = iter(tasks.compute([part for parts in delayed for part in parts]))
    return {name: list(itertools.islice(futures, len(parts))) for name, parts in zip(collections, delayed, strict=True)}


def _cut_anew(tasks: Tasks, name: str, parts: list[Future], lengths: list[int], wanted: list[int], *, whole: bool) -> list[Future]:
    """Return the same rows in partitions of the wanted lengths; raise if totals differ, or, unless ``whole``, any lengths."""
    if not whole:
        i = next(i for i, (a, b) in enumerate(zip(wanted, lengths, strict=True)) if a != b)
        raise ValueError(
            f"X and {name} differ in partition {i}: X has {wanted[i]} rows there but {name} has {lengths[i]}; "
            "both must describe the same rows, in the same partitions"
        )
    if sum(lengths) != sum(wanted):
        raise ValueError(f"X has {sum(wanted)} rows but {name} has {sum(lengths)}; both must describe the same rows")
    starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    cut = []
    first = 0
    for length in wanted:
        last = first + length
        touched = [k for k in range(len(parts)) if starts[k] < last and starts[k + 1] > first] or [0]
        begin = first - starts[touched[0]]
        cut.append(tasks.submit("align", _take_rows, [parts[k] for k in touched], begin, begin + length))
        first = last
    return cut


def _take_rows(parts: list[Any], begin: int, end: int) -> Any:
    whole = joined(parts)
    return whole.iloc[begin:end] if hasattr(whole, "iloc") else whole[begin:end]


def joined(parts: Sequence[Any]) -> Any:
    """Concatenate partitions: frames with their categories, sparse blocks, or arrays with their masks."""
    if is_sparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    if all(hasattr(part, "iloc") for part in parts):
        return pd.concat(parts)
    return np.ma.concatenate(parts) if any(isinstance(part, np.ma.MaskedArray) for part in parts) else np.concatenate(parts)


def _send(tasks: Tasks, name: str, values: Any, lengths: list[int]) -> list[Future]:
    """Send a local array to the cluster in chunks of the given lengths."""
    n_rows = sum(lengths)
    values = np.full(n_rows, values) if np.ndim(values) == 0 else np.asanyarray(values)
    if len(values) != n_rows:
        raise ValueError(f"X has {n_rows} rows but {name} has {len(values)}; both must describe the same rows")
    chunks = np.split(values, np.cumsum(lengths)[:-1])
    return [tasks.send("align", chunk) for chunk in chunks]


def draw_rows(n: int | None, seed: int, X: Any, others: Sequence[Any], queries: Any = None) -> tuple[int, list[Any]]:
    """Return the number of rows of X, and at most ``n`` of its rows and of the same rows of each of the others (lazy or not, or None).

    Given the query of each row, in memory, whole queries are drawn.

    Unless they are persisted, collections are computed twice, once for counting rows; partitions without a drawn row only once.

    Raises
    ------
    ValueError
        If the others have different numbers of rows than X.
    """
    collections = [whole_rows(X), *others]
    lazy = [collection for collection in collections if is_lazy(collection)]
    parts = partitions_of([whole_rows(collection) if collection.ndim == 2 else collection for collection in lazy])
    lengths = dask.compute(*[[part.shape[0] for part in group] for group in parts])
    n_rows = sum(lengths[0])
    here = [len(other) for other in others if other is not None and not is_lazy(other)]
    for length in (*map(sum, lengths[1:]), *here):
        if length != n_rows:
            raise ValueError(f"X has {n_rows} rows but y or sample_weight has {length}; all must describe the same rows")
    rows = drawn_rows(n_rows, n, seed, queries)
    names = [column_names(collection) if collection.ndim == 2 else None for collection in lazy]
    chunks = dask.compute(*[[chunk for chunk, _ in chunks_of(*of, rows)] for of in zip(parts, lengths, names, strict=True)])
    found = iter([joined(group) for group in chunks])
    drawn = [next(found) if is_lazy(one) else None if one is None else np.asarray(one)[rows] for one in collections]
    return n_rows, drawn


def chunks_of(parts: Sequence[Any], lengths: Sequence[int], names: list[Any] | None, rows: NDArray[np.int64]) -> list[tuple[Any, int]]:
    """Return, as tasks, the selected rows of each partition with their number; an empty part of the first one if there are none.

    ``rows`` are ascending.
    """
    starts = np.concatenate([[0], np.cumsum(lengths)])
    bounds = np.searchsorted(rows, starts)
    take = dask.delayed(_take)
    chunks = [
        (take(part, rows[first:last] - start, names), last - first)
        for part, start, first, last in zip(parts, starts[:-1].tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        if last > first
    ]
    return chunks or [(take(parts[0], np.arange(0), names), 0)]


def _take(part: Any, rows: NDArray[np.int64], names: list[Any] | None) -> Any:
    part = in_order(part, names)
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]
