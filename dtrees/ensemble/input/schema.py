"""Schemas: how the columns of a table become numbers, the same at training and at prediction.

A NumPy array must be numeric and is taken as it is. The columns of a frame (pandas, polars, anything else narwhals reads)
may also hold text or categories: they become *category numbers*, positions in a dictionary that is global to the fit.

Terms
-----
kind
    ``"numeric"``, ``"categorical"``, or ``"unknown"`` for a column without a single value (all missing, of whatever dtype), which
    says nothing about its kind: it takes on the kind that other partitions show.
dictionary
    the sorted distinct categories of a column. Missing values and categories it does not hold become NaN.

Use
---
One table: ``schema = Schema.infer(X)``. Many partitions: infer each and ``Schema.merge`` them; the result does not depend on how
rows fall into partitions. Then ``schema.encode(part)`` gives training columns, which keep their dtype, and
``schema.matrix(part)`` a matrix for prediction. Columns are taken by position; names are for messages, and it is up to the caller
to compare them (estimators do, by scikit-learn's rules). ``to_json`` and ``from_json`` carry a schema in a model file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.plain_data import check_labels, check_text, take
from dtrees.ensemble.input.sparse import by_columns, by_rows, is_sparse, sparse_table
from dtrees.ensemble.input.tables import checked_table, is_frame, numeric_array
from dtrees.ensemble.input.warning import warn

NUMERIC, CATEGORICAL, UNKNOWN = "numeric", "categorical", "unknown"

#: Integers beyond this are not exact in float64.
MAX_INTEGER = 2**53
#: Dictionaries up to this size have category numbers exact in float32.
_MAX_FLOAT32_INTEGER = 2**24

#: Text columns are warned of from so many categories on: those that are all numbers, and those with another text in most rows.
_MANY_NUMBERS, _MANY_TEXTS = 3, 20
#: What "most rows" means.
_MOST = 0.9
#: What columns of numbers can be.
_DTYPES = {np.dtype(code).name for code in "?bBhHiIlLqQfd"}

_SUPPORTED = "numbers, booleans, text or categories"


@dataclass(frozen=True)
class Column:
    """One column: its name (None for arrays), kind, dtype when numeric, dictionary when categorical.

    ``is_text`` says of a categorical column that it came as plain text, not as a dtype of categories; it is no part of what it is.
    """

    name: str | None
    kind: str
    dtype: str = "float64"
    categories: tuple[Any, ...] = ()
    is_text: bool = field(default=False, compare=False)

    @property
    def holds_numbers(self) -> bool:
        """Whether all categories are numbers."""
        return all(isinstance(category, int | float) and not isinstance(category, bool) for category in self.categories)


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
            return cls(tuple(_numbers_as_categories(None, X[:, j]) if j in categories else numeric for j in range(X.shape[1])))
        return cls(tuple(_infer_column(name, series, j in categories) for j, (name, series) in enumerate(_frame_columns(X))))

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
        return cls(tuple(_merge_column([schema.columns[j] for schema in schemas]) for j in range(widths[0])))

    def encode(self, X: Any) -> list[NDArray[Any]]:
        """Return the columns as numeric or bool arrays of shape (n,), each of the schema's dtype; NaN where missing.

        Raises
        ------
        ValueError
            If X holds infinity, integers beyond 2**53, or columns of another kind than the schema's.
        TypeError
            If X is sparse; see :meth:`cells`.
        """
        if is_frame(X):
            named = _frame_columns(X)
            self._check_width(len(named))
            return [_encode_column(column, series) for column, (_, series) in zip(self.columns, named, strict=True)]
        if is_sparse(X):
            raise TypeError("X is sparse, and its columns are wanted as arrays; pass X.toarray()")
        X = numeric_array(X)
        self._check_width(X.shape[1])
        _check_values(X, "X")
        return [
            _numbers_of(column, X[:, j]) if column.kind == CATEGORICAL else X[:, j].astype(column.dtype, copy=False)
            for j, column in enumerate(self.columns)
        ]

    def cells(self, X: Any) -> Any:
        """Return a sparse table as CSC whose stored cells are in order, each once, none of them zero; NaN where missing.

        Raises
        ------
        ValueError
            If X holds infinity or integers beyond 2**53.
        """
        X = by_columns(sparse_table(X))
        self._check_width(X.shape[1])
        _check_values(X.data, "X")
        return X

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
            If X holds infinity, integers beyond 2**53, or columns of another kind than the schema's.
        """
        if is_frame(X):
            named = _frame_columns(X)
            self._check_width(len(named))
            encoded = [
                _encode_column(Column(name, column.kind, "", column.categories), series)
                for column, (name, series) in zip(self.columns, named, strict=True)
            ]
            matrix = np.empty((len(encoded[0]), len(encoded)), dtype=_float_dtype(*(array.dtype for array in encoded)))
            for j, array in enumerate(encoded):
                matrix[:, j] = array
            return matrix
        X = checked_table(X)
        self._check_width(X.shape[1])
        for column in self.columns:
            if column.kind == CATEGORICAL and not column.holds_numbers:
                raise ValueError(f"X is an array, but column {column.name!r} held categories at fit; pass a frame with the columns of fit")
        if is_sparse(X):
            return self._sparse_rows(X)
        _check_values(X, "X")
        numbers = {j: _numbers_of(column, X[:, j]) for j, column in enumerate(self.columns) if column.kind == CATEGORICAL}
        matrix = X.astype(_float_dtype(X.dtype, *(array.dtype for array in numbers.values())), copy=bool(numbers))
        for j, array in numbers.items():
            matrix[:, j] = array
        return matrix

    def _sparse_rows(self, X: Any) -> Any:
        from dtrees.tree.sparse_rows import SparseRows

        if any(column.kind == CATEGORICAL for column in self.columns):
            raise ValueError("X is sparse, but some columns held categories at fit; pass it as a dense table")
        X = by_rows(X)
        _check_values(X.data, "X")
        return SparseRows(X.indptr, X.indices, X.data.astype(_float_dtype(X.dtype), copy=False), X.shape[1])

    def warn_of_text(self, n_rows: int) -> None:
        """Warn of columns of text that were hardly meant to be categories: numbers, and text that differs from row to row."""
        for column in self.columns:
            n_categories = len(column.categories)
            if not column.is_text or n_categories < _MANY_NUMBERS:
                continue
            example = column.categories[-1]
            if all(map(_is_number, column.categories)):
                warn(
                    f"X column {column.name!r} holds numbers as text, such as {example!r:.40}, which are taken for categories: their "
                    "order is that of the text, and numbers not seen at fit are missing values; convert it to numbers (astype(float)), or "
                    "to a category dtype if categories are meant"
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
            schema = cls(tuple(_column_from_json(item) for item in data))
            if len({column.name is None for column in schema.columns}) > 1:
                raise ValueError("some of its columns have names, and some have none")
        except ValueError as error:
            raise ValueError(f"the schema is damaged: {error}") from error
        return schema

    def _check_width(self, width: int) -> None:
        if width != len(self.columns):
            raise ValueError(f"X has {width} features, but {len(self.columns)} were seen at fit; pass the columns of fit")


def _is_number(text: str) -> bool:
    """Return whether a text is a number, with a point or a comma."""
    try:
        return math.isfinite(float(text.replace(",", ".", 1)))
    except ValueError:
        return False


def _column_from_json(item: Any) -> Column:
    """Return the column that a dict describes; raises ValueError if it does not describe one."""
    owner = "a column"
    name, kind = take(item, "name", (str, type(None)), owner), take(item, "kind", str, owner)
    dtype, categories = take(item, "dtype", str, owner), take(item, "categories", list, owner)
    if name is not None:
        check_text(name, "the names of columns")
    if kind == CATEGORICAL:
        check_labels(categories, f"the categories of column {name!r}")
        if dtype:
            raise ValueError(f"column {name!r} is categorical, but has the dtype {dtype!r:.40}")
        return Column(name, kind, dtype, tuple(categories))
    if kind not in (NUMERIC, UNKNOWN) or dtype not in _DTYPES or categories:
        raise ValueError(f"column {name!r} is of kind {kind!r:.40} and dtype {dtype!r:.40}")
    return Column(name, kind, dtype)


def _float_dtype(*dtypes: np.dtype[Any]) -> type[np.floating[Any]]:
    """Return float32 if it holds all values of these dtypes exactly, else float64."""
    small = all(dtype.itemsize <= 2 or (dtype.kind == "f" and dtype.itemsize == 4) for dtype in dtypes)
    return np.float32 if small else np.float64


def _check_values(values: NDArray[Any], where: str) -> None:
    """Raise if there is an infinity or an integer that float64 cannot hold."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            total = values.sum()
        if not np.isfinite(total) and np.isinf(values).any():
            raise ValueError(f"{where} contains infinity; wants finite numbers (NaN marks missing values)")
    elif values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        _check_integers(int(values.min()), int(values.max()), where)


def _check_integers(low: int, high: int, where: str) -> None:
    if low < -MAX_INTEGER or high > MAX_INTEGER:
        extreme = high if high > MAX_INTEGER else low
        raise ValueError(
            f"{where} contains the integer {extreme}; integers must lie within +-2**53 to be exact as float64. "
            "Drop identifiers, or pass them as text to be categories"
        )


def _frame_columns(X: Any) -> list[tuple[str, nw.Series[Any]]]:
    """Return the frame's columns by position (names need not be distinct), each with a name for messages."""
    if hasattr(X, "iloc"):
        series = [nw.from_native(X.iloc[:, j], series_only=True) for j in range(X.shape[1])]
        names = [str(name) for name in X.columns]
    else:
        frame = nw.from_native(X, eager_only=True)
        names = list(frame.columns)
        series = [frame.get_column(name) for name in names]
    if not series:
        raise ValueError(f"X has 0 feature(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    return list(zip(names, series, strict=True))


def _numbers_as_categories(name: str | None, values: NDArray[Any]) -> Column:
    """Return the column of numbers that are categories."""
    values = values.astype(np.float64, copy=False)
    integers = _small_integers(values)
    if integers is None:
        distinct = np.unique(values)
        distinct = distinct[~np.isnan(distinct)] + 0.0  # no negative zero
    else:
        distinct = np.flatnonzero(np.bincount(integers + 1)[1:]).astype(np.float64)
    return Column(name, CATEGORICAL, "", tuple(distinct.tolist())) if len(distinct) else Column(name, UNKNOWN)


def _numbers_of(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    """Return the category number of each value of a column of numbers, NaN for missing values and other categories."""
    distinct, values = np.array(column.categories, np.float64), values.astype(np.float64, copy=False)
    dtype = np.float32 if len(distinct) <= _MAX_FLOAT32_INTEGER else np.float64
    integers, known = _small_integers(values), _small_integers(distinct)
    if integers is None or known is None:
        place = np.minimum(np.searchsorted(distinct, values), len(distinct) - 1)
        return np.where(distinct[place] == values, place, np.nan).astype(dtype)
    number_of = np.full(known.max(initial=-1) + 2, np.nan, dtype)  # the last is that of missing values, and of higher ones
    number_of[known] = np.arange(len(distinct))
    return number_of[np.minimum(integers, len(number_of) - 1)]


def _small_integers(values: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return values as integers, -1 where missing, if they are integers from 0 to not many times their number; otherwise None.

    They are looked up in a table then, in a tenth of the time that it takes to sort them.
    """
    missing = np.isnan(values)
    numbers = np.where(missing, -1.0, values)
    if not len(numbers) or numbers.max() >= 4 * len(numbers) + 2**16 or np.count_nonzero(numbers < 0.0) > np.count_nonzero(missing):
        return None
    integers = numbers.astype(np.int64)
    return integers if np.array_equal(integers, numbers) else None


def _infer_column(name: str, series: nw.Series[Any], is_categorical: bool = False) -> Column:
    where = f"X column {name!r}"
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        numbers = _numeric(series, where)
        if is_categorical:
            return _numbers_as_categories(name, numbers)
        # A partition of a text column without a single word may be read as numbers, all NaN.
        empty = numbers.dtype.kind == "f" and np.isnan(numbers[:1]).all() and np.isnan(numbers).all()
        return Column(name, UNKNOWN if empty else NUMERIC, numbers.dtype.name)
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object, nw.Unknown):
        values = {value for value in _distinct(series, where) if not is_missing(value)}
        kinds = {_value_kind(value, where) for value in values}
        if not kinds:
            return Column(name, UNKNOWN)
        if len(kinds) > 1:
            raise ValueError(f"{where} mixes {' and '.join(sorted(kinds))}; convert it to one of them, for example with astype(str)")
        if kinds != {"text"} and dtype not in (nw.Categorical, nw.Enum):
            if is_categorical:
                return _numbers_as_categories(name, _numeric(series, where))
            return Column(name, NUMERIC, _numeric(series, where).dtype.name)
        return Column(name, CATEGORICAL, "", tuple(sorted(map(_plain, values))), is_text=dtype not in (nw.Categorical, nw.Enum))
    raise ValueError(f"{where} is of dtype {dtype}; wants {_SUPPORTED} (turn dates into numbers, such as days since a fixed date)")


def _merge_column(parts: list[Column]) -> Column:
    names = {part.name for part in parts}
    if len(names) > 1:
        raise ValueError(f"X has partitions that name a column differently: {sorted(map(str, names))}; all must have the same columns")
    name = parts[0].name
    kinds = {part.kind for part in parts if part.kind != UNKNOWN}
    if len(kinds) > 1:
        raise ValueError(f"X column {name!r} holds text or categories in some partitions and numbers in others; give it one dtype")
    if kinds != {CATEGORICAL}:
        # Unknown ones count: their missing values are floats.
        return Column(name, kinds.pop() if kinds else UNKNOWN, np.result_type(*(np.dtype(part.dtype) for part in parts)).name)
    categories = {category for part in parts for category in part.categories}
    value_kinds = {_value_kind(category, f"X column {name!r}") for category in categories}
    if len(value_kinds) > 1:
        raise ValueError(f"X column {name!r} has partitions with categories of {' and '.join(sorted(value_kinds))}; give it one dtype")
    return Column(name, CATEGORICAL, "", tuple(sorted(categories)), is_text=any(part.is_text for part in parts))


def _encode_column(column: Column, series: nw.Series[Any]) -> NDArray[Any]:
    where = f"X column {column.name!r}"
    if column.kind == CATEGORICAL:
        return _category_numbers(column, series, where)
    if column.kind == UNKNOWN:
        return np.full(len(series), np.nan, column.dtype or np.float32)
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean) and _infer_column(str(column.name), series).kind == CATEGORICAL:
        raise ValueError(f"{where} was numeric at fit, but now holds {series.dtype}; convert it to numbers")
    values = _numeric(series, where)
    return values.astype(column.dtype, copy=False) if column.dtype else values


def _category_numbers(column: Column, series: nw.Series[Any], where: str) -> NDArray[Any]:
    if column.holds_numbers and (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        return _numbers_of(column, _numeric(series, where))
    numbers = {category: number for number, category in enumerate(column.categories)}
    values = series.to_list()
    dtype = np.float32 if len(numbers) <= _MAX_FLOAT32_INTEGER else np.float64
    codes = np.fromiter(map(numbers.get, values, repeat(np.nan)), dtype, len(values))
    if numbers and series.dtype not in (nw.String, nw.Enum) and np.isnan(codes).any():
        # Unseen categories are missing values, but numbers where there was text are a mistake: none could ever match.
        wanted = _value_kind(column.categories[0], where)
        for value in _distinct(series, where):
            if not is_missing(value) and _value_kind(value, where) != wanted:
                raise ValueError(f"{where} held categories of {wanted} at fit, but now holds {value!r}; convert it to {wanted}")
    return codes


def _numeric(series: nw.Series[Any], where: str) -> NDArray[Any]:
    """Return a numeric or bool column as an array, NaN where missing, its values checked."""
    dtype = series.dtype
    if dtype.is_integer() and len(series) > series.null_count():
        # Before conversion: an integer column with missing values comes out of it as (possibly rounded) float64.
        _check_integers(int(series.min()), int(series.max()), where)
    if dtype.is_integer() or dtype.is_float():
        values = series.to_numpy() if dtype not in (nw.Int128, nw.UInt128) else series.cast(nw.Float64).to_numpy()
    elif dtype == nw.Boolean and not series.null_count():
        values = series.to_numpy().astype(bool, copy=False)
    else:
        plain = [np.nan if is_missing(value) else value for value in series.to_list()]
        _check_integers(*_integer_range(plain), where)
        values = np.array(plain, dtype=np.float64)
    if values.dtype.kind not in "biuf":
        values = series.cast(nw.Float64).to_numpy().astype(np.float64)
    if values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8):
        values = values.astype(np.float32 if values.dtype.itemsize == 2 else np.float64)
    _check_values(values, where)
    return values


def _integer_range(values: list[Any]) -> tuple[int, int]:
    integers = [int(value) for value in values if isinstance(value, int | np.integer)]
    return (min(integers), max(integers)) if integers else (0, 0)


def _distinct(series: nw.Series[Any], where: str) -> list[Any]:
    try:
        return list(series.unique().to_list())
    except TypeError as error:
        raise ValueError(f"{where} holds values that cannot be compared ({error}); wants {_SUPPORTED}") from error


def is_missing(value: Any) -> bool:
    """Return whether ``value`` is None, NaN or pandas' NA, which is neither true nor false when compared."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float | np.floating) and value != value)


def _value_kind(value: Any, where: str) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "booleans"
    if isinstance(value, int | float | np.integer | np.floating) or type(value).__name__ == "Decimal":
        return "numbers"
    raise ValueError(f"{where} holds {value!r} of type {type(value).__name__}; wants {_SUPPORTED}")


def _plain(value: Any) -> Any:
    """Return ``value`` as the Python scalar that JSON holds."""
    return value.item() if isinstance(value, np.generic) else value
