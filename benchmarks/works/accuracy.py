"""Accuracy with default parameters, of dtrees and other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sklearn.datasets
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, cross_val_score

from benchmarks.data import adult, california
from benchmarks.libraries import boosting_by_default as boosting
from benchmarks.libraries import forest_by_default as forest
from benchmarks.results import Measure, Row
from benchmarks.run import Run, benchmark

_N_FOLDS = 5
#: Number of repetitions of cross-validation: one division into folds says little.
_N_REPEATS = 3


@benchmark("accuracy")
def accuracy(run: Run) -> Iterator[Row]:
    """Accuracy or R2 with defaults in 5 folds, boosting and forests."""
    for name, (X, y, classify) in _tables(run).items():
        n_repeats = run.size(tiny=1, small=1, full=_N_REPEATS)
        folds = (RepeatedStratifiedKFold if classify else RepeatedKFold)(n_splits=_N_FOLDS, n_repeats=n_repeats, random_state=0)
        for what, makers in (("boosting", boosting(run.threads, classify)), ("forest", forest(run.threads, classify))):
            scores = {peer: cross_val_score(make(), X, y, cv=folds).mean() for peer, make in run.installed(makers).items()}
            work = f"{what}, {name}" if classify else f"{what}, {name} (R2)"
            yield from run.rows(work, {peer: Measure(float(score), unit="") for peer, score in scores.items()})


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
