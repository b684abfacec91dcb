"""Presort a table once, and fit estimators to subsets of its rows.

Taking rows from presorted columns takes no sorting: it numbers the distinct values that these rows have. The result equals, byte for
byte, that of presorting the rows alone, and so does the model, including everything that depends on the number of rows, their categories
and classes, and random draws among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import Threads, effective_n_jobs
from dtrees.ensemble.backend import LoadOptions, Table
from dtrees.ensemble.compat import safe_indexing
from dtrees.ensemble.in_process import LOCAL, Backend, load_table, presort_table
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.input.schema import Schema, checked_table, is_sparse

#: Numbers of rows.
Rows = NDArray[np.int64]


class PresortedTable:
    """A table in memory, and its presorted columns.

    A sparse table is not presorted: its stored cells are sorted for each set of rows.

    Parameters
    ----------
    X : array-like, sparse table or frame of shape (n, n_features)
    n_jobs : int or None

    Attributes
    ----------
    n_rows : int
    X : array, sparse table or frame
        The table that splitters receive.
    """

    def __init__(self, X: Any, n_jobs: int | None) -> None:
        X = checked_table(X)
        self.X = X.tocsr() if is_sparse(X) else X  # a format that rows can be selected from
        self.n_rows = int(X.shape[0])
        self.columns: Any = None if is_sparse(X) else presort_table(Schema.infer(X), X, n_jobs)

    def rows(self, rows: NDArray[np.int64]) -> PresortedRows:
        """Return some rows as the X of an estimator's fit."""
        return PresortedRows(self, rows)

    @contextmanager
    def fold(self, train: Rows, test: Rows, y: NDArray[Any], weight: NDArray[np.float64] | None) -> Iterator[Fold]:
        """Yield a fold, whose data is valid inside the block."""
        rows, held_out = self.rows(train), safe_indexing(self.X, test)
        (y_train, own), (y_test, others) = ((y[some], None if weight is None else weight[some]) for some in (train, test))
        yield Fold((rows, y_train, own), (held_out, y_test, others), (rows.X, y_train, own))


class Fold(NamedTuple):
    """The rows of a fold: X, y and weights each.

    Attributes
    ----------
    to_fit : tuple
        Arguments of ``fit``; its X is a :class:`PresortedRows`.
    held_out, seen : tuple
        The held-out rows and the training rows, for prediction and scores.
    """

    to_fit: tuple[Any, Any, Any]
    held_out: tuple[Any, Any, Any]
    seen: tuple[Any, Any, Any]


class PresortedRows:
    """Some rows of a presorted table, which an estimator accepts as X.

    Attributes
    ----------
    X : array, sparse table or frame
        The rows themselves.
    """

    def __init__(self, table: PresortedTable, rows: NDArray[np.int64]) -> None:
        self._table, self._rows = table, rows
        self.X = safe_indexing(table.X, rows)

    def presort(self, schema: Schema, X: Any, n_jobs: int | None) -> Any:
        """Return the presorted columns of the rows; see :func:`~dtrees.ensemble.in_process.presort_table`."""
        from dtrees.split.table.columns import take_table

        whole = self._table.columns
        if whole is None:
            return presort_table(schema, X, n_jobs)
        regular = True

        def as_stored(j: int, distinct: NDArray[Any]) -> NDArray[Any]:
            nonlocal regular
            column = schema.columns[j]
            if column.kind == CATEGORICAL:  # categories are in the order of those of the whole table, or of numbers
                regular &= len(distinct) == len(column.categories)
                distinct = np.arange(len(distinct))
            return distinct.astype(column.stored_dtype, copy=False)

        with Threads(effective_n_jobs(n_jobs)) as threads:
            columns = take_table(whole, self._rows.astype(np.uint32), as_stored, threads.map)
        # The largest number of a dtype and infinity are encoded alike, but may be different categories.
        return columns if regular else presort_table(schema, X, n_jobs)


class FoldBackend(Backend):
    """The backend for rows of a presorted table."""

    def header(self, X: Any) -> Any:
        """Return the rows."""
        return LOCAL.header(X.X)

    def load(self, X: Any, y: Any, sample_weight: Any, options: LoadOptions) -> Table:
        """Check and encode a training set, and take its columns from the presorted ones."""
        return load_table(X.X, y, sample_weight, options, X.presort)
