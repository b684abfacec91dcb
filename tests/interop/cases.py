"""Models of every estimator, criterion and loss, which tests export to other tools and compare."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dtrees
from tests.plain import PLAIN
from tests.slow import KERNELS_OF_THEIR_OWN

RNG = np.random.default_rng(0)
#: Numbers that are exact in float32, some missing.
X = RNG.normal(size=(300, 5)).astype(np.float32).astype(np.float64)
X[RNG.random(X.shape) < 0.1] = np.nan
FULL = np.nan_to_num(X)
SIGNAL = FULL[:, 0] + FULL[:, 1] ** 2 + 3 * np.isnan(X[:, 0]) + 0.1 * RNG.normal(size=300)
LABELS = np.array(["high", "low", "middle"])[np.digitize(SIGNAL, [0.0, 1.5])]
TWO = np.where(SIGNAL > 0.7, "yes", "no")
TARGETS = {"": SIGNAL, "positive": np.exp(SIGNAL / 4), "two": TWO, "three": LABELS, "several": np.column_stack([SIGNAL, FULL[:, 2] ** 2])}
#: Two targets with classes; relevances; and times of events, every third of which is known to be later.
TARGETS |= {"labels": np.column_stack([TWO, LABELS]), "relevance": np.digitize(SIGNAL, [0.0, 1.5])}
TARGETS["times"] = np.column_stack([TARGETS["positive"], np.where(np.arange(300) % 3, TARGETS["positive"], np.inf)])

#: Categories, some of them missing, and numbers.
PEOPLE = pd.DataFrame(
    {
        "job": RNG.choice([f"job {k:02}" for k in range(40)] + [None], 300),
        "age": np.where(RNG.random(300) < 0.1, np.nan, RNG.integers(20, 60, 300)),
        "town": pd.Categorical(RNG.choice(["Aachen", "Bonn", "Celle"], 300)),
    }
)
WAGE = (PEOPLE["job"].fillna("0").str[-1].isin(list("1357")) * 3.0 + PEOPLE["job"].isna() * 2 + (PEOPLE["town"] == "Bonn")).to_numpy()
WAGE = WAGE + 0.1 * RNG.normal(size=300)
#: Two targets, each with its own sets.
WAGE_AND_HOURS = np.column_stack([WAGE, PEOPLE["job"].fillna("00").str[-2:].astype(int) % 3 + (PEOPLE["town"] == "Celle")])


#: Names of the targets that are several.
SEVERAL = ("several", "labels")


class Case(NamedTuple):
    """An estimator by name and parameters, and its target."""

    name: str
    parameters: dict[str, Any]
    target: str = ""

    def fit(self, table: Any = X) -> Any:
        """Return the fitted estimator, by default fitted to numbers."""
        plain = PLAIN if self.name.startswith("GradientBoosting") else {}
        queries = {"qid": np.arange(len(table)) // 20} if self.target == "relevance" else {}
        return getattr(dtrees, self.name)(random_state=0, **{**plain, **self.parameters}).fit(table, TARGETS[self.target], **queries)

    @property
    def id(self) -> str:
        """The name of the test."""
        return "-".join([self.name, *(str(getattr(value, "loss", value)) for value in self.parameters.values()), self.target])


def _trees() -> list[Case]:
    found = []
    for kind in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees"):
        size = {} if kind.endswith("Tree") else {"n_estimators": 5}
        found += [Case(f"{kind}Regressor", {"criterion": "squared_error", **size})]
        found += [Case(f"{kind}Classifier", {"criterion": "gini", **size}, target) for target in ("two", "three")]
    # For other tools, a criterion only decides the trees, so one of each is enough.
    found += [Case("DecisionTreeRegressor", {"criterion": name}) for name in ("friedman_mse", "absolute_error", "quantile")]
    found += [Case("DecisionTreeRegressor", {"criterion": "poisson"}, "positive")]
    found += [Case("DecisionTreeClassifier", {"criterion": "entropy"}, target) for target in ("two", "three")]
    found += [Case("DecisionTreeRegressor", {"criterion": "squared_error"}, "several")]
    return [*found, Case("RandomForestRegressor", {"criterion": "squared_error", "n_estimators": 5}, "several")]


def _boosting() -> list[Case]:
    size = {"n_estimators": 5, "min_samples_leaf": 1}
    found = [Case("GradientBoostingRegressor", {"loss": name, **size}) for name in ("squared_error", "absolute_error", "huber", "quantile")]
    found += [Case("GradientBoostingRegressor", {"loss": name, **size}, "positive") for name in ("poisson", "gamma", "tweedie")]
    found += [Case("GradientBoostingClassifier", {"loss": "log_loss", **size}, target) for target in ("two", "three")]
    found += [Case("GradientBoostingClassifier", {"loss": "exponential", **size}, "two")]
    forest = {"loss": "log_loss", "n_parallel_trees": 2, "subsample": 0.7, "drop_rate": 0.5, **size}
    found += [Case("GradientBoostingClassifier", forest, "three"), Case("GradientBoostingRanker", size, "relevance")]
    found += [Case("GradientBoostingRegressor", {"loss": name, **size}, "times") for name in ("cox", "aft")]
    return [*found, Case("GradientBoostingRegressor", {"loss": "squared_error", **size}, "several")]


def _bags() -> list[Case]:
    size = {"n_estimators": 3}
    booster = dtrees.GradientBoostingRegressor(n_estimators=4, min_samples_leaf=2)
    found = [
        Case("BaggingRegressor", {"estimator": clone(booster).set_params(loss=name), **size}) for name in ("squared_error", "quantile")
    ]
    return [*found, Case("BaggingRegressor", {"estimator": booster, **size}, "several")]


def _beyond() -> list[Case]:
    size: dict[str, Any] = {"n_estimators": 4}
    quantiles: dict[str, Any] = {"loss": "quantile", "alpha": [0.1, 0.5, 0.9], "n_estimators": 5}
    found = [Case("IsolationForest", {**size, "contamination": contamination}) for contamination in ("auto", 0.1)]
    found += [Case("DecisionTreeClassifier", {}, "labels"), Case("RandomForestClassifier", size, "labels")]
    found += [Case("GradientBoostingClassifier", size, "labels"), Case("GradientBoostingRegressor", quantiles)]
    return [*found, Case("BaggingRegressor", {"estimator": dtrees.GradientBoostingRegressor(**quantiles), **size})]


def fit_sets(kind: str, task: str) -> Any:
    """Return a model of people that splits by sets of categories, with two targets if the task is ``several``."""
    targets = {"Regressor": WAGE, "Classifier": np.digitize(WAGE, [0.5, 2.0]), "several": WAGE_AND_HOURS}
    parameters = {} if kind == "DecisionTree" else {"n_estimators": 5}
    name = kind + ("Regressor" if task == "several" else task)
    model = getattr(dtrees, name)(random_state=0, min_samples_category=1, **parameters).fit(PEOPLE, targets[task])
    assert any(tree.categories.node.size for group in model._trees.groups for tree in group)
    return model


TREES, BOOSTING, BAGS = _trees(), _boosting(), _bags()
#: What only C and NumPy can hold.
BEYOND = _beyond()


def parametrized(cases: list[Case]) -> Any:
    """Return a decorator that passes each case to a test; cases whose criteria have kernels of their own are slow."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                case,
                id=case.id,
                marks=pytest.mark.slow if case.parameters.get("criterion") in KERNELS_OF_THEIR_OWN or case.target in SEVERAL else (),
            )
            for case in cases
        ],
    )


def predictions(model: Any, table: Any) -> np.ndarray:
    """Return probabilities of a classifier, target by target, scores of an isolation forest, and what a regressor predicts."""
    if hasattr(model, "score_samples"):
        return model.score_samples(table)
    found = model.predict_proba(table) if hasattr(model, "classes_") else model.predict(table)
    return np.hstack(found) if isinstance(found, list) else found
