"""Folds of a table on a cluster: the table is loaded once, and a fold is a vector of weights, 0 for held-out rows.

All folds share the columns (or rows on their workers); only weights are sent. Rows of weight 0 count as absent, so that trees depend only
on the rows of the fold, except for draws, which are made among all rows, and for the categories and classes of the whole table. To predict
held-out rows, they are taken from the user's collection for each fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import dask
import numpy as np
from distributed import Future
from numpy.typing import NDArray

from dtrees.cluster.backend import DaskBackend
from dtrees.cluster.data.partitions import chunks_of, column_names, computed, is_array, partitions_of, whole_rows
from dtrees.cluster.reliability.waiting import Tasks, release
from dtrees.cluster.transport.clients import own_client
from dtrees.ensemble.backend import LoadOptions, Output, Table
from dtrees.ensemble.in_process import in_memory
from dtrees.ensemble.input.target import TargetSummary
from dtrees.selection.cross_validation import Validation
from dtrees.selection.folds import Fold, Rows

_BACKEND = DaskBackend()
#: Methods that scorers call, whose results must be arrays in memory.
_PREDICTING = ("predict", "predict_proba", "predict_log_proba", "decision_function")


class ClusterValidation(Validation):
    """A :class:`~dtrees.selection.cross_validation.Validation` of Dask collections; runs in the task of a coordinator."""

    takes_threads = False

    def __init__(self, estimator: Any, X: Any, y: Any, cv: Any, scoring: Any, sample_weight: Any, groups: Any) -> None:
        y, sample_weight, groups = computed(y, sample_weight, groups)
        super().__init__(estimator, X, y, cv, scoring, sample_weight, groups)

    def _load(self, X: Any, estimator: Any) -> Any:
        return SharedTable(X)

    def _to_score(self, estimator: Any) -> Any:
        return _Gathering(estimator)


class _Gathering:
    """Wraps an estimator for scoring, so that its predictions are in memory."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._estimator, name)
        return wraps(value)(partial(_gathered, value)) if name in _PREDICTING else value

    def __sklearn_tags__(self) -> Any:
        return self._estimator.__sklearn_tags__()


def _gathered(predict: Callable[[Any], Any], X: Any) -> Any:
    found = predict(X)
    here = in_memory(*found) if isinstance(found, list) else in_memory(found)
    arrays = list(map(np.asarray, here))
    return arrays if isinstance(found, list) else arrays[0]


class SharedTable:
    """A table shared by all folds, loaded when the first one is fitted.

    Parameters
    ----------
    X : Dask DataFrame or 2-D Dask Array

    Attributes
    ----------
    n_rows : int
    X : ndarray of shape (n_rows, 0)
        The X passed to splitters.
    """

    def __init__(self, X: Any) -> None:
        self.collection = whole_rows(X)
        (self._parts,) = partitions_of([self.collection])
        self._lengths = dask.compute(*[part.shape[0] for part in self._parts])
        self.n_rows = sum(self._lengths)
        self.X = np.empty((self.n_rows, 0))
        self._loaded: dict[Any, Table] = {}

    @contextmanager
    def fold(self, train: Rows, test: Rows, y: NDArray[Any], weight: NDArray[np.float64] | None) -> Iterator[Fold]:
        """Yield a fold, valid within the block; held-out rows are in table order."""
        weights = np.bincount(train, minlength=self.n_rows) * (1.0 if weight is None else weight)
        shared = SharedRows(self)
        train, test = np.sort(train), np.sort(test)
        held_out = own_client().persist(self._rows(test))
        own, others = (None if weight is None else weight[rows] for rows in (train, test))
        try:
            yield Fold((shared, y, weights), (held_out, y[test], others), (self._rows(train), y[train], own))
        finally:
            release(shared.futures)

    def _rows(self, rows: Rows) -> Any:
        """Return some rows, ascending, as a collection of the same kind."""
        X = self.collection
        chunks = chunks_of(self._parts, self._lengths, column_names(X), rows)
        if not is_array(X):
            import dask.dataframe as dd

            return dd.from_delayed([chunk for chunk, _ in chunks], meta=X._meta, verify_meta=False)
        import dask.array as da

        blocks = [da.from_delayed(chunk, (n, X.shape[1]), meta=X._meta) for chunk, n in chunks]
        return da.concatenate(blocks)

    def load(self, y: Any, weight: NDArray[np.float64], options: LoadOptions, futures: list[Future]) -> Table:
        """Return the table with the weights of a fold; futures created for these are appended to ``futures``."""
        key = options.n_trees is None, options.out_of_bag, options.categories, options.bag, options.wants, options.fetch_X
        if key not in self._loaded:
            self._loaded[key] = _BACKEND.load(self.collection, y, np.ones(self.n_rows), replace(options, single_use=False))
        table = self._loaded[key]
        summary = TargetSummary.of(y, weight, classify=options.classify)
        summary.check()
        with Tasks(own_client()) as tasks:
            columns, sent = table.columns.weighted(tasks, weight)
            tasks.keep(*sent)
        futures += sent
        return replace(table, **vars(summary), **dict.fromkeys(("columns", "target", "weight"), columns))


class SharedRows:
    """Replaces X when an estimator is fitted to the rows of a fold.

    Attributes
    ----------
    futures : list of Future
        Futures of data on the cluster for this fold only.
    """

    def __init__(self, table: SharedTable) -> None:
        self.table = table
        self.futures: list[Future] = []


class SharedBackend(DaskBackend):
    """The backend for the rows of a fold."""

    def header(self, X: Any) -> Any:
        """Return an object with the columns of X."""
        return super().header(X.table.collection)

    def load(self, X: Any, y: Any, sample_weight: Any, options: LoadOptions) -> Table:
        """Return the shared table with the weights of this fold."""
        return X.table.load(y, sample_weight, options, X.futures)

    def predict(self, X: Any, function: Callable[..., NDArray[Any]], output: Output, beside: Any = None) -> Any:
        """Apply ``function`` lazily to all rows, including rows of weight 0."""
        return super().predict(X.table.collection, function, output, beside)
