"""Targets and sample weights: checks, encoding and summaries, which work alike for a whole table and for a partition.

Terms
-----
class code
    position of a label among the sorted distinct labels (``classes``).
summary
    the properties of all target values and weights that a fit needs: counts, exact sums, classes (:class:`TargetSummary`).
exact sum
    a sum of weights as a fraction, which does not depend on the partitioning of rows.

Use
---
``y = check_target(y, classify=...)``, ``weight = check_weights(weight, n_rows)``, then ``TargetSummary.of(y, weight, ...)`` per
partition, ``TargetSummary.merge`` over partitions, ``summary.check()`` once, and ``encode_classes(y, summary.classes)`` for the codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dtrees.ensemble.input.column import is_missing
from dtrees.ensemble.input.plain_data import check_labels, plain_label
from dtrees.ensemble.input.schema import frame_columns, is_frame, is_sparse, without_mask
from dtrees.ensemble.input.warning import warn
from dtrees.ensemble.objective.loss import naming_target

#: Squared differences of targets up to this size can be added up, for any possible number of rows, without overflow.
MAX_TARGET = 1e148
#: Sums of weights up to this size can be multiplied by their number, or added up again, without overflow.
MAX_WEIGHT = 1e300
#: What y is for losses of times of events, which may be known only by bounds; see :mod:`dtrees.ensemble.objective.survival`.
_TIMES_WANTED = (
    "wants an event (boolean) and a time for each row, as a structured array or a frame of two columns, or the two bounds of each time as "
    "numbers of shape (n, 2): equal where the event was observed, the upper one infinite where it was not"
)


def target_of_rows(first: int, last: int) -> NDArray[np.float64]:
    """Return pseudo-random numbers in [0, 1) for the rows ``first`` to ``last - 1`` of a table without y, which depend on row positions.

    >>> np.array_equal(target_of_rows(2, 5), target_of_rows(0, 9)[2:5]), len(set(target_of_rows(0, 1000)))
    (True, 1000)
    """
    from dtrees.split.numbers.hashing import mix_each  # imports Numba

    return np.asarray((mix_each(np.arange(first, last)) >> np.uint64(11)) * 2.0**-53)


@dataclass(frozen=True)
class ClassSummary:
    """The properties of all labels of one target that a fit needs.

    Attributes
    ----------
    labels : ndarray
        Sorted distinct labels.
    counts : ndarray of int64
        Number of rows of each class with a positive weight.
    exact_weights : tuple of Fraction
        Exact sum of the sample weights of each class; equal to the counts if there are no weights.
    """

    labels: NDArray[Any]
    counts: NDArray[np.int64]
    exact_weights: tuple[Fraction, ...]

    @classmethod
    def of(cls, y: NDArray[Any], weight: NDArray[np.float64] | None) -> ClassSummary:
        """Return the summary of labels and weights."""
        labels, codes = np.unique(y, return_inverse=True)
        counts = np.bincount(codes if weight is None else codes[weight > 0], minlength=len(labels)).astype(np.int64)
        if weight is None:
            return cls(labels, counts, tuple(map(Fraction, counts.tolist())))
        return cls(labels, counts, tuple(_exact_sum(weight[codes == code]) for code in range(len(labels))))

    @classmethod
    def merge(cls, parts: Sequence[ClassSummary]) -> ClassSummary:
        """Merge the summaries of all partitions."""
        if len({isinstance(part.labels[0], str) for part in parts}) > 1:
            raise ValueError("y holds text in some partitions and numbers in others; give it one dtype")
        labels = np.unique(np.concatenate([part.labels for part in parts]))
        counts, weights = np.zeros(len(labels), np.int64), [Fraction(0)] * len(labels)
        for part in parts:
            _check_exact(part.labels.tolist(), part.labels.astype(labels.dtype))
            for code, count, weight in zip(encode_classes(part.labels, labels), part.counts, part.exact_weights, strict=True):
                counts[code] += count
                weights[code] += weight
        return cls(labels, counts, tuple(weights))

    @property
    def weights(self) -> NDArray[np.float64]:
        """Sum of the sample weights of each class."""
        return np.array([float(weight) for weight in self.exact_weights])

    def check(self, n_rows: int) -> None:
        """Raise ValueError for labels that a model file cannot represent; warn, like scikit-learn, of very many."""
        check_labels(self.labels.tolist(), "the labels in y")
        if n_rows > 20 and 2 * len(self.labels) > n_rows:
            warn(f"y has {len(self.labels)} classes in {n_rows} rows, more than half as many; for amounts, use a regressor")


@dataclass(frozen=True)
class TargetSummary:
    """The properties of all targets and weights that a fit needs.

    Attributes
    ----------
    n_rows : int
    total_weight : Fraction
        Exact sum of the sample weights; the number of rows if there are no weights.
    n_targets : int
        Number of columns of y.
    n_weighted : int
        Number of rows with a positive weight.
    by_target : tuple of ClassSummary
        The labels of each target; empty for regression.
    """

    n_rows: int
    total_weight: Fraction
    n_targets: int = 1
    n_weighted: int = 0
    by_target: tuple[ClassSummary, ...] = ()

    @property
    def classes(self) -> Any:
        """Sorted distinct labels, for multi-output targets a list of these; None for regression."""
        labels = [target.labels for target in self.by_target]
        return labels if self.n_targets > 1 and labels else labels[0] if labels else None

    @property
    def n_classes(self) -> int:
        """Number of classes, in total for multi-output targets; 0 for regression."""
        return sum(len(target.labels) for target in self.by_target)

    @classmethod
    def of(cls, y: NDArray[Any], weight: NDArray[np.float64] | None, *, classify: bool, columns: bool | str = True) -> TargetSummary:
        """Return the summary of targets from :func:`check_target`, with ``columns`` for ``multi_output``, and :func:`check_weights`."""
        total = Fraction(len(y)) if weight is None else _exact_sum(weight)
        joint = isinstance(columns, str)
        n_targets, n_weighted = 1 if joint or y.ndim == 1 else y.shape[1], len(y) if weight is None else int(np.count_nonzero(weight))
        by_target = tuple(ClassSummary.of(labels_of(y, k), weight) for k in range(n_targets if classify else 0))
        return cls(len(y), total, n_targets, n_weighted, by_target)

    @classmethod
    def merge(cls, summaries: Iterable[TargetSummary]) -> TargetSummary:
        """Merge the summaries of all partitions; their order does not matter, and empty ones have no effect."""
        filled = [summary for summary in summaries if summary.n_rows]
        total = sum((summary.total_weight for summary in filled), Fraction(0))
        widths = sorted({summary.n_targets for summary in filled}) or [1]
        if len(widths) > 1:
            raise ValueError(f"y has {widths[0]} column(s) in some partitions and {widths[-1]} in others; wants as many in all of them")
        by_target = []
        for k, parts in enumerate(zip(*(summary.by_target for summary in filled), strict=True)):
            with naming_target(k, widths[0]):
                by_target.append(ClassSummary.merge(parts))
        n_rows, n_weighted = (sum(getattr(summary, name) for summary in filled) for name in ("n_rows", "n_weighted"))
        return cls(n_rows, total, widths[0], n_weighted, tuple(by_target))

    def check(self) -> None:
        """Raise if these rows do not suffice for a fit.

        Raises
        ------
        ValueError
            If there are no rows, or all weights are zero.
        """
        if self.n_rows == 0:
            raise ValueError("X and y have no rows; at least one is needed to fit")
        if self.total_weight == 0:
            raise ValueError("sample_weight must contain at least one non-zero number; all weights are zero")
        if self.total_weight > MAX_WEIGHT:
            raise ValueError(f"sample_weight adds up to more than {MAX_WEIGHT:g}; wants smaller numbers, only their ratios matter much")
        for k, target in enumerate(self.by_target):
            with naming_target(k, self.n_targets):
                target.check(self.n_rows)


#: What y is of a model: values or classes; relevances and queries; bounds of times; labels of outliers.
VALUES, QUERIES, BOUNDS, OUTLIERS = "values", "queries", "bounds", "outliers"


def kind_of(model: Any) -> str:
    """Return what y is of a model, by its parameters."""
    columns = model._columns_of_y
    return OUTLIERS if hasattr(model, "score_samples") else columns if isinstance(columns, str) else VALUES


def check_target(y: Any, *, classify: bool, name: str, multi_output: bool | str = False) -> NDArray[Any]:
    """Return the target as an array of shape (n,): float64 for regression, unchanged labels for classification.

    Multi-output targets have the shape (n, k), in column-major order; with labels of different kinds, the dtype is object
    (:func:`labels_of`).

    Parameters
    ----------
    y : array-like of shape (n,), or (n, k) if ``multi_output``
    classify : bool
    name : str
        The estimator's name, for messages.
    multi_output : bool, "bounds" or "queries"
        Whether there may be several targets, or the meaning of two columns that form one target: bounds (:func:`check_bounds`),
        or relevances and queries, as numbers.

    Raises
    ------
    ValueError
        If y is None, not one-dimensional (or two-dimensional, if allowed), has missing, masked or infinite values, or has a type that the
        estimator does not support.
    TypeError
        If y is a ``numpy.matrix``.
    """
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    if multi_output == "bounds":
        return check_bounds(y)
    y = without_mask(y, "y")
    shape = getattr(y, "shape", None)
    if getattr(getattr(y, "dtype", None), "kind", "") == "c":  # scikit-learn's message would show the whole array
        raise ValueError(f"Complex data not supported: y is an array of dtype {y.dtype}; wants real numbers or labels")
    if multi_output and _is_wide(y):
        return _side_by_side(y, classify, name)
    if classify and _is_wide(y):
        raise ValueError(
            "y should be a 1d array, but has several columns; wants one target of classes, as bags of boosters do: pass one column, or fit "
            "a GradientBoostingClassifier or a forest to multi-output targets"
        )
    if shape is not None and tuple(shape[1:]) == (1,):
        warn_of_column()
    given, y = y, _of_one_kind(y)
    # For an array of the right shape, scikit-learn's check takes as long as growing a small tree.
    y = np.ascontiguousarray(y) if type(y) is np.ndarray and y.ndim == 1 else column_or_1d(y, warn=shape is None)
    if y.dtype.kind in "mM":
        raise ValueError(f"y is of dtype {y.dtype}; wants numbers or labels (turn dates into numbers, such as days since a fixed date)")
    if not classify:
        return _real_target(y)
    if y.dtype.kind == "f":
        _check_finite(y)
        if y.dtype.itemsize > 8:  # model files cannot represent longer numbers
            given, y = y, y.astype(np.float64)
        if given is not y and isinstance(given, list | tuple | np.ndarray):
            _check_exact(np.asarray(given, object).ravel().tolist(), y)
    elif y.dtype.kind in "OT":
        y = _labels(y.astype(object))
    elif y.dtype.kind == "U" and isinstance(given, list | tuple):  # other labels may have been converted to text
        y = _labels(np.array(given, object).ravel()).astype(str)
    _check_discrete(y)
    return y


def _of_one_kind(y: Any) -> Any:
    """Convert a frame's column of booleans, integers or categories to an array of the same kind; return others unchanged.

    scikit-learn and NumPy would convert some of these to floats.
    """
    if isinstance(y, np.ndarray | list | tuple):
        return y
    if is_frame(y):
        columns = frame_columns(y)
        if len(columns) > 1:
            return y
        series = columns[0][1]
    else:
        pandas = nw.dependencies.get_pandas()
        if pandas is not None and isinstance(y, pandas.Index | pandas.api.extensions.ExtensionArray):
            y = pandas.Series(y)
        if not nw.dependencies.is_into_series(y):
            return y
        series = nw.from_native(y, series_only=True)
    is_plain = series.dtype.is_integer() or series.dtype == nw.Boolean
    if not is_plain and series.dtype not in (nw.Categorical, nw.Enum):
        return y
    if is_plain and series.dtype not in (nw.Int128, nw.UInt128) and not series.null_count():
        values = series.to_numpy()
        return values.astype(bool) if series.dtype == nw.Boolean else values
    values = np.empty(len(series), object)
    values[:] = series.to_list()
    return values


def _check_exact(labels: list[Any], array: NDArray[Any]) -> None:
    """Raise if labels differ from those of the array made from them, in which different labels may be equal."""
    if array.dtype.kind != "f":
        return
    for label, became in zip(labels, array.tolist(), strict=True):
        if label != became:
            raise ValueError(f"y holds the label {label!r} beside floats, as one of which it is {became!r}; give y one dtype")


def _is_wide(y: Any) -> bool:
    """Return whether y has rows of two or more columns; for a list, by its first row."""
    shape = getattr(y, "shape", None)
    if shape is None:
        first = y[0] if isinstance(y, list | tuple) and len(y) else None
        return isinstance(first, list | tuple | np.ndarray) and np.size(first) > 1
    return len(shape) == 2 and bool(shape[1] >= 2)


def _cells(y: Any) -> NDArray[Any]:
    """Return multi-output targets as an array of shape (n, k)."""
    if is_sparse(y):
        raise TypeError(f"y is a sparse table of shape {y.shape}; wants a dense array: y.toarray()")
    try:
        cells = np.asarray(y)
    except ValueError as error:
        raise ValueError(f"y is a list whose rows are not of one length ({error}); wants as many targets in each row") from error
    if cells.ndim != 2:
        raise ValueError(f"y should be a 1d array, or of shape (n, k) for k targets, got an array of shape {cells.shape} instead.")
    return cells


def _side_by_side(y: Any, classify: bool, name: str) -> NDArray[Any]:
    """Return numbers or labels of shape (n, k), in column-major order; of one dtype if all are of one kind, otherwise as objects."""
    cells = _cells(y)
    columns = [series.to_native() for _, series in frame_columns(y)] if classify and is_frame(y) else list(cells.T)
    checked = []
    for k, column in enumerate(columns):
        with naming_target(k):
            checked.append(check_target(column, classify=classify, name=name))
    targets = np.empty(cells.shape, common_dtype(checked), order="F")
    for k, column in enumerate(checked):
        targets[:, k] = column
    return targets


def common_dtype(arrays: Iterable[NDArray[Any]]) -> np.dtype[Any]:
    """Return the common dtype of arrays: theirs if all are of one kind, otherwise object."""
    dtypes = [array.dtype for array in arrays]
    return np.result_type(*dtypes) if len({dtype.kind for dtype in dtypes}) == 1 else np.dtype(object)


def labels_of(y: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the labels of one target from the result of :func:`check_target`, in their own dtype."""
    if y.ndim == 1:
        return y
    column: NDArray[Any] = y[:, k]
    return _labels(column) if column.dtype.kind == "O" else column


def _labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels of dtype object as the array that they form, except for text."""
    if any(map(is_missing, y)):
        raise ValueError("y contains missing values (None or NaN); drop those rows, every label must be known")
    kinds = {type(label) for label in y}
    if all(issubclass(kind, str) for kind in kinds):
        return y if kinds == {str} else np.array([plain_label(label) for label in y], object)
    if all(issubclass(kind, bool | int | float | np.number | np.bool_) for kind in kinds):
        plain = np.array(y.tolist())
        if plain.dtype.kind in "biuf":  # integers may be too long
            _check_exact(y.tolist(), plain)
            return plain
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"Unknown label type: y holds labels of type {names}; wants numbers of up to 64 bits, or text alone (astype(str))")


def check_bounds(y: Any) -> NDArray[np.float64]:
    """Return the bounds of times, shape (n, 2), in column-major order; warn of events that look like bounds.

    Parameters
    ----------
    y : array-like
        A structured array, or a frame, with a boolean column (whether the event was observed) and one of times, in any order, or bounds as
        numbers of shape (n, 2).

    Raises
    ------
    ValueError
        If it has another form, or has NaN, negative times, infinite lower bounds, or upper bounds below lower ones.
    """
    y = without_mask(y, "y")
    names = getattr(getattr(y, "dtype", None), "names", None)
    if names is not None:
        columns = [y[name] for name in names]
    elif is_frame(y):
        columns = [_numbers_or_bools(series.to_numpy()) for _, series in frame_columns(y)]
    else:
        columns = list(np.asarray(y).T) if np.ndim(y) == 2 else []
    if len(columns) != 2:
        shape = f"{len(names)} fields" if names is not None else f"the shape {np.shape(y)}"
        raise ValueError(f"y has {shape}, but loss is for times that may be censored: it {_TIMES_WANTED}")
    kinds = [np.asarray(column).dtype.kind for column in columns]
    bounds = np.empty((len(columns[0]), 2), order="F")
    try:
        if "b" in kinds and kinds != ["b", "b"]:
            event, time = columns if kinds[0] == "b" else columns[::-1]
            columns = [time, np.where(event, time, np.inf)]
        bounds[:, 0], bounds[:, 1] = columns
    except (TypeError, ValueError) as error:
        raise ValueError(f"y cannot be turned into times ({error}); it {_TIMES_WANTED}") from error
    wrong = ~((bounds[:, 0] >= 0.0) & np.isfinite(bounds[:, 0]) & (bounds[:, 1] >= bounds[:, 0]))
    if wrong.any():
        raise ValueError(
            f"y has the bounds {bounds[int(np.argmax(wrong))].tolist()}; wants times of at least 0, no NaN, a finite lower bound and an "
            "upper one that is no smaller, or events as booleans"
        )
    lower, upper = bounds.T
    if 0 < lower.sum() < len(lower) and np.isin(lower, (0.0, 1.0)).all() and np.isfinite(upper).all():
        warn("all lower bounds in y are 0 or 1 and all upper ones finite, as if they were events and times; pass events as booleans")
    return bounds


def _numbers_or_bools(values: NDArray[Any]) -> NDArray[Any]:
    """Convert a column of objects, for example from a nullable dtype, to booleans or numbers if possible."""
    return np.array([np.nan if is_missing(value) else value for value in values]) if values.dtype.kind == "O" else values


def warn_of_column() -> None:
    """Warn, like scikit-learn, that y has the shape (n, 1)."""
    warn(
        "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples, ), for example using "
        "y[:, 0] or y.iloc[:, 0].",
        DataConversionWarning,
    )


def _real_target(y: NDArray[Any]) -> NDArray[np.float64]:
    if y.dtype.kind not in "biuf":
        try:
            y = np.array([np.nan if is_missing(value) else value for value in y] if y.dtype.kind == "O" else y, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y cannot be turned into numbers ({error}); a regressor wants numbers, not labels") from error
    _check_finite(y)
    extreme = max(float(y.max()), float(y.min()), key=abs) if y.size else 0.0
    if abs(extreme) > MAX_TARGET:
        raise ValueError(
            f"y contains {extreme}; wants numbers within +-{MAX_TARGET:g}, whose squares have a sum. Scale it, or drop outliers"
        )
    return _owned(y)


def _owned(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return contiguous, aligned, writeable float64: kernels would be compiled again for other arrays, such as those of pandas."""
    return np.require(values, np.float64, ["C", "A", "W"])


def _check_finite(y: NDArray[Any]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        total = y.sum()
    if not np.isfinite(total):
        if np.isnan(y).any():
            raise ValueError("y contains NaN; drop the rows without a target")
        if np.isinf(y).any():
            raise ValueError("y contains infinity; wants finite numbers")


def _check_discrete(y: NDArray[Any]) -> None:
    """Raise scikit-learn's error for labels that look like a regression target.

    Only 20 labels are passed to scikit-learn, fractions first: for more, it warns of many classes, also in a partition or an evaluation
    set.
    """
    fractions = y[y != np.trunc(y)] if y.dtype.kind == "f" else y[:0]
    check_classification_targets((fractions if len(fractions) else y)[:20])


def check_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float64] | None:
    """Return the weights as float64 of shape (n,), or None if every row has weight 1.

    Parameters
    ----------
    sample_weight : array-like of shape (n,), number or None
    n_rows : int

    Raises
    ------
    ValueError
        If a weight is negative, NaN, infinite or masked, or the length is not the number of rows.
    TypeError
        If it is a ``numpy.matrix``.
    """
    if sample_weight is None:
        return None
    weight = as_floats(sample_weight, "sample_weight", "one non-negative number per row")
    if weight.ndim == 0:
        weight = np.full(n_rows, float(weight))
    if weight.ndim != 1:
        raise ValueError(f"Sample weights must be 1D array or scalar; sample_weight has shape {weight.shape}")
    if len(weight) != n_rows:
        raise ValueError(f"sample_weight has {len(weight)} values but X has {n_rows} rows; wants one weight per row")
    if not np.isfinite(weight).all():
        raise ValueError("sample_weight contains NaN or infinity; wants finite numbers of at least 0")
    if n_rows and weight.min() < 0:
        raise ValueError(f"sample_weight contains the negative value {weight.min()}; wants numbers of at least 0")
    return _owned(weight)


def as_floats(values: Any, name: str, wanted: str) -> NDArray[np.float64]:
    """Return numbers of rows as float64; raise ValueError if they are not numbers, or masked."""
    values = without_mask(values, name)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be turned into numbers ({error}); wants {wanted}") from error


def check_lengths(n_rows: int, y: NDArray[Any]) -> None:
    """Raise if X and y have different numbers of rows."""
    if n_rows != len(y):
        raise ValueError(f"X has {n_rows} rows but y has {len(y)}; both must describe the same rows")


def encode_classes(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int32]:
    """Return the codes of labels, shape (n,); every label must be in the sorted ``classes``."""
    return np.searchsorted(classes, y).astype(np.int32)


def encode_target(y: NDArray[Any], classes: NDArray[Any] | list[NDArray[Any]] | None) -> NDArray[Any]:
    """Encode a checked target for trees: numbers, or class codes, side by side for multi-output targets."""
    if classes is None:
        return y
    if not isinstance(classes, list):
        return encode_classes(y, classes)
    codes = np.empty(y.shape, np.int32, order="F")
    for k, labels in enumerate(classes):
        codes[:, k] = encode_classes(labels_of(y, k), labels)
    return codes


def decode_target(target: NDArray[Any], classes: NDArray[Any] | list[NDArray[Any]] | None) -> NDArray[Any]:
    """Return the numbers or labels of a target encoded by :func:`encode_target`."""
    if classes is None:
        return target
    if not isinstance(classes, list):
        return np.asarray(classes[target])
    labels = np.empty(target.shape, common_dtype(classes))
    for k, mine in enumerate(classes):
        labels[:, k] = mine[target[:, k]]
    return labels


def _exact_sum(weight: NDArray[np.float64]) -> Fraction:
    """Return the exact sum of finite weights."""
    from dtrees.ensemble.objective.kernels import exact_sum  # imports Numba

    return Fraction(exact_sum(weight))
