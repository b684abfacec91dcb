"""The ten estimators and a table to fit them on."""

import numpy as np
import pytest
import sklearn.ensemble
import sklearn.metrics
import sklearn.tree

import dtrees
from tests.plain import PLAIN
from tests.slow import slow_for

KINDS = [
    dtrees.DecisionTreeRegressor,
    dtrees.DecisionTreeClassifier,
    dtrees.ExtraTreeRegressor,
    dtrees.ExtraTreeClassifier,
    dtrees.RandomForestRegressor,
    dtrees.RandomForestClassifier,
    dtrees.ExtraTreesRegressor,
    dtrees.ExtraTreesClassifier,
    dtrees.GradientBoostingRegressor,
    dtrees.GradientBoostingClassifier,
]
FORESTS, BOOSTING = KINDS[4:8], KINDS[8:]
#: Of the four with random thresholds, which otherwise work like those of their kind without, one is tried in every run.
SLOW_KINDS = {dtrees.ExtraTreeRegressor, dtrees.ExtraTreeClassifier, dtrees.ExtraTreesClassifier}
every_kind = pytest.mark.parametrize("kind", slow_for(SLOW_KINDS, KINDS), ids=lambda kind: kind.__name__)
every_forest = pytest.mark.parametrize("kind", slow_for(SLOW_KINDS, FORESTS), ids=lambda kind: kind.__name__)
every_ensemble = pytest.mark.parametrize("kind", slow_for(SLOW_KINDS, FORESTS + BOOSTING), ids=lambda kind: kind.__name__)

N = 300
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 5))
X[RNG.random(size=X.shape) < 0.05] = np.nan
SIGNAL = np.nan_to_num(2 * X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + RNG.normal(scale=0.3, size=N)
LABELS = np.array(["low", "mid", "high"])[np.digitize(SIGNAL, [0, 2])]
WEIGHT = RNG.integers(0, 4, N).astype(float)


def is_classifier(kind):
    return kind.__name__.endswith("Classifier")


def target(kind):
    return LABELS if is_classifier(kind) else SIGNAL


def make(kind, **parameters):
    """Return an estimator; ensembles are small, and their trees depend on random draws; boosting is plain."""
    if kind in BOOSTING:
        parameters = {**PLAIN, "max_features": 3, **parameters}
    if kind in FORESTS + BOOSTING:
        parameters = {"n_estimators": 8, **parameters}
    return kind(**{"random_state": 0, "max_features": 3, **parameters})


def sklearns(kind):
    return getattr(sklearn.ensemble, kind.__name__, None) or getattr(sklearn.tree, kind.__name__)


def trees(model):
    return [tree for group in model._trees.groups for tree in group]


def assert_same_trees(one, other):
    assert len(trees(one)) == len(trees(other))
    assert all(tree.equals(twin) for tree, twin in zip(trees(one), trees(other), strict=True))


def by_sklearn(name, y, predicted, weight):
    """Return a metric of values or of probabilities, computed by scikit-learn."""
    metrics = sklearn.metrics
    if predicted.ndim == 1:
        others = {"rmse": metrics.root_mean_squared_error, "mae": metrics.mean_absolute_error, "r2": metrics.r2_score}
        return others.get(name, metrics.mean_squared_error)(y, predicted, sample_weight=weight)
    labels = np.unique(y)
    if name in ("logloss", "loss"):
        return metrics.log_loss(y, predicted, sample_weight=weight, labels=labels)
    if name == "auc":
        scores = predicted[:, 1] if predicted.shape[1] == 2 else predicted
        return metrics.roc_auc_score(y, scores, sample_weight=weight, multi_class="ovr", average="weighted")
    accuracy = metrics.accuracy_score(y, labels[predicted.argmax(axis=1)], sample_weight=weight)
    return accuracy if name == "accuracy" else 1 - accuracy
