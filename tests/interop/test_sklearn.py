"""Conversion to scikit-learn and back, with equal predictions."""

import numpy as np
import pytest
import sklearn.ensemble
import sklearn.tree
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import dtrees
from dtrees import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestRegressor,
    from_sklearn,
    to_numbers,
    to_sklearn,
)
from dtrees.ensemble.compat import SKLEARN_VERSION
from dtrees.interop.scikit_learn import LEAST_SHARE
from tests.ensemble.samples import SLOW_KINDS
from tests.interop.cases import BAGS, BOOSTING, FULL, LABELS, PEOPLE, SIGNAL, TARGETS, TREES, TWO, WAGE, Case, X, parametrized, predictions
from tests.slow import slow_for

#: Criteria that this version of scikit-learn lacks or deprecates.
NOT_THERE = {"quantile", "friedman_mse"} if SKLEARN_VERSION >= (1, 9) else {"quantile"}
THEIRS = ("squared_error", "absolute_error", "huber", "quantile", "log_loss", "exponential")


@parametrized(TREES)
def test_trees_go_there_and_back(case: Case) -> None:
    model = case.fit()
    theirs = to_sklearn(model)
    assert type(theirs).__module__.startswith("sklearn.")
    assert type(theirs).__name__ == case.name
    assert_array_equal(predictions(theirs, X), predictions(model, X))
    assert_array_equal(theirs.predict(X), model.predict(X))
    assert_allclose(theirs.feature_importances_, model.feature_importances_, atol=1e-12)
    back = from_sklearn(theirs)
    assert type(back) is type(model)
    assert_array_equal(predictions(back, X), predictions(model, X))
    assert back.criterion == ("squared_error" if case.parameters["criterion"] in NOT_THERE else model.criterion)


@parametrized([case for case in BOOSTING if case.parameters.get("loss") in THEIRS and case.target != "several"])
def test_boosting_goes_there_and_back(case: Case) -> None:
    model = case.fit(FULL)
    theirs = to_sklearn(model)
    assert_allclose(predictions(theirs, FULL), predictions(model, FULL), rtol=1e-12)
    n_stages = model.n_estimators_ * model.n_parallel_trees
    assert (theirs.loss, theirs.learning_rate, theirs.n_estimators_) == (model.loss, model.learning_rate, n_stages)
    back = from_sklearn(theirs)
    assert_allclose(predictions(back, FULL), predictions(model, FULL), rtol=1e-12)
    assert (theirs.learning_rate, theirs.min_samples_leaf) == (model.learning_rate_, model.min_samples_leaf_)
    if "log_loss" in case.id and case.target == "two":
        assert_allclose(theirs.decision_function(FULL), model.decision_function(FULL), rtol=1e-12)


@parametrized([*BAGS[:2], Case("BaggingClassifier", {"n_estimators": 2}, "two"), Case("BaggingClassifier", {"n_estimators": 2}, "three")])
def test_bags_go_there(case: Case) -> None:
    model = case.fit(FULL)
    theirs = to_sklearn(model)
    assert type(theirs).__module__ == "sklearn.ensemble._bagging"
    assert_allclose(predictions(theirs, FULL), predictions(model, FULL), rtol=1e-12)
    assert_array_equal(theirs.predict(FULL) if case.target else 0, model.predict(FULL) if case.target else 0)
    assert (len(theirs.estimators_), theirs.max_samples) == (len(model.estimators_), 1.0)


@pytest.mark.parametrize("name", slow_for({kind.__name__ for kind in SLOW_KINDS}, sorted({case.name for case in TREES})))
@pytest.mark.parametrize("leaves", [None, 12])
def test_scikit_learns_own_come_and_round_as_there(name: str, leaves: int | None, tmp_path) -> None:
    """Also for values that are next to a threshold once they are float32."""
    kind = getattr(sklearn.tree, name, None) or getattr(sklearn.ensemble, name)
    theirs = kind(random_state=0, max_leaf_nodes=leaves).fit(X, LABELS if name.endswith("Classifier") else SIGNAL)
    model = from_sklearn(theirs)
    tree = np.ravel(getattr(theirs, "estimators_", [theirs]))[0].tree_
    near = np.repeat(FULL[:1], 3 * tree.node_count, axis=0)
    for j in range(5):
        thresholds = np.float32(np.where((tree.feature == j) & np.isfinite(tree.threshold), tree.threshold, 0.0))
        middles = (thresholds.astype(float) + np.nextafter(thresholds, np.float32(np.inf))) / 2
        near[:, j] = np.concatenate([middles, np.nextafter(middles, -np.inf), np.nextafter(middles, np.inf)])
    for table in (X, near):
        assert_array_equal(predictions(model, table), predictions(theirs, table))
        assert_array_equal(model.predict(table), theirs.predict(table))
    assert_allclose(model.feature_importances_, theirs.feature_importances_, atol=1e-12)
    dtrees.save(model, tmp_path / "model")
    assert_array_equal(dtrees.load(tmp_path / "model").predict(X), theirs.predict(X))


@pytest.mark.parametrize(
    ("target", "parameters"),
    [
        *(("", one) for one in ({}, {"init": "zero"}, {"init": DummyRegressor(strategy="median")}, {"loss": "huber", "subsample": 0.5})),
        *(("two", {"loss": loss}) for loss in ("log_loss", "exponential")),
        ("three", {}),
    ],
)
def test_scikit_learns_boosting_comes(target, parameters) -> None:
    kind = sklearn.ensemble.GradientBoostingClassifier if target else sklearn.ensemble.GradientBoostingRegressor
    theirs = kind(n_estimators=10, random_state=0, **parameters).fit(FULL, TARGETS[target])
    model = from_sklearn(theirs)
    assert_allclose(predictions(model, FULL), predictions(theirs, FULL), rtol=1e-12)
    if target:
        assert_allclose(model.decision_function(FULL), theirs.decision_function(FULL), rtol=1e-11)
        assert_array_equal(model.predict(FULL), theirs.predict(FULL))
    else:
        assert_allclose(to_sklearn(model).predict(FULL), theirs.predict(FULL), rtol=1e-12)


def test_values_that_float32_rounds_past_a_threshold() -> None:
    """Thresholds are moved for the rows that are given."""
    step = 2.0**-25
    x = 1.0 + step * np.array([1.2, 4.0, 1.9, 6.0, 2.1])  # floats of 32 bits are 4 steps apart here
    x = np.concatenate([x, 1.0 + step * np.array([-3.0, 9.0])])[:, np.newaxis]
    y = np.argsort(np.argsort(x[:, 0])).astype(float)
    tree = DecisionTreeRegressor(max_leaf_nodes=3).fit(x[[5, 0, 1, 6]], y[[5, 0, 1, 6]])
    rows = x[[5, 0, 1, 6]]
    assert_array_equal(to_sklearn(tree, rows).predict(rows), tree.predict(rows))
    with pytest.raises(ValueError, match="column 0 has the values .* rounds both to the float32 1.0; .*dtrees.to_onnx"):
        to_sklearn(DecisionTreeRegressor().fit(x, y), x)


@pytest.mark.parametrize("kind", ["DecisionTreeRegressor", "ExtraTreesRegressor"])
def test_random_values_close_together_survive_or_are_refused(kind: str) -> None:
    """For as many values as float32 has in a small range, with or without collisions."""
    outcomes = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = 1.0 + rng.choice(2000, size=(60, 2), replace=True) * 2.0**-29
        model = getattr(dtrees, kind)(random_state=0, **({"n_estimators": 3} if kind.startswith("Extra") else {})).fit(
            x, rng.normal(size=60)
        )
        keep = np.array([len(set(x.astype(np.float32)[:, j])) for j in range(2)])
        try:
            theirs = to_sklearn(model, x)
        except ValueError as error:
            assert "both to the float32" in str(error)
            assert keep.min() < 60
            outcomes.append("refused")
        else:
            assert_array_equal(theirs.predict(x), model.predict(x))
            outcomes.append("equal")
        spread = 1.0 + rng.permutation(1000)[:60, np.newaxis] * 2.0**-23 + rng.uniform(-0.49, 0.49, (60, 1)) * 2.0**-23
        model = getattr(dtrees, kind)(random_state=0).fit(spread, rng.normal(size=60))
        assert_array_equal(to_sklearn(model, spread).predict(spread), model.predict(spread))
    assert "refused" in outcomes


@pytest.mark.slow  # kernels of its own
def test_frames_keep_their_names_and_categories_by_order_their_numbers() -> None:
    model = DecisionTreeRegressor(criterion="absolute_error").fit(PEOPLE, WAGE)
    theirs = to_sklearn(model)
    assert theirs.feature_names_in_.tolist() == ["job", "age", "town"]
    numbers = to_numbers(model, PEOPLE)
    assert_array_equal(theirs.set_params().predict(PEOPLE.assign(**dict(zip(PEOPLE, numbers.T, strict=True)))), model.predict(PEOPLE))
    assert from_sklearn(theirs).feature_names_in_.tolist() == ["job", "age", "town"]


def test_what_scikit_learn_cannot_carry_is_refused() -> None:
    with pytest.raises(
        ValueError, match="column 'job' is split by sets of categories, which scikit-learn cannot carry; use dtrees.to_onnx"
    ):
        to_sklearn(DecisionTreeRegressor().fit(PEOPLE, WAGE))
    with pytest.raises(ValueError, match="loss='poisson' does not exist in scikit-learn's"):
        to_sklearn(GradientBoostingRegressor(loss="poisson", n_estimators=2).fit(FULL, np.exp(SIGNAL)))
    with pytest.raises(ValueError, match="2 targets"):
        to_sklearn(GradientBoostingRegressor(n_estimators=2).fit(FULL, TARGETS["several"]))
    one = np.where(np.isnan(X[:, :1]), np.nan, 1.0)
    with pytest.raises(ValueError, match="column 0 is split by whether its value is missing"):
        to_sklearn(GradientBoostingRegressor(n_estimators=2).fit(one, SIGNAL))
    with pytest.raises(ValueError, match=r"starts from an estimator \(init=LinearRegression\)"):
        to_sklearn(GradientBoostingRegressor(n_estimators=2, init=LinearRegression()).fit(FULL, SIGNAL))
    with pytest.raises(ValueError, match="was fitted with base_margin"):
        to_sklearn(GradientBoostingRegressor(n_estimators=2).fit(FULL, SIGNAL, base_margin=SIGNAL))
    with pytest.raises(TypeError, match="model is of type Pipeline|model is of type int"):
        to_sklearn(3)
    with pytest.raises(NotFittedError):
        to_sklearn(DecisionTreeRegressor())


def test_what_dtrees_cannot_carry_is_refused() -> None:
    with pytest.raises(TypeError, match="HistGradientBoostingRegressor, which keeps its trees in private attributes"):
        from_sklearn(sklearn.ensemble.HistGradientBoostingRegressor())
    with pytest.raises(TypeError, match="is a DecisionTreeClassifier of dtrees already"):
        from_sklearn(DecisionTreeClassifier().fit(X, TWO))
    with pytest.raises(TypeError, match=r"LinearRegression; wants a fitted one of scikit-learn's"):
        from_sklearn(LinearRegression().fit(FULL, SIGNAL))
    with pytest.raises(ValueError, match="2 targets with classes of their own"):
        from_sklearn(sklearn.tree.DecisionTreeClassifier().fit(X, np.column_stack([LABELS, TWO])))
    with pytest.raises(ValueError, match="init=LinearRegression, whose predictions differ from row to row"):
        from_sklearn(sklearn.ensemble.GradientBoostingRegressor(init=LinearRegression(), n_estimators=2).fit(FULL, SIGNAL))
    with pytest.raises(NotFittedError):
        from_sklearn(sklearn.tree.DecisionTreeRegressor())


def test_parameters_that_both_have_are_kept() -> None:
    model = RandomForestRegressor(7, max_depth=3, min_samples_leaf=4, max_features=0.5, random_state=3, bootstrap=True).fit(X, SIGNAL)
    theirs = to_sklearn(model)
    wanted = {"n_estimators": 7, "max_depth": 3, "min_samples_leaf": 4, "max_features": 0.5, "random_state": 3, "bootstrap": True}
    assert wanted.items() <= theirs.get_params().items()
    assert theirs.estimators_[0].min_samples_leaf == 4
    assert wanted.items() <= from_sklearn(theirs).get_params().items()
    assert not np.isnan(sklearn.base.clone(theirs).fit(X, SIGNAL).predict(X)).any()


@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_a_rate_of_zero_and_rare_classes() -> None:
    model = GradientBoostingRegressor(n_estimators=2, learning_rate=0.0).fit(FULL, SIGNAL)
    assert_allclose(to_sklearn(model).predict(FULL), model.predict(FULL))
    weight = np.where(TWO == "yes", 1.0, 1e-9)
    model = GradientBoostingClassifier(n_estimators=3).fit(FULL, TWO, weight)
    theirs = to_sklearn(model)
    assert_allclose(theirs.predict_proba(FULL), model.predict_proba(FULL), atol=1.1 * LEAST_SHARE)
    assert_allclose(from_sklearn(theirs).predict_proba(FULL), theirs.predict_proba(FULL), atol=1e-15)


@pytest.mark.parametrize("name", ["DecisionTreeRegressor", "RandomForestRegressor"])
def test_scikit_learns_trees_of_several_targets_come_and_go_back(name: str) -> None:
    kind = getattr(sklearn.tree, name, None) or getattr(sklearn.ensemble, name)
    theirs = kind(random_state=0).fit(X, TARGETS["several"])
    model = from_sklearn(theirs)
    assert model.n_outputs_ == 2
    assert_array_equal(model.predict(X), theirs.predict(X))
    assert_array_equal(to_sklearn(model).predict(X), theirs.predict(X))
