"""The backend for tables in this process: NumPy arrays, sparse tables and frames.

It encodes columns (:mod:`dtrees.ensemble.input.schema`), presorts them on a pool of threads, and passes them to the engine. The engine is
imported at the first fit, so that importing an estimator does not import Numba.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback, FitInterrupted, ForestPlan, ForestResult, Progress
from dtrees.engine.threads import Threads, effective_n_jobs
from dtrees.ensemble.backend import GrowOne, LoadOptions, Output, Placement, Table
from dtrees.ensemble.compat import safe_indexing
from dtrees.ensemble.evaluation_sets import EvalSet, LocalEvaluation, LocalSets, check_set, has_weight, make_block
from dtrees.ensemble.input.schema import Schema, checked_table, is_frame, is_sparse
from dtrees.ensemble.input.target import (
    TargetSummary,
    as_floats,
    check_lengths,
    check_target,
    check_weights,
    encode_target,
    target_of_rows,
)
from dtrees.ensemble.metrics import Metric
from dtrees.tree.tree import Tree

if TYPE_CHECKING:
    from dtrees.split.table.sparse_columns import AnyColumns

#: Tables with fewer cells are presorted without threads, as starting these takes longer.
_SERIAL_CELLS = 100_000
_HERE = Placement("local", "the data is in the memory of one process")


class Backend:
    """The interface of backends, and its implementation for tables in this process. Backends of other collections override methods."""

    def fit(
        self, estimator: Any, X: Any, y: Any, sample_weight: Any, options: dict[str, Any], client: Any = None, placement: str | None = None
    ) -> Any:
        """Fit a copy of the estimator where the data are stored, and return it; None if ``estimator.fit`` should continue in this process.

        ``client`` and ``placement`` are the user's options.
        """
        if placement is not None:
            raise ValueError(
                f"placement is {placement!r}, but X is a {type(X).__name__} in memory, which is fitted in this process; wants a Dask "
                "DataFrame or Array (dask.dataframe.from_pandas, dask.array.from_array), or no placement"
            )

    def coordinate(self, function: Callable[..., Any], *data: Any, label: str = "") -> Any:
        """Call a function that runs many fits, with an estimator, X and related data, where X is stored; return its result.

        ``label`` is the name of the task.
        """
        for name, other in zip(("y", "sample_weight", "groups"), data[2:], strict=True):
            if backend_for(other) is not self:
                raise TypeError(f"{name} is a {type(other).__name__}, but X is in memory; wants both there: {name}.compute()")
        return function(*data)

    def validation(self, kind: type[Any], *arguments: Any) -> Any:
        """Return the object that fits folds of X: a :class:`dtrees.selection.cross_validation.Validation`, given as ``kind``."""
        return kind(*arguments)

    def load(self, X: Any, y: Any, sample_weight: Any, options: LoadOptions) -> Table:
        """Check, encode and presort a training set.

        Raises ValueError for invalid input; messages name the argument, the value and what is wanted.
        """
        return load_table(X, y, sample_weight, options, presort_table)

    def load_evaluation(self, table: Table, sets: Sequence[EvalSet], metrics: Sequence[Metric]) -> Table:
        """Check and encode evaluation sets like the table; return the table with them.

        Raises ValueError, naming the set, if it cannot be predicted or evaluated.
        """
        blocks = []
        for given in sets:
            X, y, weight, base_margin = in_memory(given.X, given.y, given.weight, given.base_margin)
            block = make_block(
                checked_table(X), y, weight, base_margin, of=given, schema=table.schema, classes=table.classes, n_targets=table.n_targets
            )
            check_set(given.name, len(block.y), has_weight(block))
            blocks.append(block)
        names = tuple(given.name for given in sets)
        return replace(table, evaluation=LocalSets(names, tuple(range(len(blocks))), tuple(blocks), tuple(metrics)))

    def fingerprint(self, table: Table) -> str:
        """Return a digest of the whole training set, independent of partitions."""
        from dtrees.ensemble.checkpoint import array_digest, column_digests, table_digest

        weight = None if table.weight is None else array_digest(table.weight)
        return table_digest(table, column_digests(table.columns), array_digest(table.target), weight)

    def grow_forest(self, table: Table, plan: ForestPlan, first: int, last: int, callback: Callback | None) -> ForestResult:
        """Grow the trees ``first`` to ``last - 1``."""
        from dtrees.engine.run.local_executor import grow_forest
        from dtrees.engine.run.saving import grow_in_batches, without_checkpoint

        n_threads = effective_n_jobs(table.n_jobs)
        bare = without_checkpoint(plan)

        def grow(first: int, last: int, callback: Callback | None) -> ForestResult:
            return grow_forest(table.columns, table.target, table.weight, bare, first, last, n_threads, callback=callback)

        return grow_in_batches(grow, plan, first, last, callback)

    def boost(
        self,
        table: Table,
        plan: BoostingPlan,
        previous: Sequence[Sequence[Tree]],
        initial: NDArray[np.float64] | None,
        callback: Callback | None,
    ) -> BoostingResult:
        """Boost up to ``plan.n_rounds`` rounds, including the ``previous`` ones.

        ``initial`` is the initial raw prediction, shape (K,), or that of each row, shape (K, n_rows); None lets the loss choose. Evaluation
        sets of the table are scored after every round.
        """
        from dtrees.engine.run.boosting_rounds import boost
        from dtrees.engine.run.local_executor import LocalExecutor

        n_threads = effective_n_jobs(table.n_jobs)
        evaluation = None if table.evaluation is None else LocalEvaluation(table.evaluation, n_threads)
        with LocalExecutor(table.columns, table.target, table.weight, n_threads) as executor:
            return boost(executor, plan, previous=previous, initial=initial, callback=callback, evaluation=evaluation)

    def grow_bag(self, table: Table, grow: GrowOne, n: int, callback: Callback | None) -> list[Any]:
        """Return the results of ``grow(table, number, None)`` for the numbers below ``n``, with the table in memory.

        ``grow`` is picklable. The callback is called after each result, in order; if it ends the fit, later results are left out.
        """
        began, grown = time.perf_counter(), []
        try:
            for number in range(n):
                grown.append(grow(table, number, None))
                if callback is not None and callback(Progress(number + 1, n, time.perf_counter() - began)):
                    break
        except KeyboardInterrupt as interrupt:
            raise FitInterrupted(grown) from interrupt
        return grown

    def target(self, table: Table) -> NDArray[Any]:
        """Return the encoded target (float64 values or class codes) of shape (n,) in this process, for out-of-bag scores."""
        return np.asarray(table.target)

    def weight(self, table: Table) -> NDArray[np.float64] | None:
        """Return the weights, of shape (n,), in this process; None if there are none."""
        return table.weight

    def header(self, X: Any) -> Any:
        """Return a local frame or array with the columns of ``X``, and any number of its rows, for checks of columns."""
        return X if is_frame(X) else checked_table(X)

    def predict(self, X: Any, function: Callable[..., NDArray[Any]], output: Output, beside: Any = None) -> Any:
        """Apply ``function`` to the blocks of ``X``; lazily if ``X`` is lazy, in which case blocks may be empty.

        ``beside`` is the second argument: values of the same rows, or one number for all; None passes no such argument.
        """
        X = self.header(X)
        if X.shape[0] == 0:
            raise ValueError(f"X has no rows: found array with 0 sample(s) (shape={tuple(X.shape)}); {output.name} wants at least one")
        return function(X) if beside is None else function(X, in_memory(beside)[0])

    def beside(self, y: Any, qid: Any) -> Any:
        """Return relevances and queries side by side, of shape (n, 2); lazily if y is lazy."""
        return side_by_side(y, *in_memory(qid))

    def gather(self, *collections: Any) -> list[Any]:
        """Return collections (or None) as local arrays, for scoring."""
        return list(collections)

    def draw_rows(self, n: int | None, seed: int, X: Any, *others: Any, queries: Any = None) -> tuple[int, list[Any]]:
        """Return the number of rows of X, and at most ``n`` of them, drawn at random and in order, from each collection (or None).

        None returns all rows. Given the query of each row, whole queries are drawn. Raises ValueError if another collection has a different
        number of rows than X.
        """
        X = checked_table(X)
        n_rows = int(X.shape[0])
        for other in others:
            length = n_rows if other is None else other.shape[0] if hasattr(other, "shape") else len(other)
            if length != n_rows:
                raise ValueError(f"X has {n_rows} rows but y or sample_weight has {length}; all must describe the same rows")
        rows = drawn_rows(n_rows, n, seed, *in_memory(queries))
        return n_rows, [other if other is None or len(rows) == n_rows else safe_indexing(other, rows) for other in (X, *others)]


def load_table(X: Any, y: Any, sample_weight: Any, options: LoadOptions, presort: Callable[[Schema, Any, int | None], AnyColumns]) -> Table:
    """Return the table of a training set in memory; see :meth:`Backend.load`. ``presort`` has the arguments of :func:`presort_table`."""
    from dtrees.engine.run.local_executor import note_compilation

    if options.target:
        y = check_target(y, classify=options.classify, name=options.estimator_name, multi_output=options.multi_output)
    X = checked_table(X)
    note_compilation(is_sparse(X))
    n_rows = X.shape[0]
    if n_rows == 0:
        raise ValueError(f"X has no rows: found array with 0 sample(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    if not options.target:
        y = target_of_rows(0, n_rows)
    check_lengths(n_rows, y)
    weight = check_weights(sample_weight, n_rows)
    summary = TargetSummary.of(y, weight, classify=options.classify, columns=options.multi_output)
    summary.check()
    schema = Schema.infer(X, options.categories)
    columns = presort(schema, X, options.n_jobs)
    target = encode_target(y, summary.classes)
    handle = [columns].pop if options.single_use else columns  # whoever calls it becomes the only owner
    return Table.load(
        schema, summary, columns=handle, target=target, weight=weight, placement=_HERE, n_jobs=options.n_jobs,
        base_margin=in_memory(options.base_margin)[0], X=X if options.fetch_X else None,
    )  # fmt: skip


def presort_table(schema: Schema, X: Any, n_jobs: int | None) -> AnyColumns:
    """Encode and presort the columns of a table; sparse tables remain sparse."""
    from dtrees.split.table.columns import presort
    from dtrees.split.table.sparse_columns import presort_sparse

    if is_sparse(X):
        X = schema.cells(X)
        return presort_sparse(X.data, X.indices, X.indptr, X.shape[0])
    encoded = schema.encode(X)
    is_small = len(encoded[0]) * len(encoded) <= _SERIAL_CELLS
    with Threads(1 if is_small else effective_n_jobs(n_jobs)) as threads:
        return presort(encoded, map=threads.map)


def side_by_side(y: Any, qid: Any) -> NDArray[np.float64]:
    """Return relevances and queries as an array of shape (n, 2)."""
    given = np.asarray(qid)
    numbers, relevance = (as_floats(values, name, "a number for each row") for values, name in ((qid, "qid"), (y, "y")))
    if given.dtype.kind in "iu" and given.size and not np.array_equal(given, numbers.astype(given.dtype)):
        raise ValueError("qid has integers beyond 2**53, some of which are one as floats; number queries from 0")
    numbers, relevance = (values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values for values in (numbers, relevance))
    if relevance.ndim != 1 or numbers.shape != relevance.shape:
        raise ValueError(
            f"y has the shape {np.shape(y)} and qid {np.shape(qid)}; wants a relevance and a query for each row, of shape (n,)"
        )
    if not np.isfinite(numbers).all():
        raise ValueError("qid contains NaN or infinity; wants a number for each row")
    return np.column_stack([relevance, numbers])


def drawn_rows(n_rows: int, n: int | None, seed: int, queries: Any = None) -> NDArray[np.int64]:
    """Return the numbers of at most ``n`` of ``n_rows`` rows, drawn at random, ascending.

    Given the query of each row, these are all rows of some queries, at least of one.

    >>> drawn_rows(3, 5, 0).tolist(), len(set(drawn_rows(1000, 10, 0).tolist()))
    ([0, 1, 2], 10)
    >>> drawn_rows(6, 4, 0, [7, 8, 7, 8, 9, 9]).tolist()
    [0, 2, 4, 5]
    """
    if n is None or n >= n_rows:
        return np.arange(n_rows)
    random = np.random.default_rng(seed)
    if queries is None:
        return np.sort(random.choice(n_rows, n, replace=False))
    _, query, sizes = np.unique(queries, return_inverse=True, return_counts=True)
    order = random.permutation(len(sizes))
    few = order[: max(1, int(np.searchsorted(sizes[order].cumsum(), n, side="right")))]
    return np.flatnonzero(np.isin(query, few))


#: The single, stateless backend of this process.
LOCAL = Backend()

#: The module and class of other backends, by the package of a collection or client; imported on first use.
_BACKENDS = dict.fromkeys(("dask", "distributed"), ("dtrees.cluster.backend", "DaskBackend"))
_BACKENDS["dtrees.selection.folds"] = ("dtrees.selection.folds", "FoldBackend")
_BACKENDS["dtrees.cluster.folds"] = ("dtrees.cluster.folds", "SharedBackend")


def backend_for(X: Any) -> Backend:
    """Return the backend for the collection ``X``: that of its type's package, otherwise the local one."""
    module = type(X).__module__
    place = _BACKENDS.get(module.partition(".")[0]) or _BACKENDS.get(module)
    return LOCAL if place is None else _backend(*place)


@functools.cache
def _backend(module: str, name: str) -> Backend:
    return getattr(importlib.import_module(module), name)()


def in_memory(*collections: Any) -> list[Any]:
    """Return collections from anywhere as arrays or frames in this process."""
    elsewhere = (backend for backend in map(backend_for, collections) if backend is not LOCAL)
    return next(elsewhere, LOCAL).gather(*collections)
