"""The target column, and the task that it implies; the test rows, and scores of their predictions.

Each partition is summarized on its worker; only the summaries come to the client, never rows. Only a row's number (its position among
all rows, from 0) and the seed decide whether it is held out, so the same rows are held out for any partitioning, and no worker needs
data of another's rows. The share of held-out rows is met on average, not exactly.

Scores are compared with those of a trivial baseline, which predicts the same for every row, from the training target alone: its mean, or
its class frequencies. A model that is not clearly better has learned nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtrees.cli.errors import CommandError
from dtrees.ensemble.input.column import looks_like_number
from dtrees.ensemble.metrics import Score
from dtrees.ensemble.prediction import by_target

#: Up to this many distinct integers are interpreted as classes.
MAX_NUMBERED_CLASSES = 10

#: Most distinct values stored of a partition; enough to distinguish a class label from an identifier.
_MAX_DISTINCT = 1000

#: Advice for a target that looks like numbers to a reader.
AS_NUMBERS = "To read it as numbers: --decimal CHAR and --thousands CHAR; take currencies and percent signs away first."

#: Lower limit of probabilities in the log loss, as in scikit-learn.
_SMALLEST = float(np.finfo(np.float64).eps)

TEXT, BOOL, WHOLE, FRACTION, OTHER = "text", "bool", "whole", "fraction", "other"


@dataclass(frozen=True)
class TargetSummary:
    """A summary of a target column.

    Attributes
    ----------
    n_rows, n_missing, n_infinite : int
    kinds : frozenset of str
        Subset of ``"text"``, ``"bool"``, ``"whole"`` (integers), ``"fraction"`` and ``"other"``.
    distinct : frozenset
        The distinct values, or the first ones found if there are more than 1000.
    """

    n_rows: int
    n_missing: int
    n_infinite: int
    kinds: frozenset[str]
    distinct: frozenset[Any]

    @property
    def many(self) -> bool:
        """Whether there are more distinct values than were stored."""
        return len(self.distinct) > _MAX_DISTINCT

    @property
    def count(self) -> str:
        """The number of distinct values, in words."""
        return f"more than {_MAX_DISTINCT}" if self.many else str(len(self.distinct))

    @property
    def example(self) -> Any:
        """One of the values, always the same."""
        return min(self.distinct, key=str)


def summarize(column: Any) -> TargetSummary:
    """Return the summary of a Dask Series."""
    return merge(by_part(summarize_part, column))


def by_part(function: Callable[..., Any], collection: Any, *arguments: Any) -> Sequence[Any]:
    """Return what ``function(part, *arguments)`` returns for each partition of a Dask DataFrame or Series."""
    return dask.compute(*[dask.delayed(function)(part, *arguments) for part in collection.to_delayed()])


def summarize_part(column: pd.Series) -> TargetSummary:
    """Return the summary of one partition.

    >>> summary = summarize_part(pd.Series([1.0, None, 2.5]))
    >>> summary.n_missing, sorted(summary.kinds), sorted(summary.distinct)
    (1, ['fraction'], [1.0, 2.5])
    """
    present = column.dropna()
    if isinstance(present.dtype, pd.CategoricalDtype):
        present = present.astype(present.cat.categories.dtype)
    kind, infinite = OTHER, 0
    if pd.api.types.is_bool_dtype(present.dtype):
        kind = BOOL
    elif pd.api.types.is_numeric_dtype(present.dtype):
        numbers = present.to_numpy()
        finite = numbers[np.isfinite(numbers)]
        infinite = len(numbers) - len(finite)
        kind = WHOLE if (finite == np.floor(finite)).all() else FRACTION
    elif all(isinstance(value, str) for value in present.unique()):
        kind = TEXT
    distinct = frozenset(present.unique()[: _MAX_DISTINCT + 1].tolist())
    return TargetSummary(len(column), len(column) - len(present), infinite, frozenset([kind] if len(present) else []), distinct)


def merge(parts: Iterable[TargetSummary]) -> TargetSummary:
    """Return the combined summary of all partitions."""
    parts = list(parts)
    distinct: set[Any] = set()
    for part in parts:
        if len(distinct) <= _MAX_DISTINCT:
            distinct |= part.distinct
    n_rows, n_missing, n_infinite = (sum(getattr(part, name) for part in parts) for name in ("n_rows", "n_missing", "n_infinite"))
    return TargetSummary(n_rows, n_missing, n_infinite, frozenset().union(*(part.kinds for part in parts)), frozenset(distinct))


def choose_task(summary: TargetSummary, target: str, task: str) -> tuple[str, str]:
    """Return the task and why.

    Parameters
    ----------
    summary : TargetSummary
    target : str
        Name of the column, for messages.
    task : {"auto", "regression", "classification"}
        The user's choice.

    Returns
    -------
    task : {"regression", "classification"}
    reason : str

    Raises
    ------
    CommandError
        If nothing can be learned from the column, or not the requested task.

    Examples
    --------
    >>> choose_task(summarize_part(pd.Series(["yes", "no", "yes"])), "paid", "auto")
    ('classification', "'paid' holds text, 2 distinct values")
    """
    kinds = summary.kinds
    if summary.n_rows == 0:
        raise CommandError("The data has no rows.")
    check_column(summary, target, numbers=False)
    if kinds - {TEXT, BOOL, WHOLE, FRACTION} or (TEXT in kinds and len(kinds) > 1):
        raise CommandError(f"The target {target!r} holds neither numbers nor text only ({summary.example!r}); convert it first.")
    if summary.n_infinite:
        raise CommandError(f"The target {target!r} is infinite in {summary.n_infinite:,} rows; remove them or make them empty.")
    if len(summary.distinct) == 1:
        raise CommandError(f"The target {target!r} is {summary.example!r} in every row: there is nothing to learn; choose another column.")
    number = number_as_text(summary.distinct)
    if task == "regression" and TEXT in kinds:
        advice = f". {AS_NUMBERS}" if number else "; use --task classification."
        raise CommandError(f"--task regression wants numbers, but {target!r} holds text such as {number or summary.example!r}{advice}")
    if task == "classification" and FRACTION in kinds:
        raise CommandError(f"--task classification wants classes, but the target {target!r} holds fractions; use --task regression.")
    if (task == "classification" or kinds <= {TEXT, BOOL}) and summary.many:
        raise CommandError(
            f"The target {target!r} has more than {_MAX_DISTINCT:,} distinct values, such as {number or summary.example!r}, too many for "
            f"classes. {AS_NUMBERS if number else 'Is it an identifier? Choose another column with --target.'}"
        )
    if task != "auto":
        return task, "as asked for"
    held = {TEXT: "text", BOOL: "true and false", WHOLE: "whole numbers", FRACTION: "numbers with fractions"}
    kind = FRACTION if FRACTION in kinds else next(kind for kind in (TEXT, WHOLE, BOOL) if kind in kinds)
    classes = kind in (TEXT, BOOL) or (kind == WHOLE and len(summary.distinct) <= MAX_NUMBERED_CLASSES)
    return "classification" if classes else "regression", f"{target!r} holds {held[kind]}, {summary.count} distinct values"


def check_column(summary: TargetSummary, target: str, *, numbers: bool) -> None:
    """Raise a CommandError if a target has no value, or text in the place of numbers."""
    if not summary.kinds:
        raise CommandError(f"The target {target!r} is missing in every row; choose another column with --target.")
    if numbers and TEXT in summary.kinds:
        raise CommandError(f"The model predicts numbers, but the target {target!r} holds text such as {summary.example!r}.")


def number_as_text(values: Collection[Any]) -> str | None:
    """Return an example if all values are text that looks like numbers, some of which cannot be parsed; otherwise None.

    >>> number_as_text(["1,5", "12,25", "3"])
    '1,5'
    >>> number_as_text(["1,5", "a"])
    >>> number_as_text(["01", "2"])
    """
    if not all(isinstance(value, str) and looks_like_number(value) for value in values):
        return None
    return min((value for value in values if not re.fullmatch(r"[-+\d.eE]+", value)), default=None)


def convert(column: pd.Series, task: str, kinds: frozenset[str]) -> pd.Series:
    """Return a partition's target (without missing values) in the dtype for training.

    float64 for regression; for classes text, bool or int64, so that classes are ``1`` and not ``1.0`` if missing values had made the
    column float. Fractions, which a model may be scored on, are not changed.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if task == "regression" or FRACTION in kinds:
        return column.astype("float64")
    if kinds <= {TEXT}:
        return column.astype("string")
    return column.astype("bool" if kinds == {BOOL} else "int64")


def with_target(frame: Any, target: str, task: str, summary: TargetSummary) -> Any:
    """Return the rows of a Dask DataFrame that have a target, with the target in the dtype for training."""
    frame = frame.dropna(subset=[target]) if summary.n_missing else frame
    empty = convert(frame._meta[target], task, summary.kinds)
    return frame.assign(**{target: frame[target].map_partitions(convert, task, summary.kinds, meta=empty)})


def held_out(numbers: NDArray[np.int64], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which rows are test rows.

    Parameters
    ----------
    numbers : ndarray of int64 of shape (n_rows,)
        Numbers of the rows, or of their queries.
    fraction : float
        Share of test rows, in [0, 1].
    seed : int
        A different seed holds out different rows.

    Returns
    -------
    ndarray of bool, shape (n_rows,)

    Examples
    --------
    >>> whole = held_out(np.arange(1000), 0.2, seed=7)
    >>> int(whole.sum())
    172
    >>> bool((whole[600:] == held_out(np.arange(600, 1000), 0.2, seed=7)).all())
    True
    """
    from dtrees.split.numbers import hashing  # imports the compiler

    mix: Any = hashing.mix.py_func  # takes arrays, too
    chance: NDArray[np.uint64] = mix(mix(np.array([seed], np.uint64)) ^ mix(numbers.astype(np.uint64)))
    return (chance >> np.uint64(11)) * 2.0**-53 < fraction


def split(frame: Any, fraction: float, seed: int, query: str | None = None) -> tuple[Any, Any]:
    """Return the training rows and the test rows of a Dask DataFrame, both lazy and with its partitions.

    Counting the rows of the partitions is computed at once; nothing else comes to the client. With a column of numbers of queries, these
    are drawn in the place of rows.
    """
    import dask.dataframe as dd

    parts = frame.to_delayed()
    starts = np.concatenate([[0], np.cumsum(by_part(len, frame))])[: len(parts)]

    def select(test: bool) -> Any:
        chunks = [dask.delayed(_select)(part, int(start), fraction, seed, query, test) for part, start in zip(parts, starts, strict=True)]
        return dd.from_delayed(chunks, meta=frame._meta, verify_meta=False, prefix="dtrees-test-rows" if test else "dtrees-train-rows")

    return select(False), select(True)


def _select(part: Any, start: int, fraction: float, seed: int, query: str | None, test: bool) -> Any:
    numbers = np.arange(start, start + len(part)) if query is None else part[query].to_numpy()
    return part[held_out(numbers, fraction, seed) == test]


@dataclass(frozen=True)
class Baseline:
    """A constant prediction: a ``mean``, or ``frequencies`` of ``classes``."""

    mean: float = 0.0
    classes: tuple[Any, ...] = ()
    frequencies: tuple[float, ...] = ()

    def describe(self) -> str:
        """Return a description of the baseline."""
        if self.classes:
            return f"always {str(self.classes[int(np.argmax(self.frequencies))])!r}"
        return f"always the mean, {self.mean:,.6g}"


def baseline(target: Any, classes: Sequence[Any] | None) -> Baseline:
    """Return the baseline of a training target, a Dask Series; ``classes`` are None for regression."""
    if classes is None:
        return Baseline(mean=float(target.mean().compute()))
    counts = np.sum(by_part(_class_counts, target, tuple(classes)), axis=0)
    if not counts.any():
        found = target.head(1, npartitions=-1).tolist()[0]
        raise ValueError(f"The target {target.name!r} has none of the model's classes, such as {classes[0]!r}, but {found!r}.")
    return Baseline(classes=tuple(classes), frequencies=tuple((counts / counts.sum()).tolist()))


def regression_sums(target: Any, predicted: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Return sums over the rows of a partition, to be added over partitions: rows for the model and for the ``mean``."""
    y = np.asarray(target, dtype=np.float64)
    return np.array([[len(y), error @ error, np.abs(error).sum(), error.sum()] for error in (y - predicted, y - mean)])


def regression_scores(sums: NDArray[np.float64]) -> list[Score]:
    """Return R2, root mean squared and mean absolute error from the sums of all partitions.

    >>> sums = regression_sums([1.0, 2.0, 6.0], np.array([1.0, 3.0, 5.0]), mean=3.0)
    >>> [(score.name, round(score.model, 3), round(score.baseline, 3)) for score in regression_scores(sums)]
    [('R2', 0.857, 0.0), ('RMSE', 0.816, 2.16), ('MAE', 0.667, 2.0)]
    """
    n, squared, absolute, shift = sums.T
    total = squared[1] - shift[1] ** 2 / n[1]  # squares about the test rows' own mean
    explained = 1 - squared / total if total > 0 else np.full(2, np.nan)
    return [
        _score("R2", explained, greater_is_better=True),
        _score("RMSE", np.sqrt(squared / n), greater_is_better=False),
        _score("MAE", absolute / n, greater_is_better=False),
    ]


def classification_sums(target: Any, probabilities: NDArray[np.float64], trivial: Baseline) -> NDArray[np.float64]:
    """Return sums over the rows of one partition, to be added over partitions: a row for the model, and one for the baseline.

    A row whose class was not among the training rows counts as wrong, with the smallest probability.
    """
    codes = _codes(target, trivial.classes)
    frequencies = np.tile(trivial.frequencies, (len(codes), 1))
    sums = []
    for shares in (probabilities, frequencies):
        of_class = np.where(codes >= 0, shares[np.arange(len(codes)), codes], 0.0)
        sums.append([len(codes), (shares.argmax(axis=1) == codes).sum(), -np.log(np.clip(of_class, _SMALLEST, 1.0)).sum()])
    return np.array(sums, dtype=np.float64)


def classification_scores(sums: NDArray[np.float64]) -> list[Score]:
    """Return accuracy and log loss from the sums of all partitions.

    >>> trivial = Baseline(classes=("no", "yes"), frequencies=(0.75, 0.25))
    >>> sums = classification_sums(["no", "yes"], np.array([[0.9, 0.1], [0.4, 0.6]]), trivial)
    >>> [(score.name, round(score.model, 3), round(score.baseline, 3)) for score in classification_scores(sums)]
    [('accuracy', 1.0, 0.5), ('log loss', 0.308, 0.837)]
    """
    n, right, loss = sums.T
    return [_score("accuracy", right / n, greater_is_better=True), _score("log loss", loss / n, greater_is_better=False)]


def _score(name: str, figures: NDArray[np.float64], greater_is_better: bool) -> Score:
    """Return a score from the model's and the baseline's value."""
    model, trivial = figures.tolist()
    return Score(name, model, trivial, greater_is_better)


def _class_counts(part: pd.Series, classes: tuple[Any, ...]) -> NDArray[np.int64]:
    codes = _codes(part, classes)
    return np.bincount(codes[codes >= 0], minlength=len(classes)).astype(np.int64)


def _codes(values: Any, classes: Sequence[Any]) -> NDArray[np.int64]:
    """Return the position of each value among the classes, -1 if it is not one of them."""
    positions = {value: position for position, value in enumerate(classes)}
    return np.array([positions.get(value, -1) for value in pd.Series(values).tolist()], dtype=np.int64)


def classes_of(estimator: Any) -> list[list[Any] | None]:
    """Return the classes of each target of a model, None for regression."""
    classes = by_target(getattr(estimator, "classes_", None))
    return [labels.tolist() for labels in classes] or [None] * estimator.n_outputs_


def quantiles_of(estimator: Any) -> tuple[float, ...]:
    """Return the quantiles that a model predicts, if there are several: the one nearest to the median is scored."""
    return tuple(getattr(estimator, "_quantiles", ()))


def score(estimator: Any, rows: Any, columns: Sequence[str], trivial: Mapping[str, Baseline], client: Any) -> dict[str, list[Score]]:
    """Return the scores of each target on the rows of a Dask DataFrame.

    Parameters
    ----------
    estimator : estimator of dtrees
    rows : dask.dataframe.DataFrame
    columns : sequence of str
        Columns that the estimator takes.
    trivial : mapping from str
        The targets, in the order of the fit, and the baseline of each.
    client : distributed.Client or None
        None computes one partition after the other, in this process.
    """
    sums = sum_over_parts(_score_part, estimator, rows, client, list(columns), dict(trivial))
    scores_of = classification_scores if any(one.classes for one in trivial.values()) else regression_scores
    return dict(zip(trivial, map(scores_of, sums), strict=True))


def sum_over_parts(function: Callable[..., Any], estimator: Any, rows: Any, client: Any, *arguments: Any) -> Any:
    """Return the sum of what :func:`over_parts` returns."""
    return np.sum(over_parts(function, estimator, rows, client, *arguments), axis=0)


def over_parts(function: Callable[..., Any], estimator: Any, rows: Any, client: Any, *arguments: Any) -> Sequence[Any]:
    """Return what ``function(part, estimator, *arguments)`` returns for each partition of a Dask DataFrame."""
    if client is not None:
        # With a new key: the one of an earlier copy of the same model may be about to be released.
        return by_part(function, rows, client.scatter(estimator, broadcast=True, hash=False), *arguments)
    shared = dask.delayed(estimator, pure=False, traverse=False)
    return [dask.delayed(function)(part, shared, *arguments).compute(scheduler="threads") for part in rows.to_delayed()]


def _score_part(part: Any, model: Any, columns: list[str], trivial: dict[str, Baseline]) -> Any:
    """Return the sums of each target over the rows of a partition, shape (n_targets, 2, n_sums)."""
    if not len(part):
        return 0.0
    if any(one.classes for one in trivial.values()):
        shares = by_target(model.predict_proba(part[columns]))
        return [classification_sums(part[name], mine, one) for (name, one), mine in zip(trivial.items(), shares, strict=True)]
    predicted, quantiles = model.predict(part[columns]).reshape(len(part), -1).T, quantiles_of(model)
    if quantiles:
        predicted = predicted[[int(np.argmin(np.abs(np.array(quantiles) - 0.5)))]]
    return [regression_sums(part[name], mine, one.mean) for (name, one), mine in zip(trivial.items(), predicted, strict=True)]
