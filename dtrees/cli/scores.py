"""How good the predictions are, beside a trivial baseline.

The baseline predicts the same for every row, from the training target alone: its mean, or its classes' frequencies. A model that is
not clearly better has learned nothing.

Sums of each partition come to the client, never rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtrees.ensemble.prediction import by_target

#: Probabilities are kept this far from 0 in the log loss, as in scikit-learn.
_SMALLEST = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Score:
    """One figure: what it is called, the model's and the baseline's.

    ``share`` says that it is at most 1 and the larger the better (R2, accuracy); otherwise it is an error, the smaller the better.
    """

    name: str
    model: float
    baseline: float
    share: bool


@dataclass(frozen=True)
class Baseline:
    """What is always predicted: a ``mean``, or ``frequencies`` of ``classes``."""

    mean: float = 0.0
    classes: tuple[Any, ...] = ()
    frequencies: tuple[float, ...] = ()

    def describe(self) -> str:
        """Return in words what the baseline does."""
        if self.classes:
            return f"always {str(self.classes[int(np.argmax(self.frequencies))])!r}"
        return f"always the mean, {self.mean:,.6g}"


def baseline(target: Any, classes: Sequence[Any] | None) -> Baseline:
    """Return the baseline of a training target, a Dask Series; ``classes`` are None for regression."""
    import dask

    parts = target.to_delayed()
    if classes is None:
        sums = dask.compute(*[dask.delayed(_count_and_sum)(part) for part in parts])
        return Baseline(mean=sum(total for _, total in sums) / sum(count for count, _ in sums))
    counts = np.sum(dask.compute(*[dask.delayed(_class_counts)(part, tuple(classes)) for part in parts]), axis=0)
    if not counts.any():
        found = target.head(1, npartitions=-1).tolist()[0]
        raise ValueError(f"The target {target.name!r} has none of the model's classes, such as {classes[0]!r}, but {found!r}.")
    return Baseline(classes=tuple(classes), frequencies=tuple((counts / counts.sum()).tolist()))


def regression_sums(target: Any, predicted: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Return sums over the rows of one partition that add up over partitions; ``mean`` is the baseline's."""
    y = np.asarray(target, dtype=np.float64)
    error, deviation = y - predicted, y - mean
    return np.array([len(y), error @ error, np.abs(error).sum(), deviation.sum(), deviation @ deviation, np.abs(deviation).sum()])


def regression_scores(sums: NDArray[np.float64]) -> list[Score]:
    """Return R2, root mean squared and mean absolute error from the sums of all partitions.

    >>> sums = regression_sums([1.0, 2.0, 6.0], np.array([1.0, 3.0, 5.0]), mean=3.0)
    >>> [(score.name, round(score.model, 3), round(score.baseline, 3)) for score in regression_scores(sums)]
    [('R2', 0.857, 0.0), ('RMSE', 0.816, 2.16), ('MAE', 0.667, 2.0)]
    """
    n, squared, absolute, shift, baseline_squared, baseline_absolute = sums.tolist()
    total = baseline_squared - shift * shift / n  # squares about the test rows' own mean
    return [
        Score("R2", 1 - squared / total if total > 0 else math.nan, 1 - baseline_squared / total if total > 0 else math.nan, True),
        Score("RMSE", math.sqrt(squared / n), math.sqrt(baseline_squared / n), False),
        Score("MAE", absolute / n, baseline_absolute / n, False),
    ]


def classification_sums(target: Any, probabilities: NDArray[np.float64], trivial: Baseline) -> NDArray[np.float64]:
    """Return sums over the rows of one partition that add up over partitions.

    A row whose class was not among the training rows counts as wrong, with the smallest probability.
    """
    codes = _codes(target, trivial.classes)
    known = codes >= 0
    frequencies = np.array(trivial.frequencies)

    def loss(probability: NDArray[np.float64]) -> float:
        return float(-np.log(np.clip(np.where(known, probability, 0.0), _SMALLEST, 1.0)).sum())

    return np.array(
        [
            len(codes),
            (probabilities.argmax(axis=1) == codes).sum() if len(codes) else 0,
            loss(probabilities[np.arange(len(codes)), codes]),
            (codes == int(frequencies.argmax())).sum(),
            loss(frequencies[codes]),
        ],
        dtype=np.float64,
    )


def classification_scores(sums: NDArray[np.float64]) -> list[Score]:
    """Return accuracy and log loss from the sums of all partitions.

    >>> trivial = Baseline(classes=("no", "yes"), frequencies=(0.75, 0.25))
    >>> sums = classification_sums(["no", "yes"], np.array([[0.9, 0.1], [0.4, 0.6]]), trivial)
    >>> [(score.name, round(score.model, 3), round(score.baseline, 3)) for score in classification_scores(sums)]
    [('accuracy', 1.0, 0.5), ('log loss', 0.308, 0.837)]
    """
    n, right, loss, baseline_right, baseline_loss = sums.tolist()
    return [
        Score("accuracy", right / n, baseline_right / n, True),
        Score("log loss", loss / n, baseline_loss / n, False),
    ]


def _count_and_sum(part: pd.Series) -> tuple[int, float]:
    return len(part), float(part.sum())


def _class_counts(part: pd.Series, classes: tuple[Any, ...]) -> NDArray[np.int64]:
    codes = _codes(part, classes)
    return np.bincount(codes[codes >= 0], minlength=len(classes)).astype(np.int64)


def _codes(values: Any, classes: Sequence[Any]) -> NDArray[np.int64]:
    """The position of each value among the classes, -1 where it is none of them."""
    positions = {value: position for position, value in enumerate(classes)}
    return np.array([positions.get(value, -1) for value in pd.Series(values).tolist()], dtype=np.int64)


def classes_of(estimator: Any) -> list[list[Any] | None]:
    """Return the classes of each target of a model, None for regression."""
    classes = by_target(getattr(estimator, "classes_", None))
    return [labels.tolist() for labels in classes] or [None] * estimator.n_outputs_


def evaluate(estimator: Any, rows: Any, columns: Sequence[str], trivial: Mapping[str, Baseline], client: Any) -> dict[str, list[Score]]:
    """Return the scores of each target on the rows of a Dask DataFrame.

    Parameters
    ----------
    estimator : estimator of dtrees
    rows : dask.dataframe.DataFrame
    columns : sequence of str
        Of the table that the estimator takes.
    trivial : mapping from str
        The targets, in the order of the fit, and the baseline of each.
    client : distributed.Client or None
        None computes one partition after the other, here.
    """
    import dask

    model = estimator if client is None else client.scatter(estimator, broadcast=True)
    part_sums = dask.delayed(_score_part)
    shared = dask.delayed(model, pure=False, traverse=False) if client is None else model
    tasks = [part_sums(part, shared, list(columns), dict(trivial)) for part in rows.to_delayed()]
    found = [task.compute(scheduler="threads") for task in tasks] if client is None else dask.compute(*tasks)
    scores_of = classification_scores if any(one.classes for one in trivial.values()) else regression_scores
    return dict(zip(trivial, map(scores_of, np.sum(found, axis=0)), strict=True))


def as_document(found: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Return scores as plain data."""
    return {score.name: {"model": score.model, "baseline": score.baseline} for score in found}


def _score_part(part: Any, model: Any, columns: list[str], trivial: dict[str, Baseline]) -> Any:
    """Return the sums of each target over the rows of a partition, shape (n_targets, n_sums)."""
    if not len(part):
        return 0.0
    if any(one.classes for one in trivial.values()):
        shares = model.predict_proba(part[columns])
        shares = shares if isinstance(shares, list) else [shares]
        return [classification_sums(part[name], mine, one) for (name, one), mine in zip(trivial.items(), shares, strict=True)]
    predicted = model.predict(part[columns]).reshape(len(part), -1).T
    return [regression_sums(part[name], mine, one.mean) for (name, one), mine in zip(trivial.items(), predicted, strict=True)]
