"""Schemas: how the columns of a table become numbers, the same at training and at prediction.

A NumPy array must be numeric and is taken as it is. The columns of a frame (pandas, polars, anything else narwhals reads)
may also hold text or categories: they become *category numbers*, positions in a dictionary that is global to the fit
(:mod:`dtrees.ensemble.input.column`).

Use
---
One table: ``schema = Schema.infer(X)``. Many partitions: infer each and ``Schema.merge`` them; the result does not depend on how
rows fall into partitions. Then ``schema.encode(part)`` gives training columns, which keep their dtype, and
``schema.matrix(part)`` a matrix for prediction. Columns are taken by position; names are for messages, and it is up to the caller
to compare them (estimators do, by scikit-learn's rules). ``to_json`` and ``from_json`` carry a schema in a model file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.column import (
    CATEGORICAL,
    HOW_TO_READ,
    NUMERIC,
    Column,
    check_values,
    column_from_json,
    encode_column,
    finite,
    float_dtype,
    has_infinity,
    infer_column,
    looks_like_number,
    merge_column,
    numbers_as_categories,
    numbers_at,
    numbers_of,
)
from dtrees.ensemble.input.tables import (
    by_columns,
    by_rows,
    checked_table,
    frame_columns,
    is_frame,
    is_sparse,
    numbers_of_frame,
    numeric_array,
    sparse_table,
)
from dtrees.ensemble.input.warning import warn

#: Text columns are warned of from so many categories on: those that are all numbers, and those with another text in most rows.
_MANY_NUMBERS, _MANY_TEXTS = 3, 20
#: What "most rows" means.
_MOST = 0.9


@dataclass(frozen=True)
class Schema:
    """The columns of a table and how they become numbers.

    Attributes
    ----------
    columns : tuple of Column
        One per column, by position.

    Examples
    --------
    >>> import pandas as pd
    >>> parts = [pd.DataFrame({"age": [30, 41], "job": ["smith", None]}), pd.DataFrame({"age": [25], "job": ["baker"]})]
    >>> schema = Schema.merge(Schema.infer(part) for part in parts)
    >>> schema.columns[1].categories
    ('baker', 'smith')
    >>> schema.matrix(pd.DataFrame({"age": [50, 51], "job": ["smith", "potter"]}))
    array([[50.,  1.],
           [51., nan]])
    """

    columns: tuple[Column, ...]

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    @cached_property
    def _categorical(self) -> list[tuple[int, Column]]:
        """The columns of categories, and their places."""
        return [(j, column) for j, column in enumerate(self.columns) if column.kind == CATEGORICAL]

    @classmethod
    def infer(cls, X: Any, categories: Collection[int] = ()) -> Schema:
        """Return the schema of a table, or of one partition of it.

        Parameters
        ----------
        X : array-like, sparse table or frame of shape (n, n_columns)
        categories : collection of int, default=()
            Columns whose values are categories, also where they are numbers.

        Raises
        ------
        ValueError
            If a column's dtype is not supported, or it mixes text and numbers.
        TypeError
            If X is a lazy frame.
        """
        if not is_frame(X):
            X = checked_table(X)
            numeric = Column(None, NUMERIC, X.dtype.name)
            if is_sparse(X):
                if len(categories):
                    raise ValueError(
                        f"categorical_features names {len(categories)} column(s), but X is sparse; wants a dense table, or none of them"
                    )
                return cls((numeric,) * X.shape[1])
            return cls(tuple(numbers_as_categories(None, X[:, j]) if j in categories else numeric for j in range(X.shape[1])))
        return cls(tuple(infer_column(name, series, j in categories) for j, (name, series) in enumerate(frame_columns(X))))

    @classmethod
    def merge(cls, schemas: Iterable[Schema]) -> Schema:
        """Return the schema of all partitions together; their order and number do not matter.

        Raises
        ------
        ValueError
            If the partitions disagree about the columns' number, names or kinds.
        """
        schemas = list(schemas)
        if not schemas:
            raise ValueError("schemas is empty; at least one partition is needed")
        widths = sorted({len(schema) for schema in schemas})
        if len(widths) > 1:
            raise ValueError(f"X has partitions of {widths[0]} and of {widths[-1]} columns; all must have the same columns")
        return cls(tuple(merge_column([schema.columns[j] for schema in schemas]) for j in range(widths[0])))

    def encode(self, X: Any) -> list[NDArray[Any]]:
        """Return the columns as numeric or bool arrays of shape (n,), each of the schema's dtype; NaN where missing.

        Infinities are the largest and the smallest number of the dtype (:func:`~dtrees.ensemble.input.column.finite`).

        Raises
        ------
        ValueError
            If X holds integers beyond 2**53, or columns of another kind than the schema's.
        TypeError
            If X is sparse; see :meth:`cells`.
        """
        if is_frame(X):
            named = frame_columns(X)
            self._check_width(len(named))
            return [encode_column(column, series) for column, (_, series) in zip(self.columns, named, strict=True)]
        if is_sparse(X):
            raise TypeError("X is sparse, and its columns are wanted as arrays; pass X.toarray()")
        X = numeric_array(X)
        self._check_width(X.shape[1])
        check_values(X, "X")
        bounded = finite if has_infinity(X) else np.asarray
        return [
            numbers_of(column, X[:, j]) if column.kind == CATEGORICAL else bounded(X[:, j].astype(column.dtype, copy=False))
            for j, column in enumerate(self.columns)
        ]

    def cells(self, X: Any) -> Any:
        """Return a sparse table as CSC whose stored cells are in order, each once, none of them zero; NaN where missing.

        Infinities are as of :meth:`encode`.

        Raises
        ------
        ValueError
            If X holds integers beyond 2**53.
        """
        X = by_columns(sparse_table(X))
        self._check_width(X.shape[1])
        check_values(X.data, "X")
        if has_infinity(X.data):
            X = X.astype(self.columns[0].dtype)  # a copy
            X.data = finite(X.data)
        return X

    def numbers_at(self, points: NDArray[Any], columns: Iterable[int]) -> NDArray[np.float64]:
        """Return points of a grid as the numbers that trees compare: of columns of categories, their category numbers.

        Parameters
        ----------
        points : ndarray of shape (n_points, n)
            Values of some columns as they are in X.
        columns : iterable of int
            Their places.

        Examples
        --------
        >>> import pandas as pd
        >>> schema = Schema.infer(pd.DataFrame({"job": ["smith", "baker"]}))
        >>> schema.numbers_at(np.array([["baker"], ["smith"], ["potter"]]), [0])
        array([[ 0.],
               [ 1.],
               [nan]])
        """
        return np.column_stack([numbers_at(self.columns[j], points[:, k]) for k, j in enumerate(columns)])

    def matrix(self, X: Any) -> Any:
        """Return a table for prediction: float32 where that holds every column exactly, else float64; NaN where missing.

        Parameters
        ----------
        X : array-like, sparse table or frame of shape (n, n_columns)
            n may be 0.

        Returns
        -------
        ndarray of shape (n, n_columns)
            SparseRows of that shape, if X is sparse.

        Raises
        ------
        ValueError
            If X holds integers beyond 2**53, or columns of another kind than the schema's.
        """
        X = checked_table(X)
        if is_frame(X) and all(column.kind == NUMERIC for column in self.columns):
            X = numbers_of_frame(X)
        if is_frame(X):
            named = frame_columns(X)
            self._check_width(len(named))
            encoded = [
                encode_column(Column(name, column.kind, "", column.categories), series)
                for column, (name, series) in zip(self.columns, named, strict=True)
            ]
            matrix = np.empty((len(encoded[0]), len(encoded)), dtype=float_dtype(*(array.dtype for array in encoded)))
            for j, array in enumerate(encoded):
                matrix[:, j] = array
            return matrix
        self._check_width(X.shape[1])
        for _, column in self._categorical:
            if not column.holds_numbers:
                raise ValueError(f"X is an array, but column {column.name!r} held categories at fit; pass a frame with the columns of fit")
        if is_sparse(X):
            return self._sparse_rows(X)
        check_values(X, "X")
        numbers = {j: numbers_of(column, X[:, j]) for j, column in self._categorical}
        matrix = X.astype(float_dtype(X.dtype, *(array.dtype for array in numbers.values())), copy=bool(numbers))
        for j, array in numbers.items():
            matrix[:, j] = array
        return matrix

    def _sparse_rows(self, X: Any) -> Any:
        from dtrees.tree.predict import SparseRows

        if self._categorical:
            raise ValueError("X is sparse, but some columns held categories at fit; pass it as a dense table")
        X = by_rows(X)
        check_values(X.data, "X")
        return SparseRows(X.indptr, X.indices, X.data.astype(float_dtype(X.dtype), copy=False), X.shape[1])

    def warn_of_text(self, n_rows: int) -> None:
        """Warn of columns of text that were hardly meant to be categories: numbers, and text that differs from row to row."""
        for column in self.columns:
            n_categories = len(column.categories)
            if not column.is_text or n_categories < _MANY_NUMBERS:
                continue
            example = column.categories[-1]
            if all(map(looks_like_number, column.categories)):
                warn(
                    f"X column {column.name!r} holds numbers as text, such as {example!r:.40}, which are taken for categories: their "
                    "order is that of the text, and numbers not seen at fit are missing values; convert it to numbers "
                    f"({HOW_TO_READ}), or to a category dtype if categories are meant"
                )
            elif n_categories >= max(_MANY_TEXTS, _MOST * n_rows):
                warn(
                    f"X column {column.name!r} holds {n_categories} different texts in {n_rows} rows, such as {example!r:.40}, which "
                    "are taken for categories: hardly any will be seen again at prediction; drop it, or make columns of what it says"
                )

    def to_json(self) -> list[dict[str, Any]]:
        """Return the schema as plain data that JSON can hold."""
        return [
            {"name": column.name, "kind": column.kind, "dtype": column.dtype, "categories": list(column.categories)}
            | ({"ordered": True} if column.order else {})
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """Return the schema that :meth:`to_json` described.

        Raises
        ------
        ValueError
            If ``data`` is not such a description.
        """
        try:
            if type(data) is not list or not data:
                raise ValueError("it lists no columns")
            schema = cls(tuple(column_from_json(item) for item in data))
            if len({column.name is None for column in schema.columns}) > 1:
                raise ValueError("some of its columns have names, and some have none")
        except ValueError as error:
            raise ValueError(f"the schema is damaged: {error}") from error
        return schema

    def _check_width(self, width: int) -> None:
        if width != len(self.columns):
            raise ValueError(f"X has {width} features, but {len(self.columns)} were seen at fit; pass the columns of fit")
