"""Metrics: scikit-learn is the oracle, and computing them in blocks does not change them."""

import functools
import itertools
import math
import warnings

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import dtrees
from dtrees.ensemble.metrics import (
    CLASSIFICATION,
    REGRESSION,
    Block,
    CustomMetric,
    area_under_curve,
    check_metrics,
    greater_is_better,
    metric_for,
    metric_name,
)
from dtrees.ensemble.objective.classification import BinaryLogLoss, MultinomialLogLoss
from dtrees.ensemble.objective.regression import SquaredError
from tests.ensemble.samples import LABELS, SIGNAL, X, by_sklearn, make

N = 200
RNG = np.random.default_rng(3)
LINKS = {0: SquaredError(), 2: BinaryLogLoss(), 4: MultinomialLogLoss(4)}


def sample(n_classes, n=N, *, ties=False):
    """Targets, and raw predictions that are correlated with them."""
    if not n_classes:
        y = RNG.normal(5.0, 2.0, n)
        return y, (y + RNG.normal(size=n))[np.newaxis]
    y = RNG.integers(0, n_classes, n).astype(np.int32)
    raw = RNG.normal(size=(1 if n_classes == 2 else n_classes, n))
    raw += 2.0 * (y == (1 if n_classes == 2 else np.arange(n_classes)[:, np.newaxis]))
    return y, raw.round(1) if ties else raw


def blocks_of(y, raw, weight, bounds):
    edges = [0, *bounds, len(y)]
    for start, stop in itertools.pairwise(edges):
        part = slice(start, stop)
        yield Block(np.empty((stop - start, 0)), y[part], None if weight is None else weight[part]), raw[:, part]


def measure(metric, y, raw, weight, bounds=()):
    partials = [metric.partial(block, part) for block, part in blocks_of(y, raw, weight, sorted(bounds))]
    return metric.value(partials, lambda: (y, weight))


CASES = [(name, 0) for name in REGRESSION] + [(name, k) for name in CLASSIFICATION for k in (2, 4)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("name", "n_classes"), CASES)
def test_metrics_are_scikit_learns(name, n_classes, weighted):
    metric = metric_for(name, LINKS[n_classes])
    for ties in (False, True):
        y, raw = sample(n_classes, ties=ties)
        weight = RNG.integers(0, 4, N) / 2 if weighted else None
        value = measure(metric, y, raw, weight)
        assert value == pytest.approx(by_sklearn(name, y, LINKS[n_classes].predictions(raw.T), weight), rel=1e-12)
        for bounds in ((), (1, 1, 100), (7, 50, 51, 199)):
            assert measure(metric, y, raw, weight, bounds) == value


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=20))
def test_area_under_curve(rows):
    """Compared with a slow computation over all pairs, and with scikit-learn."""
    positive = np.array([row[0] for row in rows])
    score = np.array([row[1] for row in rows], dtype=np.float64)
    weight = np.array([row[2] for row in rows], dtype=np.float64)
    found = area_under_curve(positive, score, weight)
    pairs = [(i, j) for i in np.flatnonzero(positive) for j in np.flatnonzero(~positive)]
    total = sum(weight[i] * weight[j] for i, j in pairs)
    if total == 0:
        assert math.isnan(found)
        return
    right = sum(weight[i] * weight[j] * (1.0 if score[i] > score[j] else 0.5 if score[i] == score[j] else 0.0) for i, j in pairs)
    assert found == pytest.approx(right / total)
    assert found == pytest.approx(sklearn.metrics.roc_auc_score(positive, score, sample_weight=weight))


def test_auc_of_classes_that_are_not_there():
    y, raw = sample(4)
    metric = metric_for("auc", LINKS[4])
    few = y < 2
    predicted = LINKS[4].predictions(raw.T[few])
    areas = [sklearn.metrics.roc_auc_score(y[few] == k, predicted[:, k]) for k in (0, 1)]
    assert measure(metric, y[few], raw[:, few], None) == pytest.approx(np.average(areas, weights=np.bincount(y[few])))
    assert math.isnan(measure(metric_for("auc", LINKS[2]), np.ones(3, np.int32), raw[:1, :3], None))


def test_extremes():
    y = np.full(3, 1e200)
    raw = np.array([[0.0, -1e200, 1e200]])
    assert measure(metric_for("mse", LINKS[0]), y, raw, None) == math.inf
    assert measure(metric_for("rmse", LINKS[0]), y, raw, None) == math.inf
    assert measure(metric_for("mae", LINKS[0]), y, raw, None) == pytest.approx(1e200)
    constant = np.full(5, 2.0)
    assert measure(metric_for("r2", LINKS[0]), constant, constant[np.newaxis], None) == 1.0
    assert measure(metric_for("r2", LINKS[0]), constant, np.arange(5.0)[np.newaxis], None) == 0.0
    y, raw = np.array([0, 1], np.int32), np.array([[1000.0, -1000.0]])
    assert measure(metric_for("logloss", LINKS[2]), y, raw, None) == sklearn.metrics.log_loss(y, [[0, 1], [1, 0]])


def test_r2_far_from_zero():
    """No digits are lost if the mean is large compared with the spread."""
    y, raw = sample(0)
    shifted = measure(metric_for("r2", LINKS[0]), y + 2.0**30, raw + 2.0**30, None)
    assert shifted == pytest.approx(measure(metric_for("r2", LINKS[0]), y, raw, None), rel=1e-6)


def brier(y, probability, weight):
    return sklearn.metrics.brier_score_loss(y, probability, sample_weight=weight)


def top_2(y, probability, weight):
    return sklearn.metrics.top_k_accuracy_score(y, probability, k=2, sample_weight=weight)


def mape(y, predicted, weight):
    return np.float32(sklearn.metrics.mean_absolute_percentage_error(y, predicted, sample_weight=weight))


@pytest.mark.parametrize(("function", "n_classes"), [(brier, 2), (top_2, 4), (mape, 0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_functions_are_given_all_rows_in_order(function, n_classes, weighted):
    y, raw = sample(n_classes)
    weight = RNG.integers(0, 4, N) / 2 if weighted else None
    metric = metric_for(function, LINKS[n_classes])
    predicted = LINKS[n_classes].predictions(raw.T)
    wanted = function(y, predicted[:, 1] if n_classes == 2 else predicted, weight)
    for bounds in ((), (30, 30, 77)):
        assert measure(metric, y, raw, weight, bounds) == wanted
    assert metric.name == function.__name__


@pytest.mark.parametrize("weighted", [False, True])
def test_scikit_learns_functions_are_taken_as_they_are(weighted):
    weight = RNG.integers(0, 4, N) / 2 if weighted else None
    pinball = functools.partial(sklearn.metrics.mean_pinball_loss, alpha=0.9)
    for function, n_classes in ((sklearn.metrics.mean_absolute_error, 0), (pinball, 0), (sklearn.metrics.log_loss, 2)):
        y, raw = sample(n_classes)
        assert check_metrics(function, classify=n_classes > 0, default="rmse") == [function]
        predicted = LINKS[n_classes].predictions(raw.T)
        wanted = function(y, predicted[:, 1] if n_classes == 2 else predicted, sample_weight=weight)
        assert measure(metric_for(function, LINKS[n_classes]), y, raw, weight, (30, 77)) == wanted


def weigh_labels(y, predicted, weight):
    return 0.0


weigh_labels.greater_is_better = False


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        ("mae", False),
        ("auc", True),
        (sklearn.metrics.roc_auc_score, True),
        (sklearn.metrics.accuracy_score, True),
        (sklearn.metrics.r2_score, True),
        (sklearn.metrics.average_precision_score, True),
        (sklearn.metrics.cohen_kappa_score, True),
        (sklearn.metrics.matthews_corrcoef, True),
        (functools.partial(sklearn.metrics.roc_auc_score, multi_class="ovr"), True),
        (sklearn.metrics.mean_absolute_error, False),
        (sklearn.metrics.log_loss, False),
        (sklearn.metrics.hamming_loss, False),
        (functools.partial(sklearn.metrics.mean_pinball_loss, alpha=0.9), False),
        (sklearn.metrics.max_error, False),
        (sklearn.metrics.get_scorer("roc_auc"), True),
        (sklearn.metrics.get_scorer("neg_log_loss"), True),
        (sklearn.metrics.make_scorer(brier, greater_is_better=False), True),
        (weigh_labels, False),
    ],
    ids=lambda case: case if isinstance(case, str | bool) else metric_name(case),
)
def test_what_is_better(metric, wanted):
    assert greater_is_better(metric) is wanted


def test_what_does_not_say_what_is_better():
    for metric in (brier, functools.partial(brier), sklearn.metrics.confusion_matrix):
        with pytest.raises(
            ValueError, match=r"does not say whether more of it is better, .* set its attribute greater_is_better to True or"
        ):
            greater_is_better(metric)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_metrics_of_labels_are_given_labels(n_classes, weighted):
    y, raw = sample(n_classes)
    weight = RNG.integers(0, 4, N) / 2 if weighted else None
    labels = LINKS[n_classes].predictions(raw.T).argmax(axis=1)
    f1 = functools.partial(sklearn.metrics.f1_score, average="macro")
    for function in (sklearn.metrics.accuracy_score, sklearn.metrics.hamming_loss, f1):
        assert measure(metric_for(function, LINKS[n_classes]), y, raw, weight, (30, 77)) == function(y, labels, sample_weight=weight)


def test_scorers():
    y, raw = sample(2)
    predicted = LINKS[2].predictions(raw.T)
    for name, wanted in (
        ("neg_log_loss", -sklearn.metrics.log_loss(y, predicted[:, 1])),
        ("roc_auc", sklearn.metrics.roc_auc_score(y, predicted[:, 1])),
        ("f1_macro", sklearn.metrics.f1_score(y, predicted.argmax(axis=1), average="macro")),
    ):
        scorer = sklearn.metrics.get_scorer(name)
        assert check_metrics(scorer, classify=True, default="rmse") == [scorer]
        assert measure(metric_for(scorer, LINKS[2]), y, raw, None, (30, 77)) == wanted
    y, raw = sample(0)
    largest = metric_for(sklearn.metrics.max_error, LINKS[0])
    assert measure(largest, y, raw, None) == np.abs(y - raw[0]).max()
    with pytest.raises(TypeError, match="'max_error' takes no sample_weight, but the evaluation set has weights"):
        measure(largest, y, raw, np.ones(N))


def test_what_can_be_asked_for():
    assert check_metrics(None, classify=False, default="mae") == ["mae"]
    assert check_metrics(None, classify=True, default="loss") == ["loss"]
    assert check_metrics(["auc", brier], classify=True, default="rmse") == ["auc", brier]
    assert check_metrics("mae", classify=False, default="rmse") == ["mae"]
    assert [metric_name(metric) for metric in ("auc", brier, functools.partial(brier))] == ["auc", "brier", "partial"]
    assert [name for name in REGRESSION + CLASSIFICATION if greater_is_better(name)] == ["r2", "accuracy", "auc"]
    for wrong, classify, message in (
        ("auc", False, "eval_metric has 'auc'; wants, for regression, some of rmse, mse, mae, r2, loss, names of scorers"),
        (["error", 3], True, "eval_metric has 3; wants, for classification"),
        ([], True, r"names \[\]; wants at least one"),
        (["error", "error"], True, "each once"),
    ):
        with pytest.raises(ValueError, match=message):
            check_metrics(wrong, classify=classify, default="rmse")
    for function in (lambda y_true, y_pred: 0.0, lambda *, y_true, y_pred, sample_weight: 0.0, lambda y_true: 0.0):
        with pytest.raises(TypeError, match=r"eval_metric has '.*', which cannot be called .* wants functions \(y_true, y_pred, weight\)"):
            check_metrics(["rmse", function], classify=False, default="rmse")
    with pytest.raises(TypeError, match=r"the eval_metric 'pair' returned \(1, 2\); wants a number"):
        CustomMetric(lambda *_: (1, 2), LINKS[2], "pair").value([np.zeros((1, 2))], lambda: (np.zeros(2), None))


def test_nothing_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, n_classes in CASES:
            y, raw = sample(n_classes, 1)
            measure(metric_for(name, LINKS[n_classes]), y, raw, None)


def test_scorers_that_ask_for_decisions_are_given_raw_predictions():
    """As in scikit-learn: within a class, probabilities order rows differently."""
    half = len(X) // 2
    for y in (LABELS, SIGNAL > 1):
        model = make(dtrees.GradientBoostingClassifier, eval_metric="average_precision").fit(
            X[:half], y[:half], eval_set=[(X[half:], y[half:])]
        )
        # The expected result of its scorer; that of scikit-learn 1.7 supports two classes only.
        wanted = sklearn.metrics.average_precision_score(y[half:], model.decision_function(X[half:]))
        assert_allclose(model.evals_result_["validation_0"]["average_precision"][-1], wanted, rtol=1e-12)
