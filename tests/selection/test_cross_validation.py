"""Folds of one presorted table, compared with estimators fitted to the rows of each fold, and with scikit-learn's function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn import model_selection
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline

import dtrees
from dtrees.ensemble.compat import safe_indexing
from dtrees.selection.curves import Curve
from dtrees.selection.folds import PresortedTable
from tests import random_cases
from tests.cases import CASES, HELD_OUT, HELD_OUT_TARGETS, SLOW, TARGETS, TRAIN, WEIGHTS, found
from tests.cluster.samples import numbers
from tests.slow import slow_for

RNG = np.random.default_rng(0)
N = 240
FRAME = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.integers(0, 9, N), "word": RNG.choice(["ash", "elm", "fir"], N)})
SIGNAL = FRAME["a"] + FRAME["b"] / 3 + (FRAME["word"] == "elm") + RNG.normal(size=N) / 2
WEIGHT = RNG.integers(0, 4, N) / 2.0
BOOSTER = dtrees.GradientBoostingRegressor(n_estimators=6, max_depth=3, random_state=0)
FOREST = dtrees.RandomForestRegressor(4, max_depth=5, random_state=0)
CLASSES = dtrees.GradientBoostingClassifier(n_estimators=4, max_depth=3, random_state=0)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Some inputs do not have OOB scores",
    "ignore:X column .* holds",
    "ignore:The least populated class",
    "ignore:no tree found",
    "ignore:The groups parameter",
)


def state(model: Any) -> tuple[str, list[tuple[str, str, bytes]]]:
    """Return the content of a model file, except the results of evaluation sets."""
    vars(model).pop("evals_result_", None)
    metadata, arrays = model._to_state()
    return repr(metadata), [(name, array.dtype.str, array.tobytes()) for name, array in arrays.items()]


def assert_equals_fits_to_rows(estimator: Any, X: Any, y: Any, weight: Any = None, cv: Any = 3, **options: Any) -> Any:
    """Compare the model of each fold with the one fitted to its rows alone; return the results."""
    result = dtrees.cross_validate(estimator, X, y, cv=cv, sample_weight=weight, return_estimator=True, return_indices=True, **options)
    for model, train in zip(result["estimator"], result["indices"]["train"], strict=True):
        own = [None if one is None else safe_indexing(one, train) for one in (X, y, weight)]
        assert state(model) == state(clone(estimator).fit(*own))
    return result


# --- models ---


@pytest.mark.parametrize("name", slow_for(SLOW, [name for name, case in CASES.items() if not case.before]))
def test_each_case_is_fitted_to_rows_as_to_a_table_of_them(name: str) -> None:
    case, rows = CASES[name], np.flatnonzero(np.arange(len(TRAIN)) % 5 != 3)
    X, y = (numbers(TRAIN), TARGETS[case.task].to_numpy()) if case.array else (TRAIN, TARGETS[case.task])
    options: dict[str, Any] = {"callbacks": list(case.callbacks)} if case.callbacks else {}
    if case.evaluated:
        held_out = HELD_OUT_TARGETS[case.task]
        given = (numbers(HELD_OUT), held_out.to_numpy()) if case.array else (HELD_OUT, held_out)
        options["eval_set"] = {"plain": given, "weighted": given}
    if case.scored:
        options["base_margin"] = np.sin(rows)
    others = [safe_indexing(y, rows), WEIGHTS.to_numpy()[rows] if case.weighted else None]
    ours = case.make().fit(PresortedTable(X, None).rows(rows), *others, **options)
    assert found(ours) == found(case.make().fit(safe_indexing(X, rows), *others, **options))


@pytest.mark.parametrize("number", range(40))
@pytest.mark.filterwarnings("ignore")
def test_random_cases(number: int) -> None:
    """Columns of all kinds, labels that folds lack, categories and missing values that only held-out rows have, few rows."""
    case = random_cases.draw(7, number, few_kernels=True)
    X, y, weight = case.data()
    n, estimator = len(X), case.estimator()
    splits = model_selection.KFold(3, shuffle=True, random_state=number).split(X) if n > 2 else [(np.arange(n), np.arange(n))]
    table = PresortedTable(X, None)
    for train, _ in splits:
        own = [None if one is None else safe_indexing(one, train) for one in (X, y, weight)]
        try:
            wanted = clone(estimator).fit(*own)
        except ValueError as error:  # for example with a single class
            with pytest.raises(ValueError, match=r".") as raised:
                clone(estimator).fit(table.rows(train), *own[1:])
            assert str(raised.value) == str(error)
        else:
            assert state(clone(estimator).fit(table.rows(train), *own[1:])) == state(wanted)


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (BOOSTER, SIGNAL),
        (BOOSTER.__class__(n_estimators=5, subsample=0.6, max_features=0.5, n_iter_no_change=2, random_state=1), SIGNAL),
        (CLASSES, np.digitize(SIGNAL, [1.0, 2.0])),
        (clone(CLASSES).set_params(class_weight="balanced"), SIGNAL > 1.5),
        (FOREST, SIGNAL),
        (dtrees.ExtraTreesClassifier(4, class_weight="balanced", bootstrap=True, random_state=2), np.digitize(SIGNAL, [1.0, 2.0])),
        (dtrees.DecisionTreeRegressor(min_samples_leaf=0.02), np.column_stack([SIGNAL, -SIGNAL])),
        (dtrees.BaggingRegressor(BOOSTER, 2, random_state=3), SIGNAL),
    ],
    ids=["booster", "draws", "classes", "balanced", "forest", "extra trees", "tree", "bag"],
)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weights"])
def test_models_of_folds(estimator: Any, y: Any, weight: Any) -> None:
    assert_equals_fits_to_rows(estimator, FRAME, y, weight)


def test_what_only_held_out_rows_have() -> None:
    """A category, a missing value, a class, a value between two others do not change the model; the category counts as unseen."""
    X, first = FRAME.copy(), np.arange(N) < N // 3
    X["word"], X["gaps"], X["level"] = np.where(first, "yew", X["word"]), np.where(first, np.nan, X["a"]), X["word"].astype("category")
    X["never"] = np.where(first, X["b"], np.nan)
    y = np.where(first, 7, np.digitize(SIGNAL, [1.5]))
    cv = [(np.flatnonzero(~first), np.flatnonzero(first)), (np.flatnonzero(np.arange(N) % 2), np.arange(0, N, 2))]
    result = assert_equals_fits_to_rows(CLASSES, X, y, cv=cv)
    model = result["estimator"][0]
    assert model.classes_.tolist() == [0, 1]
    assert model._schema.columns[2].categories == ("ash", "elm", "fir")
    assert_array_equal(model.predict_proba(X), model.predict_proba(X.assign(word=X["word"].where(~first, None))))
    assert result["test_score"][0] == 0.0  # no row has a label of the model
    assert np.isnan(result.curves["logloss"].by_fold).all(axis=1).tolist() == [True, False]
    assert_array_equal(result.curves["logloss"].mean, result.curves["logloss"].by_fold[1])


def test_columns_whose_dtype_follows_from_the_rows() -> None:
    """Integers with missing values become floats, numbers are categories, and an ordered dtype keeps its order."""
    level = pl.Series(RNG.choice(["low", "middle", "top"], N)).cast(pl.Enum(["top", "middle", "low", "none"]))
    small = [None if i == 5 else int(i % 50) for i in range(N)]
    X = pl.DataFrame({"small": pl.Series(small, dtype=pl.Int8), "level": level, "a": FRAME["a"].to_numpy(), "id": RNG.integers(0, 20, N)})
    for estimator in (BOOSTER, clone(BOOSTER).set_params(categorical_features=["id", "small", "from_dtype"])):
        assert_equals_fits_to_rows(estimator, X, SIGNAL.to_numpy())


def test_infinity_and_the_largest_number_are_two_categories() -> None:
    X = RNG.choice([1.0, 2.0, np.finfo(np.float64).max, np.inf, np.nan], (N, 2))
    assert_equals_fits_to_rows(clone(BOOSTER).set_params(categorical_features=[1]), X, SIGNAL)


def test_what_boosting_starts_from_is_fitted_to_the_rows_too() -> None:
    estimator = clone(BOOSTER).set_params(init=DummyRegressor(strategy="median"))
    ours, theirs = (function(estimator, FRAME, SIGNAL, cv=3, return_estimator=True) for function in FUNCTIONS)
    for one, other in zip(ours["estimator"], theirs["estimator"], strict=True):
        assert_array_equal(one.predict(FRAME), other.predict(FRAME))


def test_sparse_tables_and_other_orders_of_rows() -> None:
    X = csr_array(np.where(RNG.random((N, 3)) < 0.7, 0.0, RNG.normal(size=(N, 3)).round(1)))
    cv = [(RNG.permutation(N)[:200], np.arange(40)), (RNG.integers(0, N, 300), np.arange(N) < 9)]  # repeated rows; a mask
    for table in (X, X.tocsc(), X.toarray(), np.asfortranarray(X.toarray()), X.toarray().tolist()):
        assert_equals_fits_to_rows(FOREST, table, SIGNAL.to_numpy(), cv=cv)


def test_threads_make_no_difference() -> None:
    one, four = (
        assert_equals_fits_to_rows(clone(BOOSTER).set_params(n_jobs=n), FRAME, SIGNAL, n_jobs=n, cv=4, scoring=["r2"]) for n in (1, 4)
    )
    assert_array_equal(one["test_r2"], four["test_r2"])
    assert_array_equal(one.curves["rmse"].by_fold, four.curves["rmse"].by_fold)


# --- results ---


@pytest.mark.parametrize(
    ("scoring", "cv"),
    [
        (None, 3),
        ("neg_mean_squared_error", model_selection.ShuffleSplit(4, random_state=0)),
        (["r2", "neg_median_absolute_error"], model_selection.GroupKFold(3)),
        ({"mine": make_scorer(mean_absolute_error), "r2": "r2"}, model_selection.LeaveOneGroupOut()),
        (lambda model, X, y: {"n": len(y), "mean": model.predict(X).mean()}, None),
        (lambda model, X, y: float(model.predict(X).max()), model_selection.RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)),
    ],
)
def test_results_are_those_of_sklearn(scoring: Any, cv: Any) -> None:
    options: dict[str, Any] = {"cv": cv, "scoring": scoring, "groups": np.arange(N) % 4, "return_train_score": True, "return_indices": True}
    ours = dtrees.cross_validate(BOOSTER, FRAME, SIGNAL, **options)
    theirs = model_selection.cross_validate(BOOSTER, FRAME, SIGNAL, **options)
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        if name == "indices":
            for kind in ("train", "test"):
                assert all(map(np.array_equal, values[kind], ours[name][kind]))
        elif name.endswith("_time"):
            assert ours[name].shape == values.shape
            assert ours[name].min() > 0.0
        else:
            assert_array_equal(ours[name], values)
    assert len(pd.DataFrame(dict(dtrees.cross_validate(BOOSTER, FRAME, SIGNAL, cv=3)))) == 3


def test_folds_of_a_classifier_are_stratified() -> None:
    y = np.where(np.arange(N) < 30, "rare", "usual")
    ours, theirs = (function(CLASSES, FRAME, y, scoring=["accuracy", "neg_log_loss"]) for function in FUNCTIONS)
    assert_array_equal(ours["test_neg_log_loss"], theirs["test_neg_log_loss"])


FUNCTIONS = dtrees.cross_validate, model_selection.cross_validate


def test_weights_count_in_scores() -> None:
    result = dtrees.cross_validate(FOREST, FRAME, SIGNAL, cv=3, sample_weight=WEIGHT, return_estimator=True, return_indices=True)
    for model, test, score in zip(result["estimator"], result["indices"]["test"], result["test_score"], strict=True):
        assert model.score(FRAME.iloc[test], SIGNAL.iloc[test], WEIGHT[test]) == score
    some = WEIGHT > 0
    assert_array_equal(
        dtrees.cross_validate(FOREST, FRAME, SIGNAL, cv=[(np.flatnonzero(some), np.arange(N))], sample_weight=some)["test_score"],
        dtrees.cross_validate(FOREST, FRAME, SIGNAL, cv=[(np.flatnonzero(some), np.flatnonzero(some))])["test_score"],
    )


# --- curves ---


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weights"])
def test_curves_are_those_of_evaluation_sets(weight: Any) -> None:
    estimator = clone(BOOSTER).set_params(eval_metric=["mae", "r2", "rmse"], learning_rate=1.0, n_estimators=20)
    estimator.set_params(min_samples_leaf=20, min_samples_category=3)
    result = dtrees.cross_validate(estimator, FRAME, SIGNAL, sample_weight=weight, return_indices=True)
    for k, (train, test) in enumerate(zip(*result["indices"].values(), strict=True)):
        own, held_out = ([FRAME.iloc[rows], SIGNAL.iloc[rows], *([] if weight is None else [weight[rows]])] for rows in (train, test))
        model = clone(estimator).fit(*own, eval_set=[tuple(held_out)])
        for name, values in model.evals_result_["validation_0"].items():
            assert_array_equal(result.curves[name].by_fold[k], values)
    mean = np.mean(result.curves["rmse"].by_fold, axis=0)
    assert result.best_n_estimators == mean.argmin() + 1 < 20
    assert result.curves["rmse"].best_score == mean.min()
    assert_array_equal(result.curves["r2"].std, np.std(result.curves["r2"].by_fold, axis=0))
    assert result.curves["r2"].best_n_estimators == result.curves["r2"].mean.argmax() + 1


def test_early_stopping_is_by_held_out_rows() -> None:
    estimator = clone(BOOSTER).set_params(early_stopping_rounds=3, learning_rate=0.8, n_estimators=100)
    for curves in (True, False):
        result = dtrees.cross_validate(estimator, FRAME, SIGNAL, cv=3, return_estimator=True, return_curves=curves)
        assert [model.n_estimators_ - 1 for model in result["estimator"]] == [model.best_iteration_ for model in result["estimator"]]
        assert max(model.n_estimators_ for model in result["estimator"]) < 90
    assert not result.curves
    curve = dtrees.cross_validate(estimator, FRAME, SIGNAL, cv=3).curves["rmse"]
    lengths = np.sum(~np.isnan(curve.by_fold), axis=1)
    assert lengths.tolist() == [model.n_estimators_ + 3 for model in result["estimator"]]
    assert np.sum(~np.isnan(curve.mean)) == lengths.min() < lengths.max() == curve.by_fold.shape[1]


def test_curves_there_are_none_of() -> None:
    assert dtrees.cross_validate(FOREST, FRAME, SIGNAL, cv=2).curves == {}
    result = dtrees.cross_validate(BOOSTER, FRAME, SIGNAL, cv=2, return_curves=False)
    with pytest.raises(ValueError, match="no curves; wants a boosting estimator, and return_curves=True"):
        result.best_n_estimators  # noqa: B018


def test_metrics_that_cannot_decide() -> None:
    def spread(y: Any, predicted: Any, weight: Any) -> float:
        return float(np.ptp(predicted))

    result = dtrees.cross_validate(clone(BOOSTER).set_params(eval_metric=["rmse", spread]), FRAME, SIGNAL, cv=2)
    assert result.curves["rmse"].best_n_estimators > 0
    with pytest.raises(ValueError, match="'spread' does not say what is better"):
        result.best_n_estimators  # noqa: B018
    with pytest.raises(ValueError, match="'auc' is NaN after each round"):
        Curve("auc", np.full((2, 3), np.nan), greater_is_better=True).best_score  # noqa: B018


# --- refusals ---


@pytest.mark.parametrize(
    ("estimator", "X", "error", "match"),
    [
        (LinearRegression(), FRAME, TypeError, "LinearRegression.*wants an estimator of dtrees"),
        (make_pipeline(BOOSTER), FRAME, TypeError, "(?s)Pipeline.*sklearn.model_selection"),
        (BOOSTER, FRAME[:5], ValueError, "X has 5 rows but y has 240"),
        (CLASSES, FRAME, ValueError, "Unknown label type"),
        (dtrees.GradientBoostingRanker(), FRAME, ValueError, "qid is None; a GradientBoostingRanker wants the query of each row"),
        (clone(BOOSTER).set_params(n_estimators=-1), FRAME, ValueError, "n_estimators"),
    ],
)
def test_what_cannot_be_used_is_refused(estimator: Any, X: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        dtrees.cross_validate(estimator, X, SIGNAL)


# --- rankings and survival ---

QUERY = np.arange(N) % 17
RELEVANCE = np.clip(np.round(SIGNAL), 0, 4)
RANKER = dtrees.GradientBoostingRanker(n_estimators=6, subsample=0.7, random_state=0, eval_metric=["map", "ndcg@3"])


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_folds_of_a_ranker_are_of_whole_queries(weight: Any) -> None:
    result = dtrees.cross_validate(
        RANKER, FRAME, RELEVANCE, qid=QUERY, cv=3, sample_weight=weight, return_estimator=True, return_train_score=True
    )
    folds = list(GroupKFold(3).split(FRAME, RELEVANCE, QUERY))
    assert list(result.curves) == ["map", "ndcg@3"]
    for k, (train, test) in enumerate(folds):
        own, others = (None if weight is None else weight[rows] for rows in (train, test))
        held_out = FRAME.iloc[test], RELEVANCE[test], QUERY[test], others
        model = clone(RANKER).fit(FRAME.iloc[train], RELEVANCE[train], own, qid=QUERY[train], eval_set=[held_out])
        assert result["test_score"][k] == model.score(FRAME.iloc[test], RELEVANCE[test], others, qid=QUERY[test])
        assert result["train_score"][k] == model.score(FRAME.iloc[train], RELEVANCE[train], own, qid=QUERY[train])
        assert_array_equal(result.curves["ndcg@3"].by_fold[k], model.evals_result_["validation_0"]["ndcg@3"])
        assert_array_equal(result["estimator"][k].predict(FRAME), model.predict(FRAME))


def test_scorers_of_a_ranker_are_given_queries() -> None:
    def of_queries(model: Any, X: Any, y: Any, *, qid: Any) -> float:
        return float(len(np.unique(qid)))

    result = dtrees.cross_validate(RANKER, FRAME, RELEVANCE, qid=QUERY, cv=GroupKFold(4), scoring=of_queries)
    assert result["test_score"].sum() == 17


@pytest.mark.parametrize(
    ("estimator", "options", "match"),
    [
        (RANKER, {"qid": QUERY, "groups": QUERY}, "qid is given beside groups"),
        (RANKER, {"qid": QUERY, "cv": KFold(3)}, "cv is KFold.*which divides the rows of a query"),
        (RANKER, {"qid": QUERY, "scoring": "r2"}, "scoring is 'r2'; wants None, for NDCG"),
        (BOOSTER, {"qid": QUERY}, "qid is given, but a GradientBoostingRegressor knows no queries"),
    ],
)
def test_queries_that_cannot_be_used_are_refused(estimator: Any, options: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        dtrees.cross_validate(estimator, FRAME, RELEVANCE, **options)


@pytest.mark.parametrize("loss", ["cox", "aft"])
def test_times_of_events(loss: str) -> None:
    time = np.exp(SIGNAL / 3)
    y = np.column_stack([time, np.where(np.arange(N) % 4 == 0, np.inf, time)])
    booster = dtrees.GradientBoostingRegressor(loss=loss, n_estimators=5)
    result = dtrees.cross_validate(booster, FRAME, y, cv=KFold(3), return_estimator=True)
    for k, (train, test) in enumerate(KFold(3).split(FRAME)):
        model = clone(booster).fit(FRAME.iloc[train], y[train])
        assert_array_equal(result["estimator"][k].predict(FRAME), model.predict(FRAME))
        assert result["test_score"][k] == model.score(FRAME.iloc[test], y[test])


# --- pictures ---


def test_curves_are_drawn() -> None:
    result = dtrees.cross_validate(clone(BOOSTER).set_params(eval_metric=["mae", "rmse"]), FRAME, SIGNAL, cv=3)
    ax = dtrees.plot_metric(result)
    mean, *folds, best = ax.get_lines()
    assert (mean.get_label(), ax.get_ylabel(), best.get_label()) == ("mean of 3 folds", "rmse", f"best round: {result.best_n_estimators}")
    assert_array_equal(mean.get_ydata(), result.curves["rmse"].mean)
    assert_array_equal([line.get_ydata() for line in folds], result.curves["rmse"].by_fold)
    assert dtrees.plot_metric(result, "mae").get_ylabel() == "mae"
    with pytest.raises(ValueError, match="has no scores of its rounds"):
        dtrees.plot_metric(dtrees.cross_validate(FOREST, FRAME, SIGNAL, cv=2))
