"""What is learnt with default parameters, beside other libraries with theirs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sklearn.datasets
import sklearn.ensemble
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, cross_val_score

import dtrees
from benchmarks.data import adult, california
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run

#: Tables of fewer rows are divided into folds three times: one division says little.
_FEW_ROWS = 5_000
N_FOLDS = 5


@benchmark("accuracy")
def accuracy(run: Run) -> Iterator[Yielded]:
    """Accuracy or R2 with defaults in 5 folds, boosting and forests: the best one of scikit-learn, XGBoost and LightGBM."""
    for name, (X, y, classify) in _tables(run).items():
        n_repeats = run.size(tiny=1, small=1, full=3 if X.shape[0] < _FEW_ROWS else 1)
        folds = (RepeatedStratifiedKFold if classify else RepeatedKFold)(n_splits=N_FOLDS, n_repeats=n_repeats, random_state=0)
        for what, makers in (("boosting", _boosting(run, classify)), ("forest", _forests(run, classify))):
            scores = {peer: cross_val_score(make(), X, y, cv=folds) for peer, make in run.installed(makers).items()}
            yield _row(f"{what}, {name}", scores, "accuracy" if classify else "R2")


def _row(work: str, scores: dict[str, Any], unit: str) -> Row:
    """Compare with the best peer, fold by fold: dtrees should not be behind by more than the standard error of the difference."""
    ours = scores.pop("dtrees")
    peer = max(scores, key=lambda name: float(np.mean(scores[name])))
    behind = scores[peer] - ours
    # Of the folds of one division: those of several are not independent.
    error = statistics.stdev(behind.tolist()) / N_FOLDS**0.5
    theirs, mine = (Measure(float(np.mean(some)), unit=unit) for some in (scores[peer], ours))
    target = f"behind by {behind.mean():.4f}, standard error {error:.4f}"
    return Row(work, peer, theirs, mine, mine.median / theirs.median, target, bool(behind.mean() <= error + 1e-12))


def _tables(run: Run) -> dict[str, tuple[Any, Any, bool]]:
    tables: dict[str, tuple[Any, Any, bool]] = {}
    for name, load, classify in (
        ("Iris", sklearn.datasets.load_iris, True),
        ("Wine", sklearn.datasets.load_wine, True),
        ("Breast cancer", sklearn.datasets.load_breast_cancer, True),
        ("Digits", sklearn.datasets.load_digits, True),
        ("Diabetes", sklearn.datasets.load_diabetes, False),
    ):
        tables[name] = (*load(return_X_y=True), classify)
    housing, incomes = california(run.data), adult(run.data)
    if housing is not None:
        tables["California"] = (*housing, False)
    if incomes is not None:
        tables["Adult"] = (incomes.X, incomes.y, True)
    return dict(list(tables.items())[:1]) if run.scale == "tiny" else tables


def _boosting(run: Run, classify: bool) -> dict[str, Callable[[], Any]]:
    kind = "Classifier" if classify else "Regressor"

    def xgboost() -> Any:
        import xgboost

        return getattr(xgboost, f"XGB{kind}")(n_jobs=run.threads)

    def lightgbm() -> Any:
        import lightgbm

        return getattr(lightgbm, f"LGBM{kind}")(n_jobs=run.threads, verbose=-1)

    return {
        "dtrees": lambda: getattr(dtrees, f"GradientBoosting{kind}")(n_jobs=run.threads),
        "scikit-learn HistGradientBoosting": lambda: getattr(sklearn.ensemble, f"HistGradientBoosting{kind}")(random_state=0),
        "scikit-learn GradientBoosting": lambda: getattr(sklearn.ensemble, f"GradientBoosting{kind}")(random_state=0),
        "XGBoost": xgboost,
        "LightGBM": lightgbm,
    }


def _forests(run: Run, classify: bool) -> dict[str, Callable[[], Any]]:
    kind = f"RandomForest{'Classifier' if classify else 'Regressor'}"
    return {
        "dtrees": lambda: getattr(dtrees, kind)(random_state=0, n_jobs=run.threads),
        "scikit-learn RandomForest": lambda: getattr(sklearn.ensemble, kind)(random_state=0, n_jobs=run.threads),
    }
