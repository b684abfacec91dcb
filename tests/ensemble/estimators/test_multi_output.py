"""Boosting of several targets: the trees of each target are those of a model of this target alone."""

import numpy as np
import pandas as pd
import polars
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.exceptions import DataConversionWarning
from sklearn.inspection import partial_dependence
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import get_scorer, mean_absolute_error, mean_squared_error, r2_score, root_mean_squared_error
from sklearn.tree import DecisionTreeClassifier

import dtrees
from dtrees import GradientBoostingClassifier, GradientBoostingRegressor
from dtrees.ensemble.objective import registry
from tests.ensemble.samples import RNG, SIGNAL, WEIGHT, N, X, trees
from tests.plain import PLAIN
from tests.slow import one_of_each

FILLED = np.nan_to_num(X)
Y = np.column_stack([SIGNAL, 5 * np.sin(3 * FILLED[:, 2]) + FILLED[:, 0], 0.3 * FILLED[:, 3] * FILLED[:, 4]])
POSITIVE = np.abs(Y) + 0.01
MARGIN = RNG.normal(size=Y.shape)
#: Parameters without draws that depend on the number of a tree.
ALL = {**PLAIN, "n_estimators": 6, "max_features": None, "colsample_bytree": 1.0, "subsample": 1.0, "random_state": 3, "max_depth": 4}
VARIANTS = {
    "plain": {},
    "first order": {"criterion": "squared_error", "min_weight_fraction_leaf": 0.02},
    "best first": {"max_leaf_nodes": 6, "max_depth": None, "min_split_gain": 0.3},
    "rows held out": {"n_iter_no_change": 20, "validation_fraction": 0.2},
    "in order": {"monotonic_cst": [1, 0, 0, -1, 0], "interaction_cst": "pairwise"},
    "pruned, from zero": {"ccp_alpha": 0.001, "init": "zero"},
}


def make(**parameters):
    return GradientBoostingRegressor(**{**ALL, **parameters})


def target_of(loss):
    return POSITIVE if loss in ("poisson", "gamma", "tweedie") else Y


def singles(y, weight=None, margins=None, make=make, **parameters):
    """One model for each target, with the same parameters."""
    margins = [None] * y.shape[1] if margins is None else margins
    return [make(**parameters).fit(X, target.tolist(), weight, base_margin=one) for target, one in zip(y.T, margins, strict=True)]


def assert_same(model, alone):
    """Check that the trees and all measures equal those of the models of each target, the trees in every byte."""
    theirs = [group for one in alone for group in one._trees.groups]
    for group, others in zip(model._trees.groups, theirs, strict=True):
        for tree, other in zip(group, others, strict=True):
            for name in tree.ARRAYS:
                assert getattr(tree, name).tobytes() == getattr(other, name).tobytes(), name
    for name in ("train_score_", "validation_score_"):
        if hasattr(model, name):
            assert_allclose(getattr(model, name), np.mean([getattr(one, name) for one in alone], axis=0), rtol=1e-12)


def takes_several(loss):
    """Return whether each column of y is a target."""
    return not registry.columns_of(loss)


@pytest.mark.parametrize(("loss", "variant"), one_of_each(sorted(filter(takes_several, registry.REGRESSION)), list(VARIANTS)))
def test_each_target_has_the_trees_of_a_model_of_its_own(loss, variant):
    y, parameters = target_of(loss), {"loss": loss, **VARIANTS[variant]}
    for weight in (None, WEIGHT):
        model, alone = make(**parameters).fit(X, y, weight), singles(y, weight, **parameters)
        assert_same(model, alone)
        assert_array_equal(model.predict(X), np.column_stack([one.predict(X) for one in alone]))
        assert any(tree.node_count > 1 for tree in trees(model))


def test_what_a_model_says_of_itself():
    model = make().fit(X, Y)
    assert model.n_outputs_ == model.n_trees_per_iteration_ == 3
    assert model.estimators_.shape == (6, 3)
    assert model.apply(X).shape == (N, 6, 3)
    assert_allclose(model.init_.predict(X[:1]), Y.mean(axis=0)[np.newaxis])
    assert_allclose(model.feature_importances_.sum(), 1.0)
    assert model.score(X, Y, WEIGHT) == r2_score(Y, model.predict(X), sample_weight=WEIGHT)
    stages = list(model.staged_predict(X))
    assert len(stages) == 6
    assert_array_equal(stages[-1], model.predict(X))
    steps = sum(np.column_stack([tree.predict(X) for tree in row]) for row in model.estimators_)
    assert_allclose(Y.mean(axis=0) + model.learning_rate * steps, model.predict(X), rtol=1e-12, atol=1e-12)
    found = partial_dependence(model, X, [0], method="recursion", grid_resolution=4)["average"]
    for one, wanted in zip(singles(Y), found, strict=True):
        assert_allclose(partial_dependence(one, X, [0], method="recursion", grid_resolution=4)["average"][0], wanted)


def test_kinds_of_y():
    wanted = make().fit(X, Y).predict(X)
    frame = pd.DataFrame(Y, columns=list("abc"))
    for y in (np.asfortranarray(Y), Y.tolist(), list(Y), frame, frame.astype("Float64"), frame.astype(object), polars.DataFrame(Y)):
        assert_array_equal(make().fit(X, y).predict(X), wanted)
    assert_array_equal(make().fit(csr_array(FILLED), Y).predict(FILLED), make().fit(FILLED, Y).predict(FILLED))


def test_a_single_column_is_one_target():
    with pytest.warns(DataConversionWarning):
        model = make().fit(X, Y[:, :1])
    assert model.predict(X).shape == (N,)
    assert model.n_outputs_ == 1
    assert make().fit(X, Y).fit(X, SIGNAL).predict(X).shape == (N,)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_metrics_are_those_of_scikit_learn(weight):
    formulas = {"rmse": root_mean_squared_error, "mse": mean_squared_error, "mae": mean_absolute_error, "r2": r2_score}
    asked = [*formulas, "loss", mean_absolute_error, "neg_mean_squared_error"]
    half = slice(None, None, 2)
    rest, of_rest = slice(1, None, 2), None if weight is None else weight[1::2]
    model = make(eval_metric=asked).fit(X[half], Y[half], eval_set=[(X[rest], Y[rest], of_rest)])
    found = model.evals_result_["validation_0"]
    for number, predicted in enumerate(model.staged_predict(X[rest])):
        for name, formula in formulas.items():
            assert_allclose(found[name][number], formula(Y[rest], predicted, sample_weight=of_rest), rtol=1e-12)
        assert_allclose(found["loss"][number], found["mse"][number])
        assert_allclose(found["mean_absolute_error"][number], found["mae"][number])
        assert_allclose(found["neg_mean_squared_error"][number], -found["mse"][number])


def test_early_stopping():
    model = make(n_estimators=200, learning_rate=0.5, early_stopping_rounds=3).fit(X[::2], Y[::2], eval_set=[(X[1::2], Y[1::2])])
    errors = model.evals_result_["validation_0"]["rmse"]
    assert model.n_estimators_ == model.best_iteration_ + 1 == np.argmin(errors) + 1 < 100
    assert model.predict(X).shape == Y.shape
    scored = make(n_estimators=200, learning_rate=0.5, n_iter_no_change=3, scoring="r2").fit(X, Y)
    assert scored.n_estimators_ < 100
    assert 0.2 < scored.validation_score_.max() <= get_scorer("r2")(scored, X, Y) + 0.5
    drawn = make(subsample=0.5, loss="huber").fit(X, Y)
    assert drawn.oob_improvement_.sum() > 0


def test_more_rounds_of_other_targets():
    model = make(warm_start=True).fit(X, Y, WEIGHT).set_params(n_estimators=12)
    for fewer in (Y[:, :2], Y[:, 0]):
        with pytest.raises(ValueError, match="keeps the trees of 3 target"):
            model.fit(X, fewer, WEIGHT)
    model = classify(warm_start=True).fit(X, LABELS).set_params(n_estimators=12)
    with pytest.raises(ValueError, match=r"y\[:, 0\] had the classes \[0, 1\] then"):
        model.fit(X, LABELS[:, [1, 1, 2]])


def test_where_trees_start(tmp_path):
    model = make().fit(X, Y, base_margin=MARGIN)
    alone = singles(Y, margins=MARGIN.T)
    assert_same(model, alone)
    wanted = np.column_stack([one.predict(X, base_margin=margin) for one, margin in zip(alone, MARGIN.T, strict=True)])
    assert_array_equal(model.predict(X, base_margin=MARGIN), wanted)
    model = make(eval_metric="mae").fit(X, Y, base_margin=MARGIN, eval_set=[(X, Y, None, MARGIN)])
    assert_allclose(model.evals_result_["validation_0"]["mae"][-1], mean_absolute_error(Y, wanted))
    model, alone = make(init=LinearRegression()).fit(FILLED, Y), LinearRegression().fit(FILLED, Y).predict(FILLED)
    assert_allclose(model.predict(FILLED), make().fit(FILLED, Y, base_margin=alone).predict(FILLED, base_margin=alone), rtol=1e-9)


def half_of_squares(y, raw, weight):
    factor = np.ones(len(y)) if weight is None else weight
    return factor[:, np.newaxis] * (raw - y), np.repeat(factor[:, np.newaxis], y.shape[1], axis=1)


def test_an_objective_is_given_all_targets(tmp_path):
    model = make(loss=half_of_squares).fit(X, Y, WEIGHT, eval_set=[(X, Y)])
    assert_allclose(model.predict(X), make(init="zero").fit(X, Y, WEIGHT).predict(X), rtol=1e-9, atol=1e-12)
    assert_allclose(model.evals_result_["validation_0"]["rmse"][-1], root_mean_squared_error(Y, model.predict(X)))
    dtrees.save(model, tmp_path / "model.dtrees")
    assert_array_equal(dtrees.load(tmp_path / "model.dtrees").predict(X), model.predict(X))
    with pytest.raises(ValueError, match=r"a gradient of shape \(300,\); wants that of raw, \(300, 3\)"):
        make(loss=lambda y, raw, weight: (raw[:, 0], raw[:, 0])).fit(X, Y)


def with_cell(value):
    y = Y.copy()
    y[7, 1] = value
    return y


@pytest.mark.parametrize(
    ("y", "parameters", "message"),
    [
        (with_cell(np.nan), {}, r"y contains NaN.*\(in y\[:, 1\]\)"),
        (with_cell(np.inf), {}, r"y contains infinity.*\(in y\[:, 1\]\)"),
        (with_cell(1e200), {}, r"y contains 1e\+200.*\(in y\[:, 1\]\)"),
        (Y, {"loss": "gamma"}, r"loss='gamma'.*\(in y\[:, 0\]\)"),
        (Y * [0, 0, 0] + [1, 0, 0], {"loss": "poisson"}, r"y is zero wherever.*\(in y\[:, 1\]\)"),
        (Y.astype(str)[:, 1:] + "?", {}, "a regressor wants numbers"),
        (Y + 1j, {}, "Complex data not supported"),
        (pd.DataFrame(Y + 1j), {}, "Complex data not supported"),
        (Y.astype("M8[s]"), {}, "turn dates into numbers"),
        ([[1.0, 2.0], [1.0]] * (N // 2), {}, "rows are not of one length"),
        (Y[:, :, np.newaxis], {}, "dim 3"),
        (Y[:, :0], {}, "0 feature"),
        (Y[:9], {}, "X has 300 rows but y has 9"),
    ],
)
def test_what_cannot_be_fitted(y, parameters, message):
    with pytest.raises(ValueError, match=message):
        make(**parameters).fit(X, y)


def test_sparse_targets():
    with pytest.raises(TypeError, match=r"y is a sparse table of shape \(300, 3\); wants a dense array: y.toarray\(\)"):
        make().fit(X, csr_array(Y))


class First(LinearRegression):
    """Predicts the first target only."""

    def predict(self, X):
        return super().predict(X)[:, 0]


def test_what_does_not_go_with_the_targets():
    for given, shape in ((Y[:, 0], r"\(300,\)"), (Y[:, :2], r"\(300, 2\)")):
        with pytest.raises(ValueError, match=rf"eval_set 'validation_0': y has the shape {shape}; wants \(n, 3\)"):
            make().fit(X, Y, eval_set=[(X, given)])
        with pytest.raises(ValueError, match=rf"base_margin has the shape {shape}; wants raw scores of shape \(300, 3\)"):
            make().fit(X, Y, base_margin=given)
    with pytest.raises(ValueError, match=r"eval_set 'validation_0': y should be a 1d array"):
        make().fit(X, SIGNAL, eval_set=[(X, Y)])
    with pytest.raises(ValueError, match="1D array or scalar"):
        make().fit(X, Y, sample_weight=np.abs(Y))
    with pytest.raises(ValueError, match=r"init predicts an array of shape \(300,\).*wants finite ones, of shape \(300, 3\)"):
        make(init=First()).fit(FILLED, Y)


#: Labels of two classes, three, and two again, the last as text.
LABELS = np.column_stack([(SIGNAL > 0).astype(int), np.digitize(FILLED[:, 2], [-0.5, 0.5]), np.where(Y[:, 2] > 0, "yes", "no")]).astype(
    object
)
LABELS[:, :2] = LABELS[:, :2].astype(int)
BITS = (Y > 0).astype(int)
VARIANTS_OF_CLASSES = {
    "plain": {},
    "first order": {"criterion": "squared_error"},
    "best first": {"max_leaf_nodes": 6, "max_depth": None, "init": "zero"},
}


def classify(**parameters):
    return GradientBoostingClassifier(**{**ALL, **parameters})


def classifiers(y, weight=None, margins=None, **parameters):
    return singles(y, weight, margins, classify, **parameters)


def assert_same_classes(model, alone):
    assert_same(model, alone)
    assert_array_equal(model.predict(X), np.column_stack([one.predict(X).astype(object) for one in alone]))
    for ours, one, labels in zip(model.predict_proba(X), alone, model.classes_, strict=True):
        assert_array_equal(ours, one.predict_proba(X))
        assert_array_equal(labels, one.classes_)
    assert_array_equal(model.decision_function(X), np.column_stack([one.decision_function(X) for one in alone]))


@pytest.mark.parametrize("variant", VARIANTS_OF_CLASSES)
def test_each_target_of_classes_has_the_trees_of_a_model_of_its_own(variant):
    for y, loss in ((LABELS, "log_loss"), (BITS, "exponential")):
        parameters = {"loss": loss, **VARIANTS_OF_CLASSES[variant]}
        for weight in (None, WEIGHT):
            model = classify(**parameters).fit(X, y, weight)
            assert_same_classes(model, classifiers(y, weight, **parameters))
            assert any(tree.node_count > 1 for tree in trees(model))


def test_what_a_model_of_classes_says_of_itself():
    model = classify().fit(X, LABELS)
    assert (model.n_outputs_, model.n_classes_, model.n_trees_per_iteration_) == (3, [2, 3, 2], 5)
    assert (model.estimators_.shape, model.apply(X).shape, model.shap_values(X[:2]).shape) == ((6, 5), (N, 6, 5), (2, 5, 5))
    for prior, labels, column in zip(model.init_, model.classes_, LABELS.T, strict=True):
        assert_allclose(prior.predict_proba(X[:1])[0], [np.mean(column == label) for label in labels])
    assert model.score(X, LABELS) == np.mean(np.all(model.predict(X) == LABELS, axis=1))
    *_, labels = model.staged_predict(X)
    *_, shares = model.staged_predict_proba(X)
    *_, raw = model.staged_decision_function(X)
    assert_array_equal(labels, model.predict(X))
    assert_array_equal(raw, model.decision_function(X))
    for ours, wanted, logs in zip(shares, model.predict_proba(X), model.predict_log_proba(X), strict=True):
        assert_array_equal(ours, wanted)
        assert_allclose(np.exp(logs), wanted)


def test_auto_is_as_for_the_target_of_the_most_classes():
    model, alone = (GradientBoostingClassifier(n_estimators=2).fit(X, y) for y in (BITS, BITS[:, 0]))
    assert (model.learning_rate_, model.reg_lambda_) == (alone.learning_rate_, alone.reg_lambda_)
    assert GradientBoostingClassifier(n_estimators=2).fit(X, LABELS).reg_lambda_ == 1.0


def test_weights_of_classes_of_several_targets_are_multiplied():
    factors = [{0: 1.0, 1: 3.0}, {0: 2.0, 1: 1.0}, {0: 1.0, 1: 0.5}]
    weight = WEIGHT * np.prod([[one[label] for label in column] for one, column in zip(factors, BITS.T, strict=True)], axis=0)
    assert_same_classes(classify(class_weight=factors).fit(X, BITS, WEIGHT), classifiers(BITS, weight))
    balanced = [{k: 1 / (2 * np.mean(column == k)) for k in (0, 1)} for column in BITS.T]
    found, wanted = (classify(class_weight=one).fit(X, BITS).decision_function(X) for one in ("balanced", balanced))
    assert_allclose(found, wanted)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_metrics_of_classes_are_means_over_targets(weight):
    half, rest, of_rest = slice(None, None, 2), slice(1, None, 2), None if weight is None else weight[1::2]
    asked = ["logloss", "error", "accuracy", "auc", "loss"]
    model = classify(eval_metric=asked).fit(X[half], LABELS[half], eval_set=[(X[rest], LABELS[rest], of_rest)])
    alone = [classify(eval_metric=asked).fit(X[half], y[half].tolist(), eval_set=[(X[rest], y[rest].tolist(), of_rest)]) for y in LABELS.T]
    for metric in asked:
        wanted = np.mean([one.evals_result_["validation_0"][metric] for one in alone], axis=0)
        assert_allclose(model.evals_result_["validation_0"][metric], wanted, rtol=1e-12)


def test_rows_of_classes_that_are_held_out_or_drawn():
    parameters = {"n_estimators": 100, "learning_rate": 0.5}
    stopped = classify(n_iter_no_change=3, **parameters).fit(X, LABELS)
    assert 3 < stopped.n_estimators_ < 100
    best = classify(early_stopping_rounds=3, **parameters).fit(X[::2], LABELS[::2], eval_set=[(X[1::2], LABELS[1::2])])
    assert best.best_iteration_ == np.argmin(best.evals_result_["validation_0"]["logloss"]) < 90
    drawn = classify(subsample=0.5).fit(X, LABELS)
    assert drawn.oob_improvement_.sum() > 0


def test_where_trees_of_classes_start():
    margin = RNG.normal(size=(N, 5))
    model = classify().fit(X, LABELS, base_margin=margin)
    parts = (margin[:, 0], margin[:, 1:4], margin[:, 4])
    alone = classifiers(LABELS, margins=parts)
    wanted = np.column_stack([one.decision_function(X, base_margin=part) for one, part in zip(alone, parts, strict=True)])
    assert_array_equal(model.decision_function(X, base_margin=margin), wanted)
    tree = DecisionTreeClassifier(min_samples_leaf=20, random_state=0)
    y = np.column_stack([LABELS[:, :2], BITS[:, 2]]).astype(int)
    started, shares = classify(init=tree).fit(FILLED, y), tree.fit(FILLED, y).predict_proba(FILLED)
    least = np.finfo(np.float32).eps
    logs = [np.log(np.clip(one, least, 1 - least)) for one in shares]
    raw = np.column_stack([logs[0][:, 1] - logs[0][:, 0], logs[1] - logs[1].mean(axis=1, keepdims=True), logs[2][:, 1] - logs[2][:, 0]])
    wanted = classify().fit(FILLED, y, base_margin=raw).decision_function(FILLED, base_margin=raw)
    assert_allclose(started.decision_function(FILLED), wanted, rtol=1e-9, atol=1e-9)


def derivatives(y, raw, weight):
    return raw, np.ones_like(raw)


@pytest.mark.parametrize(
    ("y", "parameters", "message"),
    [
        (BITS * [1, 0, 1], {}, r"y contains 1 class.*\(in y\[:, 1\]\)"),
        (BITS + 0.5, {}, r"Unknown label type.*\(in y\[:, 0\]\)"),
        (LABELS, {"loss": "exponential"}, r"loss='exponential' is for two classes, but y has 3.*\(in y\[:, 1\]\)"),
        (LABELS, {"monotonic_cst": [1, 0, 0, 0, 0]}, r"y has \[2, 3, 2\] classes"),
        (BITS, {"loss": derivatives}, "loss is a function, which is for one target of classes, but y has 3"),
        (BITS, {"scoring": "accuracy", "n_iter_no_change": 3}, "scoring='accuracy' is for one target of classes, but y has 3"),
        (BITS, {"eval_metric": ["auc", "f1"]}, "eval_metric has 'f1', but y has 3 targets of classes"),
        (BITS, {"eval_metric": mean_absolute_error}, "over which only logloss, error, accuracy, auc, loss are averaged"),
        (BITS, {"class_weight": {0: 1.0, 1: 2.0}}, "class_weight should be a list of dicts"),
        (BITS, {"class_weight": [{0: 1.0, 1: 2.0}]}, "wants 3 dicts"),
        (BITS, {"init": LogisticRegression()}, r"got an array of shape \(300, 3\)"),
    ],
)
def test_classes_that_cannot_be_fitted(y, parameters, message):
    with pytest.raises(ValueError, match=message):
        classify(**parameters).fit(FILLED, y)


def test_what_does_not_go_with_the_targets_of_classes():
    other = LABELS.copy()
    other[3, 1] = 9
    with pytest.raises(ValueError, match=r"eval_set 'validation_0': y has the label 9.*\(in y\[:, 1\]\)"):
        classify().fit(X, LABELS, eval_set=[(X, other)])
    four, nothing = np.repeat(np.arange(N)[:, np.newaxis] % 4, 2, axis=1), [{0: 0.0, 1: 0.0}, {2: 0.0, 3: 0.0}]
    with pytest.raises(ValueError, match="class_weight leaves no row with a weight above 0"):
        classify(class_weight=nothing).fit(X, four)
    with pytest.raises(ValueError, match="y should be a 1d array.*as bags of boosters do"):
        dtrees.BaggingClassifier().fit(X, BITS)
    with pytest.raises(ValueError, match="has 3 targets with classes of their own"):
        dtrees.to_sklearn(classify().fit(X, BITS))


def test_monotonic_targets_of_two_classes():
    signs = [1, 0, 0, 0, 0]
    assert_same_classes(classify(monotonic_cst=signs).fit(X, BITS), classifiers(BITS, monotonic_cst=signs))
