"""How good the predictions are, beside a trivial baseline.

The baseline predicts the same for every row, from the training target alone: its mean, or its classes' frequencies. A model that is
not clearly better has learned nothing.

Sums of each partition come to the client, never rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtrees.ensemble.prediction import by_target
from dtrees.ensemble.scores import Score

#: Probabilities are kept this far from 0 in the log loss, as in scikit-learn.
_SMALLEST = float(np.finfo(np.float64).eps)


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

    if classes is None:
        return Baseline(mean=float(target.mean().compute()))
    counts = np.sum(dask.compute(*[dask.delayed(_class_counts)(part, tuple(classes)) for part in target.to_delayed()]), axis=0)
    if not counts.any():
        found = target.head(1, npartitions=-1).tolist()[0]
        raise ValueError(f"The target {target.name!r} has none of the model's classes, such as {classes[0]!r}, but {found!r}.")
    return Baseline(classes=tuple(classes), frequencies=tuple((counts / counts.sum()).tolist()))


def regression_sums(target: Any, predicted: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Return sums over the rows of one partition that add up over partitions: a row for the model, and one for the baseline's ``mean``."""
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
    """Return sums over the rows of one partition that add up over partitions: a row for the model, and one for the baseline.

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
    """Return a score from the model's figure and the baseline's."""
    model, trivial = figures.tolist()
    return Score(name, model, trivial, greater_is_better)


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
    """Return the sums of each target over the rows of a partition, shape (n_targets, 2, n_sums)."""
    if not len(part):
        return 0.0
    if any(one.classes for one in trivial.values()):
        shares = by_target(model.predict_proba(part[columns]))
        return [classification_sums(part[name], mine, one) for (name, one), mine in zip(trivial.items(), shares, strict=True)]
    predicted = model.predict(part[columns]).reshape(len(part), -1).T
    return [regression_sums(part[name], mine, one.mean) for (name, one), mine in zip(trivial.items(), predicted, strict=True)]
