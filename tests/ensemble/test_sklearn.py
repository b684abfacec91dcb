"""scikit-learn's own checks, the tools around estimators, and its private parts."""

import ast
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

import dtrees
from dtrees.ensemble.compat import sklearn_metric
from tests.ensemble.samples import BOOSTING, FORESTS, KINDS, SLOW_KINDS
from tests.plain import PLAIN

# --- scikit-learn's own checks of all estimators; and tools that use estimators: clone, pickle, pipelines, searches ---


SINGLE = KINDS[:4]
BAGS = [
    dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(n_estimators=10, learning_rate=0.3), 2),
    dtrees.BaggingClassifier(dtrees.GradientBoostingClassifier(n_estimators=5), 2),
]

_BOOTSTRAP = "rows are drawn at random in proportion to their weights, so repeating a row gives other draws than weighing it"
_AS_ARRAY = "of several targets, classes_ and predict_proba are lists, as of forests; where there is a decision_function, it wants arrays"
_BY_ROWS = "the defaults follow from the number of rows, so repeating a row is not weighing it"


def expected_failures(estimator) -> dict[str, str]:
    """scikit-learn expects the checks of equal weights to fail for its random forests and HistGradientBoosting, for the same reasons."""
    checks = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    if isinstance(estimator, tuple(BOOSTING)):
        return dict.fromkeys(checks, _BY_ROWS) | ({"check_classifier_multioutput": _AS_ARRAY} if is_classifier(estimator) else {})
    draws = getattr(estimator, "bootstrap", False) or isinstance(estimator, dtrees.IsolationForest)
    return dict.fromkeys(checks, _BOOTSTRAP) if draws else {}


def slow_for_some(checks):
    """scikit-learn's checks, some marked as slow.

    These are those of several targets, except for boosting, and of medians, for which kernels are compiled, those of bags, and those of
    three of the four estimators with random thresholds.
    """
    names, pairs = checks.mark.args
    marked = []
    for pair in pairs:
        estimator, check = getattr(pair, "values", pair)
        several = any(word in str(check) for word in ("multioutput", "multilabel")) and type(estimator) not in BOOSTING
        of_medians = getattr(estimator, "criterion", "") == "absolute_error"
        is_slow = several or of_medians or "Bagging" in type(estimator).__name__ or type(estimator) in SLOW_KINDS
        mark = pytest.mark.thorough if of_medians and type(estimator) in FORESTS else pytest.mark.slow  # a tree tests the same as a forest
        marks = [*getattr(pair, "marks", ()), *([mark] if is_slow else [])]
        marked.append(pytest.param(estimator, check, marks=marks))
    return pytest.mark.parametrize(names, marked, **checks.mark.kwargs)


CHECKS = parametrize_with_checks(
    [kind() for kind in SINGLE]
    + [dtrees.DecisionTreeRegressor(criterion="absolute_error"), dtrees.RandomForestRegressor(n_estimators=5, criterion="absolute_error")]
    + [kind(n_estimators=5) for kind in FORESTS]
    + [dtrees.GradientBoostingRegressor(n_estimators=50), dtrees.GradientBoostingClassifier(n_estimators=25)]
    + BAGS
    + [dtrees.IsolationForest(n_estimators=5)],
    expected_failed_checks=expected_failures,
)


@slow_for_some(CHECKS)
def test_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("check", [check_sample_weight_equivalence_on_dense_data, check_sample_weight_equivalence_on_sparse_data])
def test_a_weight_of_two_is_a_row_given_twice_where_parameters_are_numbers(kind, check):
    check(kind.__name__, kind(n_estimators=10, **PLAIN))


FRAME = pd.DataFrame({"x": np.arange(60.0), "colour": ["red", "green", "blue"] * 20})
TARGET = FRAME["x"] + 30 * (FRAME["colour"] == "red")


def test_search():
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(dtrees.GradientBoostingClassifier(n_estimators=5), {"max_depth": [1, 3], "reg_lambda": [0.0, 1.0]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.9
    assert search.best_estimator_.get_params()["n_estimators"] == 5


@pytest.mark.slow  # they start processes, and import everything
def test_search_in_processes():
    X, y = load_iris(return_X_y=True)
    model = dtrees.RandomForestClassifier(n_estimators=5, n_jobs=2, random_state=0)
    scores = [cross_val_score(model, X, y, cv=3, n_jobs=n_jobs) for n_jobs in (None, 2)]
    np.testing.assert_array_equal(*scores)


def test_pipelines():
    encoder = ColumnTransformer([("colour", OneHotEncoder(sparse_output=False), ["colour"]), ("x", StandardScaler(), ["x"])])
    pipeline = make_pipeline(encoder.set_output(transform="pandas"), dtrees.RandomForestRegressor(n_estimators=20, random_state=0))
    assert pipeline.fit(FRAME, TARGET).score(FRAME, TARGET) > 0.95
    assert pipeline[-1].feature_names_in_.tolist() == ["colour__colour_blue", "colour__colour_green", "colour__colour_red", "x__x"]
    pipeline = Pipeline([("trees", dtrees.DecisionTreeRegressor(random_state=0))])
    assert pipeline.set_params(trees__max_depth=8).fit(FRAME, TARGET).score(FRAME, TARGET) > 0.95
    assert pickle.loads(pickle.dumps(pipeline)).predict(FRAME).tolist() == pipeline.predict(FRAME).tolist()


@pytest.mark.parametrize("kind", SINGLE + FORESTS + BOOSTING, ids=lambda kind: kind.__name__)
def test_clones_are_unfitted_and_fit_alike(kind):
    frame = FRAME[["x"]] if "Extra" in kind.__name__ else FRAME  # random thresholds with sets have kernels of their own
    model = kind(max_depth=3, random_state=0).fit(frame, TARGET > 40)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "n_features_in_")
    np.testing.assert_array_equal(twin.fit(frame, TARGET > 40).predict(frame), model.predict(frame))
    assert "max_depth=3" in repr(model)


# --- scikit-learn's private parts: the names of its metrics are recognised, and no other module of dtrees uses them ---


PACKAGE = Path(dtrees.__file__).parent


@pytest.mark.parametrize("name", sklearn.metrics.get_scorer_names())
def test_scorers_say_what_they_are(name):
    scorer = sklearn.metrics.get_scorer(name)
    known = sklearn_metric(scorer)
    assert known.greater_is_better
    assert known.sign == (-1 if name.startswith("neg_") else 1)
    assert known.name.startswith("neg_") == name.startswith("neg_")


def test_no_other_module_uses_private_parts():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                parts = [*node.module.split("."), *(alias.name for alias in node.names)]
                if any(re.match("_[a-z]", part) for part in parts):
                    found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"ensemble/compat.py"}


def test_estimators_link_to_the_documentation_where_its_address_is_known(monkeypatch):
    model = dtrees.RandomForestClassifier()
    monkeypatch.delenv("DTREES_DOCS", raising=False)
    assert "scikit-learn.org" not in model._get_doc_link()
    assert 'href="https://scikit-learn.org' not in model._repr_html_()
    monkeypatch.setenv("DTREES_DOCS", "https://docs.example/dtrees/")
    assert model._get_doc_link() == "https://docs.example/dtrees/api/dtrees.RandomForestClassifier.html"
    assert 'href="https://docs.example/dtrees/api/dtrees.RandomForestClassifier.html"' in model._repr_html_()


def test_defaults_of_a_class_of_the_user_are_checked_too():
    class Deep(dtrees.DecisionTreeClassifier):
        def __init__(self, max_depth="deep"):
            super().__init__()
            self.max_depth = max_depth

    X, y = [[0.0], [1.0]], [0, 1]
    with pytest.raises(ValueError, match="The 'max_depth' parameter of Deep must be"):
        Deep().fit(X, y)
    assert Deep(max_depth=1).fit(X, y).get_depth() == 1
