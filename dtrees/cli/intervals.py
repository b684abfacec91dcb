"""``--intervals`` of ``dtrees fit``: its parameters, the calibration rows, and the coverage of the intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

from dtrees.cli import target
from dtrees.cli.errors import CommandError

#: The nominal coverage of scored intervals, and the share of the training rows for calibrating boosting.
COVERAGE, _HELD_OUT = 0.9, 0.2
_FOREST = {"keep_targets": True, "bootstrap": True, "min_samples_leaf": 5}
#: Default parameters of models with intervals.
_PARAMETERS: dict[str, dict[str, Any]] = {
    "boosting": {"loss": "quantile", "alpha": [0.05, 0.5, 0.95]},
    "forest": _FOREST,
    "extra-trees": _FOREST,
}
#: The columns of predicted intervals.
ENDS = ["lower", "upper"]


def with_intervals(model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model with intervals."""
    if model not in _PARAMETERS:
        raise click.UsageError(f"--intervals is for --model {', '.join(_PARAMETERS)}; --model is {model}")
    given = _PARAMETERS[model] | dict(parameters)
    if model == "boosting" and given["loss"] != "quantile" and "alpha" not in parameters:
        del given["alpha"]
    for name in ("keep_targets", "bootstrap"):
        if model != "boosting" and given[name] is not True:
            raise click.UsageError(f"--intervals wants {name}=True, by which trees leave out rows whose targets are known; leave it out")
    return given


def hold_out(model: str, train: Any, seed: int) -> tuple[Any, Any]:
    """Return the rows to fit, and those for calibration, None if the model uses out-of-bag rows."""
    return target.split(train, _HELD_OUT, seed + 1) if model == "boosting" else (train, None)


def check_intervals(estimator: Any, path: str) -> None:
    """Raise unless a saved model supports intervals."""
    if not hasattr(estimator, "conformity_scores_") and not hasattr(estimator, "_leaf_targets"):
        raise CommandError(f"--coverage is for models of dtrees fit --intervals, but {path!r} is a {type(estimator).__name__} without.")


def score(estimator: Any, rows: Any, columns: Sequence[str], name: str, client: Any) -> dict[str, float]:
    """Return the share of rows that intervals with :data:`COVERAGE` cover, and their mean width."""
    n, inside, width = target.sum_over_parts(_sums, estimator, rows, client, list(columns), name)
    return {"coverage": COVERAGE, "covered": inside / n, "width": width / n}


def in_words(scores: Mapping[str, float], rows: str) -> str:
    """Return the scores in words."""
    wanted, found = (f"{100 * scores[name]:.3g} %" for name in ("coverage", "covered"))
    return f"Intervals for {wanted} cover {found} of {rows}; they are {scores['width']:.6g} wide on average"


def _sums(part: Any, model: Any, columns: list[str], name: str) -> Any:
    """Return sums over the rows of a partition: their number, the covered ones, and the widths of intervals."""
    if not len(part):
        return np.zeros(3)
    low, high = model.predict_interval(part[columns], COVERAGE).T
    y = part[name].to_numpy(dtype=np.float64)
    return np.array([len(y), np.count_nonzero((low <= y) & (y <= high)), np.sum(high - low)])
