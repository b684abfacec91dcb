"""Tables in this process and their schemas: the conversion of the columns of X to numbers, the same for training and prediction.

X is a frame with typed columns, a sparse table, or an object that converts to an array of numbers. Other objects are refused, with messages
that name X, the value and what is wanted; scikit-learn's own messages would show the data. The columns of a frame (pandas, polars, or
others that narwhals supports) may also have text or categories: these become *category numbers*, positions in a dictionary that is global
to the fit (:mod:`dtrees.ensemble.input.column`).

Sparse tables are those of scipy.sparse. CSR and CSC are used directly, other formats are converted as in scikit-learn. A cell that is not
stored is 0, like a stored 0; duplicate cells are added up; NaN is missing. No function here makes a table dense.

Use
---
For one table, ``schema = Schema.infer(X)``. For several partitions, infer a schema from each and ``Schema.merge`` them; the result does not
depend on the partitioning. Then ``schema.encode(part)`` returns training columns, with their dtypes, and ``schema.matrix(part)`` a matrix
for prediction. Columns are identified by position; names are used in messages, and must be compared by the caller (estimators follow
scikit-learn's rules). ``to_json`` and ``from_json`` convert a schema for a model file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from dtrees.ensemble.input.column import (
    CATEGORICAL,
    HOW_TO_READ,
    MAX_INTEGER,
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
from dtrees.ensemble.input.warning import warn


def is_frame(X: Any) -> bool:
    """Return whether ``X`` is a frame with typed columns, as opposed to an object that converts to an array."""
    if isinstance(X, np.ndarray):
        return False
    if nw.dependencies.is_polars_lazyframe(X):
        raise TypeError("X is a lazy frame; call .collect() and pass the result")
    return bool(nw.dependencies.is_into_dataframe(X))


def checked_table(X: Any) -> Any:
    """Return ``X``: frames unchanged, sparse tables as CSR or CSC (:func:`~dtrees.ensemble.input.schema.sparse_table`), others as arrays.

    A pandas frame whose columns are all sparse numbers, with 0 as the fill value, is a sparse table.
    """
    if not is_frame(X):
        return sparse_table(X) if is_sparse(X) else numeric_array(X)
    return sparse_table(X.sparse.to_coo()) if _has_sparse_columns(X) else X


def _pandas_dtypes(frame: Any) -> set[Any]:
    """Return the dtypes of a pandas frame's columns; empty for other frames."""
    return set(frame.dtypes) if hasattr(frame, "iloc") else set()


def _has_sparse_columns(frame: Any) -> bool:
    dtypes = _pandas_dtypes(frame)
    return bool(dtypes) and all(hasattr(dtype, "fill_value") and dtype.fill_value == 0 and dtype.kind in "biuf" for dtype in dtypes)


def numbers_of_frame(frame: Any) -> Any:
    """Convert a pandas frame whose columns are all numeric NumPy arrays to one array; return other frames unchanged.

    Converting columns one by one takes 0.3 ms for each, which dominates if there are few rows.
    """
    dtypes = _pandas_dtypes(frame)
    if not dtypes or not all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes):
        return frame
    integers = [dtype for dtype in dtypes if dtype.kind in "iu" and dtype.itemsize == 8]
    values = frame.select_dtypes(integers).to_numpy() if integers else np.zeros(1)
    if values.min(initial=0) < -MAX_INTEGER or values.max(initial=0) > MAX_INTEGER:
        return frame  # for a message that names the column
    return numeric_array(frame.to_numpy(None if len(dtypes) == 1 else float_dtype(*dtypes)))


def column_names(X: Any) -> list[Any]:
    """Return the names of a frame's columns; empty if ``X`` is not a frame."""
    if not is_frame(X):
        return []
    return list(X.columns) if hasattr(X, "iloc") else list(nw.from_native(X, eager_only=True).columns)


def unmasked(X: Any) -> Any:
    """Convert a masked array to one with NaN in the masked cells, of a dtype that is exact for the others; return others unchanged.

    >>> unmasked(np.ma.masked_equal(np.array([[1, 2]], np.int16), 2))
    array([[ 1., nan]], dtype=float32)
    """
    if not isinstance(X, np.ma.MaskedArray):
        return X
    if not np.ma.is_masked(X) or X.dtype.kind not in "biufO":
        return X.data
    check_values(X.compressed(), "X")
    floats = X.data.astype(X.dtype if X.dtype.kind == "O" else np.result_type(X.dtype, np.float16))
    floats[np.ma.getmaskarray(X)] = np.nan
    return floats


def without_mask(values: Any, name: str) -> Any:
    """Convert a masked array without masked values to a plain array; return other objects unchanged.

    Raises
    ------
    ValueError
        If a value is masked.
    TypeError
        If it is a ``numpy.matrix``.
    """
    refuse_matrix(values, name)
    if not isinstance(values, np.ma.MaskedArray):
        return values
    n_masked = int(np.ma.count_masked(values))
    if n_masked:
        raise ValueError(f"{name} is a masked array with {n_masked} masked value(s); drop these rows, every value must be known")
    return values.data


def refuse_matrix(values: Any, name: str) -> None:
    """Raise TypeError for a ``numpy.matrix``, which remains two-dimensional under any indexing."""
    if isinstance(values, np.matrix):
        raise TypeError(f"{name} is a numpy.matrix; wants an array, numpy.asarray({name})")


def numeric_array(X: Any) -> NDArray[Any]:
    """Return ``X`` as an array of shape (n, n_columns) of float32, float64, integers or bool; n may be 0.

    Masked cells are missing values.

    Raises
    ------
    ValueError
        If X is not 2-D, or has text, dates or complex numbers.
    TypeError
        If X is sparse, or a ``numpy.matrix``.
    """
    refuse_matrix(X, "X")
    X = unmasked(X)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "biuf":
        if isinstance(X, list | tuple):
            X = np.asarray(X)
        if isinstance(X, np.ndarray) and X.dtype.kind in "SUTmM":
            raise ValueError(f"X is an array of dtype {X.dtype}; wants numbers. Convert dates; text may be in a frame (pandas, polars)")
        if getattr(getattr(X, "dtype", None), "kind", "") == "c":  # scikit-learn's message would show the whole array
            raise ValueError(f"Complex data not supported: X is an array of dtype {X.dtype}; wants real numbers")
        X = _with_rows_and_columns(X)
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X became an array of dtype {X.dtype}; wants numbers (text is accepted in a pandas or polars frame)")
    return _of_common_dtype(X)


def _of_common_dtype(X: Any) -> Any:
    """Return a table of numbers, sparse or not, as one of integers, bool, float32 or float64; raise if it has no columns."""
    if X.shape[1] == 0:
        raise ValueError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        X = X.astype(np.float32 if X.dtype.itemsize == 2 else np.float64)
    return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))


def _with_rows_and_columns(X: Any) -> NDArray[Any]:
    """Convert to a numeric matrix by scikit-learn's rules, whose own messages would show the data and not name the argument."""
    shape = getattr(X, "shape", None) or ()
    if isinstance(X, np.ndarray) and len(shape) == 1:
        raise ValueError(
            f"Expected 2D array, got 1D array instead: X has shape {shape}. Reshape your data either using X.reshape(-1, 1) if it has a "
            "single feature, or X.reshape(1, -1) if it contains a single sample."
        )
    if isinstance(X, str | bytes | Mapping) or not (hasattr(X, "__len__") or hasattr(X, "__array__")):
        raise TypeError(f"X is {X!r:.60} of type {type(X).__name__}; wants an array or a frame of shape (n, n_features)")
    try:
        return np.asarray(check_array(X, dtype="numeric", ensure_all_finite=False, ensure_min_samples=0, input_name="X"))
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise ValueError(
            f"X is a {type(X).__name__} of objects that are not all numbers ({error}); wants numbers. Text is accepted in a frame (pandas, "
            "polars): in a pipeline, have the steps before return one by set_output(transform='pandas')"
        ) from error


def frame_columns(X: Any) -> list[tuple[str, nw.Series[Any]]]:
    """Return a frame's columns by position (names need not be distinct), each with a name for messages."""
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


def is_sparse(X: Any) -> bool:
    """Return whether ``X`` is an array or a matrix of scipy.sparse."""
    return bool(sparse.issparse(X))


def sparse_table(X: Any) -> Any:
    """Return a sparse ``X`` as CSR or CSC of shape (n, n_columns), of float32, float64, integers or bool; n may be 0.

    Raises
    ------
    ValueError
        If X is not 2-D, has no columns, or has complex numbers.
    """
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X is sparse, of shape {X.shape}; wants shape (n, n_features).")
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X is sparse, of dtype {X.dtype}; wants real numbers")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X is sparse, of dtype {X.dtype}; wants numbers")
    return _of_common_dtype(X if X.format in ("csr", "csc") else X.tocsr())


def _canonical(X: Any, form: str) -> Any:
    """Return a table in a format, with ordered cells and no duplicates; the user's object does not change.

    A conversion sorts cells in a stable way, so that duplicates are added up in the same order as by ``toarray``.
    """
    if X.format == form and not X.has_canonical_format:
        X = X.tocsc() if form == "csr" else X.tocsr()
    converted = X.asformat(form)
    if not converted.has_canonical_format:
        converted = converted.copy() if converted is X else converted
        converted.sum_duplicates()
    return converted


#: Number of categories from which text columns give a warning: if all are numbers, and if most rows differ.
_MANY_NUMBERS, _MANY_TEXTS = 3, 20
#: The meaning of "most rows".
_MOST = 0.9


@dataclass(frozen=True)
class Schema:
    """The columns of a table and their conversion to numbers.

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
        """The categorical columns and their positions."""
        return [(j, column) for j, column in enumerate(self.columns) if column.kind == CATEGORICAL]

    @classmethod
    def infer(cls, X: Any, categories: Collection[int] = ()) -> Schema:
        """Return the schema of a table, or of one partition of it.

        Parameters
        ----------
        X : array-like, sparse table or frame of shape (n, n_columns)
        categories : collection of int, default=()
            Columns whose values are categories, even if they are numbers.

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
        """Merge the schemas of all partitions; their order and number do not matter.

        Raises
        ------
        ValueError
            If the number, names or kinds of columns differ between partitions.
        """
        schemas = list(schemas)
        if not schemas:
            raise ValueError("schemas is empty; at least one partition is needed")
        widths = sorted({len(schema) for schema in schemas})
        if len(widths) > 1:
            raise ValueError(f"X has partitions of {widths[0]} and of {widths[-1]} columns; all must have the same columns")
        return cls(tuple(merge_column([schema.columns[j] for schema in schemas]) for j in range(widths[0])))

    def encode(self, X: Any) -> list[NDArray[Any]]:
        """Return the columns of a dense table as numeric or bool arrays of shape (n,), each of the schema's dtype; NaN where missing.

        Infinities are replaced by the largest and the smallest number of the dtype (:func:`~dtrees.ensemble.input.column.finite`).

        Raises
        ------
        ValueError
            If X holds integers beyond 2**53, or columns of another kind than the schema's.
        """
        if is_frame(X):
            named = frame_columns(X)
            self._check_width(len(named))
            return [encode_column(column, series) for column, (_, series) in zip(self.columns, named, strict=True)]
        X = numeric_array(X)
        self._check_width(X.shape[1])
        check_values(X, "X")
        bounded = finite if has_infinity(X) else np.asarray
        return [
            numbers_of(column, X[:, j]) if column.kind == CATEGORICAL else bounded(X[:, j].astype(column.dtype, copy=False))
            for j, column in enumerate(self.columns)
        ]

    def cells(self, X: Any) -> Any:
        """Return a sparse table as CSC with ordered cells, no duplicates and no stored zeros; NaN if missing.

        Infinities are replaced as in :meth:`encode`.

        Raises
        ------
        ValueError
            If X holds integers beyond 2**53.
        """
        X = _canonical(sparse_table(X), "csc")
        if np.count_nonzero(X.data) < X.data.shape[0]:
            X = X.copy()
            X.eliminate_zeros()
        self._check_width(X.shape[1])
        check_values(X.data, "X")
        if has_infinity(X.data):
            X = X.astype(self.columns[0].dtype)  # a copy
            X.data = finite(X.data)
        return X

    def numbers_at(self, points: NDArray[Any], columns: Iterable[int]) -> NDArray[np.float64]:
        """Convert points of a grid to the numbers that trees compare: category numbers in categorical columns.

        Parameters
        ----------
        points : ndarray of shape (n_points, n)
            Values of some columns, as in X.
        columns : iterable of int
            The positions of these columns.

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
        """Convert a table for prediction: to float32 if that is exact for every column, otherwise to float64; NaN if missing.

        Parameters
        ----------
        X : array-like, sparse table or frame of shape (n, n_columns)
            n may be 0.

        Returns
        -------
        ndarray of shape (n, n_columns)
            A CSR table of that shape if X is sparse.

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
            if self._categorical:
                raise ValueError("X is sparse, but some columns held categories at fit; pass it as a dense table")
            X = _canonical(X, "csr")
            check_values(X.data, "X")
            return X.astype(float_dtype(X.dtype), copy=False)
        check_values(X, "X")
        numbers = {j: numbers_of(column, X[:, j]) for j, column in self._categorical}
        matrix = X.astype(float_dtype(X.dtype, *(array.dtype for array in numbers.values())), copy=bool(numbers))
        for j, array in numbers.items():
            matrix[:, j] = array
        return matrix

    def warn_of_text(self, n_rows: int) -> None:
        """Warn of text columns that are probably not categories: numbers, and text that differs from row to row."""
        for column in self.columns:
            n_categories = len(column.categories)
            if not column.is_text or n_categories < _MANY_NUMBERS:
                continue
            example = column.categories[-1]
            if all(map(looks_like_number, column.categories)):
                warn(
                    f"X column {column.name!r} holds numbers as text, such as {example!r:.40}, which are used as categories: their "
                    "order is that of the text, and numbers not seen at fit are missing values; convert it to numbers "
                    f"({HOW_TO_READ}), or to a category dtype if categories are meant"
                )
            elif n_categories >= max(_MANY_TEXTS, _MOST * n_rows):
                warn(
                    f"X column {column.name!r} holds {n_categories} different texts in {n_rows} rows, such as {example!r:.40}, which "
                    "are taken for categories: hardly any will be seen again at prediction; drop it, or derive columns from it"
                )

    def to_json(self) -> list[dict[str, Any]]:
        """Return the schema as data for JSON."""
        return [
            {"name": column.name, "kind": column.kind, "dtype": column.dtype, "categories": list(column.categories)}
            | ({"ordered": True} if column.order else {})
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """Return the schema described by the result of :meth:`to_json`.

        Raises
        ------
        ValueError
            If ``data`` is not a valid description.
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
