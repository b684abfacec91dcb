"""How good a model is on a table, each partition scored where it lies; only sums come here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtrees.cli import scores


def classes_of(estimator: Any) -> list[Any] | None:
    """Return the classes of a model, None for regression."""
    classes = getattr(estimator, "classes_", None)
    return None if classes is None else list(classes.tolist())


def evaluate(estimator: Any, rows: Any, columns: Sequence[str], target: str, trivial: scores.Baseline, client: Any) -> list[scores.Score]:
    """Return the scores on the rows of a Dask DataFrame; without a client they are computed one partition after the other, here."""
    import dask

    model = estimator if client is None else client.scatter(estimator, broadcast=True)
    part_sums = dask.delayed(_score_part)
    shared = dask.delayed(model, pure=False, traverse=False) if client is None else model
    tasks = [part_sums(part, shared, list(columns), target, trivial) for part in rows.to_delayed()]
    found = [task.compute(scheduler="threads") for task in tasks] if client is None else dask.compute(*tasks)
    sums = np.sum(found, axis=0)
    return (scores.classification_scores if trivial.classes else scores.regression_scores)(sums)


def as_document(found: Sequence[scores.Score]) -> dict[str, dict[str, float]]:
    """Return scores as plain data."""
    return {score.name: {"model": score.model, "baseline": score.baseline} for score in found}


def _score_part(part: Any, model: Any, columns: list[str], target: str, trivial: scores.Baseline) -> Any:
    if not len(part):
        return 0.0
    if trivial.classes:
        return scores.classification_sums(part[target], model.predict_proba(part[columns]), trivial)
    return scores.regression_sums(part[target], model.predict(part[columns]), trivial.mean)
