"""Invalid or contradictory input is refused with a message that says what to do."""

import copy
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError

import dtrees
from tests.slow import KERNELS_OF_THEIR_OWN, slow_for

REGRESSORS = [
    dtrees.DecisionTreeRegressor(),
    dtrees.ExtraTreeRegressor(),
    dtrees.RandomForestRegressor(n_estimators=2),
    dtrees.ExtraTreesRegressor(n_estimators=2),
    dtrees.GradientBoostingRegressor(n_estimators=2),
]
CLASSIFIERS = [
    dtrees.DecisionTreeClassifier(),
    dtrees.ExtraTreeClassifier(),
    dtrees.RandomForestClassifier(n_estimators=2),
    dtrees.ExtraTreesClassifier(n_estimators=2),
    dtrees.GradientBoostingClassifier(n_estimators=2, min_child_weight=0.1),
]
ALL = REGRESSORS + CLASSIFIERS

TREE, FOREST, BOOSTING = dtrees.DecisionTreeRegressor, dtrees.RandomForestClassifier, dtrees.GradientBoostingRegressor
X = np.arange(12.0).reshape(6, 2)
Y = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])


def name(estimator):
    return type(estimator).__name__


every = pytest.mark.parametrize("estimator", ALL, ids=name)
every_regressor = pytest.mark.parametrize("estimator", REGRESSORS, ids=name)
every_classifier = pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name)


@every
@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.empty((0, 2)), "X has no rows"),
        (X.astype(str), "X is an array of dtype .*; wants numbers"),
        (X[:4], "X has 4 rows but y has 6"),
        (pl.DataFrame({"x": [[1]] * 6}), "column 'x' is of dtype List"),
        (np.array([["a", 1.0]] * 6, dtype=object), r"X is a ndarray of objects .*'a'.*; wants numbers\. .*set_output"),
        (X[:, 0], r"Expected 2D array, got 1D array instead: X has shape \(6,\)\. Reshape your data"),
    ],
)
def test_x(estimator, X, message):
    y = Y[: len(X)] if len(X) == 0 else Y
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)


@every
@pytest.mark.parametrize("X", [None, "table.csv", {"a": [1.0] * 6}, iter(X), 3.0])
def test_what_is_no_table(estimator, X):
    with pytest.raises(TypeError, match=f"X is .* of type {type(X).__name__}; wants an array or a frame"):
        estimator.fit(X, Y)


@every
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(np.arange(6) == 2, np.nan, Y), "y contains NaN"),
        (np.where(np.arange(6) == 2, np.inf, Y), "y contains infinity"),
        (None, "requires y to be passed"),
        (np.ones((6, 2, 2)), "dim 3"),  # two columns: test_multi_output.py
        (Y * 1j, "Complex data not supported: y is an array of dtype complex128"),
        (np.array(["2020-01-01"] * 6, dtype="M8[D]"), "y is of dtype datetime64"),
    ],
)
def test_y(estimator, y, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)


@every
@pytest.mark.filterwarnings("ignore:the matrix subclass is not the recommended way")
def test_masks_and_matrices(estimator):
    estimator = clone(estimator).set_params(random_state=0)
    whole, one = np.ma.array(Y, mask=False), np.ma.array(Y, mask=[0, 0, 1, 0, 0, 0])
    assert_array_equal(estimator.fit(X, whole, np.ma.array(Y + 1)).predict(X), estimator.fit(X, Y, Y + 1).predict(X))
    assert estimator.score(X, whole) == estimator.score(X, Y)
    for call in (lambda y: estimator.fit(X, y), lambda y: estimator.score(X, y)):
        with pytest.raises(ValueError, match=r"y is a masked array with 1 masked value"):
            call(one)
        with pytest.raises(TypeError, match="y is a numpy.matrix"):
            call(np.matrix(Y).T)
    for call in (lambda weight: estimator.fit(X, Y, weight), lambda weight: estimator.score(X, Y, weight)):
        with pytest.raises(ValueError, match="sample_weight is a masked array with 1 masked value"):
            call(one)
        with pytest.raises(TypeError, match="sample_weight is a numpy.matrix"):
            call(np.matrix(Y).T)
    with pytest.raises(TypeError, match="X is a numpy.matrix"):
        estimator.fit(np.matrix(X), Y)
    with pytest.raises(TypeError, match="X is a numpy.matrix"):
        estimator.predict(np.matrix(X))
    masked, missing = np.ma.masked_equal(X, 3.0), np.where(X == 3.0, np.nan, X)
    estimator.fit(masked, Y)
    assert_array_equal(estimator.predict(masked), estimator.fit(missing, Y).predict(missing))


@every_regressor
def test_labels_are_not_for_regressors(estimator):
    with pytest.raises(ValueError, match="y cannot be turned into numbers"):
        estimator.fit(X, list("abcabc"))


@every_classifier
@pytest.mark.parametrize("y", [["a", "b", None, "a", "b", "a"], pd.Series(["a", "b", None, "a", "b", "a"])])
def test_labels_must_be_known(estimator, y):
    with pytest.raises(ValueError, match="y contains missing values"):
        estimator.fit(X, y)


@every_classifier
@pytest.mark.parametrize(
    ("y", "kinds"), [([1, "a"] * 3, "int and str"), ([10**30, 1] * 3, "int"), ([(1, 2)] * 6, "tuple"), ([True, "a"] * 3, "bool and str")]
)
def test_labels_of_no_kind(estimator, y, kinds):
    with pytest.raises(ValueError, match=f"Unknown label type: y holds labels of type {kinds}; wants"):
        estimator.fit(X, pd.Series(y, dtype=object))


@every_classifier
def test_labels_that_come_as_objects(estimator):
    for labels in ([True, False], [3, 5], [0.0, 2.0]):
        model = estimator.fit(X, np.array(labels * 3, dtype=object))
        assert model.classes_.tolist() == sorted(labels)
        assert model.classes_.dtype == np.array(labels).dtype


@every_classifier
def test_classes_are_discrete(estimator):
    with pytest.raises(ValueError, match="Unknown label type"):
        estimator.fit(X, Y + 0.25 * np.arange(6))


def test_one_class():
    for estimator in CLASSIFIERS[:-1]:
        assert estimator.fit(X, ["only"] * 6).predict(X).tolist() == ["only"] * 6
    with pytest.raises(ValueError, match=r"y contains 1 class\(es\).*boosting wants rows of at least two classes"):
        CLASSIFIERS[-1].fit(X, ["only"] * 6)
    with pytest.raises(ValueError, match=r"y contains 1 class\(es\) with a weight above zero"):
        CLASSIFIERS[-1].fit(X, Y, sample_weight=1 - Y)


@every
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(6), "must contain at least one non-zero number; all weights are zero"),
        (np.array([1, 1, -1, 1, 1, 1]), "sample_weight contains the negative value -1"),
        (np.ones(5), "sample_weight has 5 values but X has 6 rows"),
        (np.ones((6, 1)), "must be 1D array or scalar; sample_weight has shape"),
        (np.array([1, 1, np.nan, 1, 1, 1]), "sample_weight contains NaN or infinity"),
        (["a"] * 6, "sample_weight cannot be turned into numbers"),
        (np.full(6, 1.7e308), r"sample_weight adds up to more than 1e\+300"),
    ],
)
def test_sample_weight(estimator, weight, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, Y, sample_weight=weight)


@every
@pytest.mark.parametrize(
    ("parameter", "value", "wanted"),
    [
        ("max_depth", 0, "an int in the range"),
        ("max_depth", 2.5, "an int in the range"),
        ("min_samples_split", 1, "an int in the range"),
        ("min_samples_leaf", 1.5, "a float in the range"),
        ("max_features", "all", "a str among"),
        ("max_features", 0, "an int in the range"),
        ("max_leaf_nodes", 1, "an int in the range"),
        ("min_impurity_decrease", -1.0, "a float in the range"),
        ("n_jobs", 0, "an int in the range"),
        ("random_state", "seed", "an int in the range"),
        ("max_depth", 2**70, r"an int in the range \[1, 9223372036854775807\]"),
    ],
)
def test_parameters(estimator, parameter, value, wanted):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of {name(estimator)} must be .*{wanted}.* Got {value!r}"):
        type(estimator)(**{parameter: value}).fit(X, Y)


@every
@pytest.mark.parametrize("largest", [2**62, 2**63 - 1])
@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_limits_of_64_bits(estimator, largest, tmp_path):
    for limit in ("max_depth", "max_leaf_nodes", "min_samples_split", "min_samples_leaf"):
        model = clone(estimator).set_params(**{limit: largest}).fit(X, Y)
        dtrees.save(model, tmp_path / "model")
        assert getattr(dtrees.load(tmp_path / "model"), limit) == largest


@pytest.mark.parametrize(
    ("kind", "parameter", "value"),
    [
        (dtrees.RandomForestRegressor, "max_samples", 2**70),
        (dtrees.RandomForestRegressor, "n_estimators", 0),
        (dtrees.RandomForestRegressor, "criterion", "gini"),
        (dtrees.RandomForestClassifier, "criterion", "squared_error"),
        (dtrees.RandomForestClassifier, "class_weight", "even"),
        (dtrees.DecisionTreeClassifier, "class_weight", "balanced_subsample"),
        (dtrees.DecisionTreeRegressor, "splitter", "worst"),
        (dtrees.GradientBoostingRegressor, "loss", "log_loss"),
        (dtrees.GradientBoostingClassifier, "loss", "squared_error"),
        (dtrees.GradientBoostingRegressor, "reg_lambda", -1.0),
        (dtrees.GradientBoostingRegressor, "validation_fraction", 1.0),
        (dtrees.GradientBoostingRegressor, "n_iter_no_change", 0),
    ],
)
def test_parameters_of_some(kind, parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of {kind.__name__} must be"):
        kind(**{parameter: value}).fit(X, Y)


def test_unknown_parameters():
    with pytest.raises(TypeError, match="max_bins"):
        dtrees.DecisionTreeRegressor(max_bins=5)
    with pytest.raises(ValueError, match="Invalid parameter 'depth' for estimator DecisionTreeRegressor. Did you mean 'max_depth'"):
        dtrees.DecisionTreeRegressor().set_params(depth=3)
    with pytest.raises(ValueError, match="Invalid parameter 'estimator__eta'|Did you mean 'learning_rate'"):
        dtrees.BaggingRegressor(BOOSTING()).set_params(estimator__eta=0.1)
    with pytest.raises(TypeError, match="GradientBoostingRegressor has no parameter 'num_leaves'. Did you mean 'max_leaf_nodes'"):
        BOOSTING(num_leaves=31)
    with pytest.raises(TypeError, match="BaggingRegressor has no parameter 'seed'. Did you mean 'random_state'"):
        dtrees.BaggingRegressor(seed=3)


def test_classes_of_users_have_parameters_of_their_own():
    class Shallow(dtrees.DecisionTreeRegressor):
        def __init__(self, levels=2, **others):
            super().__init__(max_depth=levels, **others)
            self.levels = levels

    assert Shallow(levels=3, min_samples_leaf=2).max_depth == 3
    assert copy.copy(Shallow(3)).levels == 3


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (BOOSTING, {}, "GradientBoostingRegressor.fit.. missing a required argument: 'y'"),
        (BOOSTING, {"y": Y, "early_stopping_rounds": 3}, "keyword argument 'early_stopping_rounds'; it is a parameter of Gradient"),
        (BOOSTING, {"y": Y, "eval_sets": []}, "Boosting.*fit.. got an unexpected keyword argument 'eval_sets'. Did you mean 'eval_set'"),
        (TREE, {"y": Y, "check_input": True}, "DecisionTreeRegressor.fit.. got .* 'check_input'. There are: sample_weight, callbacks"),
    ],
)
def test_unknown_options_of_fit(kind, options, message):
    with pytest.raises(TypeError, match=message):
        kind().fit(X, **options)


NUMBERED, SETS = X.astype(int), {"eval_set": [(X, Y)]}


@pytest.mark.parametrize(
    ("kind", "parameters", "options", "names"),
    [
        (FOREST, {}, {"callbacks": [dtrees.EarlyStopping(3)]}, "callbacks .* EarlyStopping is for boosting"),
        (BOOSTING, {"early_stopping_rounds": 3}, {}, "early_stopping_rounds=3 .* eval_set is None"),
        (BOOSTING, {"early_stopping_rounds": 3}, SETS | {"callbacks": [dtrees.EarlyStopping(3)]}, "early_stopping_rounds or in callbacks"),
        (BOOSTING, {"loss": "huber", "eval_metric": "loss"}, SETS, "eval_metric has 'loss', but loss='huber'"),
        (BOOSTING, {"init": "zero"}, {"base_margin": Y}, "base_margin is given, and init is 'zero'"),
        (BOOSTING, {}, SETS | {"base_margin": Y}, "eval_set .* no base_margin"),
        (BOOSTING, {}, {"checkpoint_interval": 5}, "checkpoint_interval=5 .* checkpoint is None"),
        (FOREST, {}, {"checkpoint_interval": 5}, "checkpoint_interval=5 .* checkpoint is None"),
    ],
)  # fmt: skip
def test_contradictions_name_both(kind, parameters, options, names):
    """Contradictions of two parameters are in test_pairs_of_parameters.py."""
    with pytest.raises((ValueError, TypeError), match=names):
        kind(**parameters).fit(**{"X": NUMBERED, "y": Y} | options)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"alpha": 0.5}, "alpha=0.5 .* loss='huber' or loss='quantile', but loss is 'squared_error'"),
        ({"tweedie_variance_power": 1.2}, "tweedie_variance_power=1.2 .* loss='tweedie', but loss is 'squared_error'"),
        ({"validation_fraction": 0.2}, "validation_fraction=0.2 .* n_iter_no_change is None"),
        ({"tol": 0.0}, "tol=0.0 .* n_iter_no_change is None"),
    ],
)
def test_what_has_no_effect_names_what_it_wants(parameters, names):
    with pytest.warns(UserWarning, match=names):
        BOOSTING(n_estimators=1, min_child_weight=0.1, **parameters).fit(X, Y)


def test_class_weights():
    with pytest.raises(ValueError, match=r"class_weight has \[7\], but the classes are \[0(\.0)?, 1(\.0)?\]; wants factors of these"):
        dtrees.DecisionTreeClassifier(class_weight={0: 1.0, 7: 2.0}).fit(X, Y)
    with pytest.raises(ValueError, match=r"class_weight has \['yes'\], but the classes are \[False, True\]"):
        dtrees.DecisionTreeClassifier(class_weight={"yes": 2.0}).fit(X, Y == 1)
    with pytest.raises(ValueError, match="class_weight is .* wants finite factors of at least 0"):
        dtrees.DecisionTreeClassifier(class_weight={0: 1.0, 1: -2.0}).fit(X, Y)
    for kind in (dtrees.DecisionTreeClassifier, dtrees.RandomForestClassifier, dtrees.GradientBoostingClassifier):
        with pytest.raises(ValueError, match="class_weight is .*, which leaves no row with a weight above 0"):
            kind(class_weight={0: 0.0, 1: 0.0}).fit(X, Y)
    with pytest.raises(ValueError, match=r"class_weight is .*, which leaves no row"):
        dtrees.DecisionTreeClassifier(class_weight={0: 0.0, 1: 1.0}).fit(X, Y, sample_weight=1 - Y)
    with pytest.raises(ValueError, match=r"y contains 1 class\(es\) with a weight above zero"):
        dtrees.GradientBoostingClassifier(class_weight={0: 0.0, 1: 1.0}).fit(X, Y)


def test_rows_to_hold_out():
    """The remaining training rows must include every class; if no row can be held out, the error says so."""
    model = dtrees.GradientBoostingRegressor(n_estimators=3, n_iter_no_change=2)
    for rows, weight in ((1, None), (6, np.arange(6) == 3)):
        with pytest.raises(
            ValueError, match=f"n_iter_no_change=2 holds out some rows, but never the last one .* of {rows} rows none can be"
        ):
            model.fit(X[:rows], Y[:rows], sample_weight=weight)
    for weight in (None, np.arange(6) < 2):
        model.fit(X, Y, sample_weight=weight)
        assert np.isfinite([*model.train_score_, *model.validation_score_, *model.predict(X)]).all()
    classifier = dtrees.GradientBoostingClassifier(n_estimators=3, n_iter_no_change=2, validation_fraction=0.9, min_child_weight=0.1)
    with pytest.raises(ValueError, match="holds out some rows of each class"):
        classifier.fit(X[:2], Y[:2])
    classifier.fit(X[:4], Y[:4])
    assert np.isfinite([classifier.train_score_, classifier.validation_score_]).all()


@every
def test_callbacks(estimator):
    for callbacks in (print, None, ["print"], {print}):
        with pytest.raises(TypeError, match="callbacks is .* wants a sequence of functions"):
            estimator.fit(X, Y, callbacks=callbacks)


@every
def test_before_fit(estimator):
    fresh = type(estimator)()
    methods = ["predict", "apply", "predict_proba", "predict_log_proba", "decision_function", "decision_path"]
    for method in [method for method in methods if hasattr(fresh, method)]:
        with pytest.raises(NotFittedError):
            getattr(fresh, method)(X)
    for attribute in ("estimators_", "tree_", "feature_importances_"):
        assert not hasattr(fresh, attribute)


@every
def test_prediction(estimator):
    estimator.fit(X, Y)
    with pytest.raises(ValueError, match="X has 3 features, but .* is expecting 2 features"):
        estimator.predict(np.ones((1, 3)))
    with pytest.raises(ValueError, match="X has no rows"):
        estimator.predict(np.empty((0, 2)))
    with pytest.raises(ValueError, match="Expected 2D array"):
        estimator.predict(np.ones(2))


@every
def test_names_of_columns(estimator):
    """scikit-learn's rules: names must be the same and in the same order, and names on one side only give a warning."""
    frame = pd.DataFrame(X, columns=["a", "b"])
    estimator.fit(frame, Y)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        estimator.predict(frame[["b", "a"]])
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing:\n- b"):
        estimator.predict(frame[["a"]])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        estimator.predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.predict(pl.DataFrame(frame.to_dict("list")))
        estimator.predict(pl.DataFrame(frame.to_dict("list")).to_arrow())
        assert estimator.fit(pl.DataFrame(frame.to_dict("list")).to_arrow(), Y).feature_names_in_.tolist() == ["a", "b"]
    estimator.fit(X, Y)
    assert not hasattr(estimator, "feature_names_in_")
    with pytest.warns(UserWarning, match="X has feature names, but"):
        estimator.predict(frame)
    with pytest.raises(TypeError, match="Feature names are only supported if all input features have string names"):
        estimator.fit(pd.DataFrame(X, columns=["a", 1]), Y)


@every
def test_names_that_come_twice(estimator):
    twice = pd.DataFrame(X, columns=["a", "a"])
    with pytest.raises(ValueError, match="X has more than one column of the name 'a'; wants a different name for each"):
        estimator.fit(twice, Y)
    estimator.fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    with pytest.raises(ValueError, match="X has more than one column of the name 'a'"):
        estimator.predict(twice)


@every
def test_a_column_of_targets_is_flattened_with_a_warning(estimator):
    with pytest.warns(DataConversionWarning):
        estimator.fit(X, Y[:, np.newaxis])


def test_a_failed_fit_leaves_no_half_fitted_estimator():
    model = dtrees.RandomForestRegressor(n_estimators=2)
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(X, np.full(6, np.nan))
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("criterion", slow_for(KERNELS_OF_THEIR_OWN, ["squared_error", "absolute_error"]))
@pytest.mark.parametrize("sign", [1, -1])
def test_targets_whose_squares_are_beyond_floating_point(criterion, sign):
    model = dtrees.DecisionTreeRegressor(criterion=criterion)
    with pytest.raises(ValueError, match=r"y contains -?1.1e\+148; wants numbers within \+-1e\+148"):
        model.fit(X, np.where(Y > 0, sign * 1.1e148, 0.0))
    model.fit(X, np.where(Y > 0, sign * 1e148, 0.0))
    assert np.isfinite(model.tree_.impurity).all()
    assert set(model.predict(X)) == {0.0, sign * 1e148}
