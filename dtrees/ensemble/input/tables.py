"""What users pass as X, in this process: a frame with typed columns, a sparse table, or something that makes an array of numbers.

What is neither is refused here, by messages that name X, what came and what is wanted; scikit-learn's own would show the data.

Sparse tables are those of scipy.sparse. CSR and CSC are taken as they are, other formats are converted as scikit-learn converts them. A
cell that is not stored is 0, and a stored 0 is the same; cells that are stored more than once are added up; NaN is missing. Nothing here
makes a table dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from dtrees.ensemble.input.column import MAX_INTEGER, check_values, float_dtype


def is_frame(X: Any) -> bool:
    """Return whether ``X`` is a frame with typed columns rather than something to make an array of."""
    if isinstance(X, np.ndarray):
        return False
    if nw.dependencies.is_polars_lazyframe(X):
        raise TypeError("X is a lazy frame; call .collect() and pass the result")
    return bool(nw.dependencies.is_into_dataframe(X))


def checked_table(X: Any) -> Any:
    """Return ``X``: a frame as it is, a sparse table as CSR or CSC (:func:`~dtrees.ensemble.input.tables.sparse_table`), else an array.

    A pandas frame whose columns are all sparse, of numbers, with 0 where nothing is stored, is a sparse table.
    """
    if not is_frame(X):
        return sparse_table(X) if is_sparse(X) else numeric_array(X)
    return sparse_table(X.sparse.to_coo()) if _has_sparse_columns(X) else X


def _has_sparse_columns(frame: Any) -> bool:
    dtypes = set(frame.dtypes) if hasattr(frame, "iloc") else ()
    return bool(dtypes) and all(hasattr(dtype, "fill_value") and dtype.fill_value == 0 and dtype.kind in "biuf" for dtype in dtypes)


def numbers_of_frame(frame: Any) -> Any:
    """Return a pandas frame whose columns are all NumPy arrays of numbers as one array, any other frame as it is.

    To take the columns one by one takes 0.3 ms for each, which is what counts where there are few rows.
    """
    dtypes = set(frame.dtypes) if hasattr(frame, "iloc") else ()
    if not dtypes or not all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes):
        return frame
    integers = [dtype for dtype in dtypes if dtype.kind in "iu" and dtype.itemsize == 8]
    values = frame.select_dtypes(integers).to_numpy() if integers else np.zeros(1)
    if values.min(initial=0) < -MAX_INTEGER or values.max(initial=0) > MAX_INTEGER:
        return frame  # for a message that names the column
    return numeric_array(frame.to_numpy(None if len(dtypes) == 1 else float_dtype(*dtypes)))


def column_names(X: Any) -> list[Any]:
    """Return the names of a frame's columns as they are; none where ``X`` is no frame."""
    if not is_frame(X):
        return []
    return list(X.columns) if hasattr(X, "iloc") else list(nw.from_native(X, eager_only=True).columns)


def unmasked(X: Any) -> Any:
    """Return a masked array as one with NaN in the masked cells, of a dtype that holds the others exactly; anything else as it is.

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
    """Return a masked array of which no value is masked as a plain one; anything but a masked array or a matrix as it is.

    Raises
    ------
    ValueError
        If a value is masked.
    TypeError
        If it is a matrix.
    """
    refuse_matrix(values, name)
    if not isinstance(values, np.ma.MaskedArray):
        return values
    n_masked = int(np.ma.count_masked(values))
    if n_masked:
        raise ValueError(f"{name} is a masked array with {n_masked} masked value(s); drop these rows, every value must be known")
    return values.data


def refuse_matrix(values: Any, name: str) -> None:
    """Raise TypeError for what is a ``numpy.matrix``, which stays two-dimensional however it is indexed."""
    if isinstance(values, np.matrix):
        raise TypeError(f"{name} is a numpy.matrix; wants an array, numpy.asarray({name})")


def numeric_array(X: Any) -> NDArray[Any]:
    """Return ``X`` as an array of shape (n, n_columns) of float32, float64, integers or bool; n may be 0.

    Masked cells are missing values.

    Raises
    ------
    ValueError
        If X is not 2-D, or holds text, dates or complex numbers.
    TypeError
        If X is sparse, or a ``numpy.matrix``.
    """
    refuse_matrix(X, "X")
    X = unmasked(X)
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "biuf":
        if isinstance(X, list | tuple):
            X = np.asarray(X)
        if isinstance(X, np.ndarray) and X.dtype.kind in "SUTmM":
            raise ValueError(
                f"X is an array of dtype {X.dtype}; wants numbers. Convert dates to numbers; text is accepted in a frame (pandas, polars)"
            )
        if getattr(getattr(X, "dtype", None), "kind", "") == "c":  # scikit-learn's message would show the whole array
            raise ValueError(f"Complex data not supported: X is an array of dtype {X.dtype}; wants real numbers")
        X = _with_rows_and_columns(X)
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X became an array of dtype {X.dtype}; wants numbers (text is accepted in a pandas or polars frame)")
    if X.shape[1] == 0:
        raise ValueError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        X = X.astype(np.float32 if X.dtype.itemsize == 2 else np.float64)
    return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))


def _with_rows_and_columns(X: Any) -> NDArray[Any]:
    """Return what is no numeric matrix yet as one, by scikit-learn's rules; its messages would show the data, and not name the argument."""
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


def is_sparse(X: Any) -> bool:
    """Return whether ``X`` is an array or a matrix of scipy.sparse."""
    return bool(sparse.issparse(X))


def sparse_table(X: Any) -> Any:
    """Return a sparse ``X`` as CSR or CSC of shape (n, n_columns), of float32, float64, integers or bool; n may be 0.

    Raises
    ------
    ValueError
        If X is not 2-D, has no columns, or holds complex numbers.
    """
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X is sparse, of shape {X.shape}; wants shape (n, n_features).")
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X is sparse, of dtype {X.dtype}; wants real numbers")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X is sparse, of dtype {X.dtype}; wants numbers")
    if X.shape[1] == 0:
        raise ValueError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.format not in ("csr", "csc"):
        X = X.tocsr()
    if X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        X = X.astype(np.float32 if X.dtype.itemsize == 2 else np.float64)
    return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))


def by_columns(X: Any) -> Any:
    """Return what :func:`sparse_table` returned as CSC: rows ascending within a column, each once, and no stored zero."""
    X = _canonical(X, "csc")
    if np.count_nonzero(X.data) < X.data.shape[0]:
        X = X.copy()
        X.eliminate_zeros()
    return X


def by_rows(X: Any) -> Any:
    """Return what :func:`sparse_table` returned as CSR: columns ascending within a row, each once."""
    return _canonical(X, "csr")


def _canonical(X: Any, form: str) -> Any:
    """Return a table in a format, with cells in order, each once; the user's stays as it is.

    A conversion sorts cells, and those of the same place stay in their order: they are added up in the order in which ``toarray`` does.
    """
    if X.format == form and not X.has_canonical_format:
        X = X.tocsc() if form == "csr" else X.tocsr()
    converted = X.asformat(form)
    if not converted.has_canonical_format:
        converted = converted.copy() if converted is X else converted
        converted.sum_duplicates()
    return converted
