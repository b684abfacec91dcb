"""All pairs of parameters with non-default values: each changes the fit, or a warning or error names both.

A plan, and the initial value of boosting, describe a fit completely, so no tree has to be grown: two fits with the same plan give the
same model. A parameter is ignored if a plan with both equals that with the other one alone.
"""

import itertools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor

import dtrees
from dtrees.ensemble.in_process import Backend
from tests.ensemble.samples import KINDS, SLOW_KINDS
from tests.slow import thorough_for

RANDOM = np.random.default_rng(0)
N = 60
X = pd.DataFrame(RANDOM.normal(size=(N, 5)), columns=list("abcde"))
X["level"] = np.array(list("uvwxyz"))[RANDOM.integers(0, 6, N)]
Y = np.abs(X["a"] + X["b"] * X["c"] + RANDOM.normal(size=N)) + 0.1
#: Values that are not a default of any estimator, and not implied by another value.
VALUES: dict[str, list[Any]] = {
    "aft_loss_distribution": ["logistic"],
    "aft_loss_distribution_scale": [2.0],
    "alpha": [0.7],
    "bootstrap": [True, False],
    "cat_smooth": [3.0],
    "categorical_features": [None],
    "ccp_alpha": [0.01],
    "class_weight": ["balanced", {0: 2.0, 1: 1.0}],
    "colsample_bylevel": [0.5],
    "colsample_bytree": [0.5],
    "drop_normalization": ["forest"],
    "drop_rate": [0.3],
    "init": ["zero"],
    "interaction_cst": ["pairwise"],
    "learning_rate": [0.3],
    "max_cat_threshold": [2],
    "max_depth": [3],
    "max_features": [0.7],
    "max_leaf_nodes": [5],
    "max_samples": [0.5],
    "min_child_weight": [2.0],
    "min_impurity_decrease": [0.01],
    "min_samples_category": [3],
    "min_samples_leaf": [4],
    "min_samples_split": [20],
    "min_split_gain": [0.5],
    "min_weight_fraction_leaf": [0.1],
    "monotonic_cst": [[1, 0, 0, 0, 0, 0]],
    "n_iter_no_change": [3],
    "n_parallel_trees": [2],
    "oob_score": [True],
    "reg_alpha": [0.5],
    "reg_lambda": [2.0],
    "split_shrinkage": [1.0],
    "skip_drop": [0.5],
    "splitter": ["best", "random"],
    "subsample": [0.5],
    "subsample_by": ["gradient"],
    "tol": [0.01],
    "tweedie_variance_power": [1.3],
    "validation_fraction": [0.3],
}
REGRESSION = {
    "criterion": ["poisson", "absolute_error", "quantile"],
    "loss": ["absolute_error", "quantile", "huber", "poisson", "tweedie"],
    "scoring": ["r2"],
}
CLASSIFICATION = {
    "bootstrap": [True, False, "balanced"],
    "class_weight": ["balanced", "balanced_subsample", {0: 2.0, 1: 1.0}],
    "criterion": ["entropy"],
    "loss": ["exponential"],
    "scoring": ["roc_auc"],
}
#: Parameters of how a fit is done, or how a model is inspected, or for evaluation sets, which are passed to ``fit``.
OTHERS = {"importance_type", "n_jobs", "random_state", "verbose", "warm_start", "n_estimators", "eval_metric", "early_stopping_rounds"}
OTHERS |= {"keep_targets"}
#: Values that may be requested although they are always used: criteria by the order of targets use category numbers as numbers.
SAYS_WHAT_IS_SO = {("categorical_features", "absolute_error"), ("categorical_features", "quantile")}


class _PlanError(Exception):
    """Ends a fit when its plan is known."""


@pytest.fixture
def describe(monkeypatch):
    """Return a function that returns the plan of a fit, or why it was refused, and its warnings."""

    def grow_forest(self, table, plan, *others):
        raise _PlanError(repr(plan))

    def boost(self, table, plan, previous, initial, callback):
        raise _PlanError(f"{plan!r} {initial!r}")

    monkeypatch.setattr(Backend, "grow_forest", grow_forest)
    monkeypatch.setattr(Backend, "boost", boost)

    def fit(kind, parameters):
        y = (Y > 1).astype(int) if "Class" in kind.__name__ else Y
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                kind(random_state=0, **parameters).fit(X, y)
            except _PlanError as plan:
                return str(plan), "", " ".join(str(warning.message) for warning in warned)
            except ValueError as refusal:
                return "", str(refusal), ""
        raise AssertionError("a fit without a plan")

    return fit


def options(kind):
    """Return the values of each parameter of an estimator that are not its default."""
    more = CLASSIFICATION if "Class" in kind.__name__ else REGRESSION
    for name, default in kind().get_params().items():
        if name not in OTHERS:
            values = (VALUES | more)[name]
            if name == "criterion" and "Boosting" in kind.__name__:
                values = ["squared_error"]
            if name == "class_weight" and "Forest" not in kind.__name__ and "Trees" not in kind.__name__:
                values = VALUES[name]
            for value in values:
                if type(value) is not type(default) or value != default:
                    yield name, value


def quoted(name, value, text):
    """Return whether a message mentions a parameter."""
    return name in text or (isinstance(value, str) and repr(value) in text)


@pytest.mark.slow  # some 3,000 fits, none of which grows a tree
@pytest.mark.parametrize("kind", thorough_for(SLOW_KINDS, KINDS), ids=lambda kind: kind.__name__)
def test_no_parameter_is_ignored_beside_another(describe, kind):
    plain, refused, warned = describe(kind, {})
    assert plain
    assert not warned
    some = list(options(kind))
    alone = {(name, repr(value)): describe(kind, {name: value}) for name, value in some}
    for name, value in some:
        plan, refused, warned = alone[name, repr(value)]
        assert plan != plain or quoted(name, value, warned), f"{name}={value!r} has no effect and says nothing"
        assert plan or (name in refused and len(refused) > 60), f"{name}={value!r} is refused: {refused}"
    for (one, value), (other, second) in itertools.combinations(some, 2):
        if one == other or {(one, str(second)), (other, str(value))} & SAYS_WHAT_IS_SO:
            continue
        plan, refused, warned = describe(kind, {one: value, other: second})
        mine, theirs = alone[one, repr(value)], alone[other, repr(second)]
        what = f"{one}={value!r} beside {other}={second!r}"
        if refused:
            known = refused in (mine[1], theirs[1])
            assert known or (quoted(one, value, refused) and quoted(other, second, refused)), f"{what} is refused: {refused}"
            continue
        # A value that is refused, or warned about, alone has an effect with the other one, unless it is also refused there.
        assert plan != mine[0] or quoted(other, second, warned), f"{what}: {other} is ignored"
        assert plan != theirs[0] or quoted(one, value, warned), f"{what}: {one} is ignored"


@pytest.mark.parametrize("dummy", [DummyRegressor(), DummyClassifier()])
def test_where_an_estimator_starts_from_is_part_of_what_is_compared(describe, dummy):
    kind = dtrees.GradientBoostingClassifier if isinstance(dummy, DummyClassifier) else dtrees.GradientBoostingRegressor
    assert describe(kind, {"init": dummy})[0] not in ("", describe(kind, {})[0])
