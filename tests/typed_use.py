"""Calls of dtrees for the type checker (``mypy``), which has to know the result of ``fit`` and the parameters."""

from typing import Any, assert_type

from distributed import Future

import dtrees
import dtrees.callbacks
from dtrees.reports.report import Report
from dtrees.selection.tuning import Tuned


def check(X: Any, y: Any) -> None:
    """Check that a chain of calls keeps its types. This is never run."""
    assert_type(dtrees.GradientBoostingRegressor().fit(X, y), dtrees.GradientBoostingRegressor)
    assert_type(dtrees.RandomForestClassifier(10).fit(X, y), dtrees.RandomForestClassifier)
    assert_type(dtrees.DecisionTreeRegressor(max_depth=3).fit(X, y, y), dtrees.DecisionTreeRegressor)
    assert_type(dtrees.BaggingRegressor().fit(X, y), dtrees.BaggingRegressor)
    assert_type(dtrees.ExtraTreesRegressor().fit(X, y).score(X, y), float)
    assert_type(dtrees.export_text(dtrees.DecisionTreeRegressor()), str)
    dtrees.GradientBoostingRegressor(n_estimator=3)  # type: ignore[call-arg]
    dtrees.GradientBoostingRegressor(n_estimators="many")  # type: ignore[arg-type]
    dtrees.RandomForestClassifier().fit(X)  # type: ignore[call-arg]
    dtrees.RandomForrest  # type: ignore[attr-defined]  # noqa: B018
    dtrees.callbacks.Checkpoint  # type: ignore[attr-defined]  # noqa: B018
    assert_type(dtrees.callbacks.Progress(1, 2, 0.5).train_score, float | None)
    assert_type(dtrees.submit(dtrees.ExtraTreesRegressor(), X, y), Future)
    assert_type(dtrees.cross_validate(dtrees.RandomForestClassifier(), X, y).best_n_estimators, int)
    assert_type(dtrees.tune(dtrees.ExtraTreesRegressor(), X, y, n_trials=3), Tuned)
    assert_type(dtrees.report(dtrees.ExtraTreesRegressor(), X, y), Report)
