"""How good a model is on a table, each partition scored where it lies; only sums come here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtrees.cli import scores
from dtrees.ensemble.prediction import by_target


def classes_of(estimator: Any) -> list[list[Any] | None]:
    """Return the classes of each target of a model, None for regression."""
    classes = by_target(getattr(estimator, "classes_", None))
    return [labels.tolist() for labels in classes] or [None] * estimator.n_outputs_


def evaluate(
    estimator: Any, rows: Any, columns: Sequence[str], trivial: Mapping[str, scores.Baseline], client: Any
) -> dict[str, list[scores.Score]]:
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
    scores_of = scores.classification_scores if any(one.classes for one in trivial.values()) else scores.regression_scores
    return dict(zip(trivial, map(scores_of, np.sum(found, axis=0)), strict=True))


def as_document(found: Sequence[scores.Score]) -> dict[str, dict[str, float]]:
    """Return scores as plain data."""
    return {score.name: {"model": score.model, "baseline": score.baseline} for score in found}


def _score_part(part: Any, model: Any, columns: list[str], trivial: dict[str, scores.Baseline]) -> Any:
    """Return the sums of each target over the rows of a partition, shape (n_targets, n_sums)."""
    if not len(part):
        return 0.0
    if any(one.classes for one in trivial.values()):
        shares = model.predict_proba(part[columns])
        shares = shares if isinstance(shares, list) else [shares]
        return [scores.classification_sums(part[name], mine, one) for (name, one), mine in zip(trivial.items(), shares, strict=True)]
    predicted = model.predict(part[columns]).reshape(len(part), -1).T
    return [scores.regression_sums(part[name], mine, one.mean) for (name, one), mine in zip(trivial.items(), predicted, strict=True)]
