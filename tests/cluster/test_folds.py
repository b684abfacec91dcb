"""Cross-validation and tuning of Dask collections, compared with the same table in memory."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_array_equal
from optuna.distributions import IntDistribution
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold

import dtrees
from tests.cluster.samples import FRAME, LENGTHS, TARGETS, WEIGHTS, assert_clean, events, in_partitions, numbers

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore:no tree found")]

#: Parameters without noise estimates and draws, which depend on rows of weight 0.
SAME: dict[str, Any] = {"max_features": None, "split_shrinkage": 0.0, "random_state": 0}
REGRESSOR = dtrees.GradientBoostingRegressor(n_estimators=6, max_depth=4, eval_metric=["mae", "rmse"], **SAME)
CLASSIFIER = dtrees.GradientBoostingClassifier(n_estimators=3, max_depth=3, **SAME)
FOREST = dtrees.RandomForestRegressor(3, bootstrap=False, max_features=None, random_state=0)
N = len(FRAME)


def lazily(*data: Any, n_parts: int = 3) -> list[Any]:
    return [None if one is None else in_partitions(one, LENGTHS[n_parts]) for one in data]


def assert_same(here: Any, there: Any) -> None:
    """Compare results of folds, except times and estimators, whose predictions are compared."""
    assert here.keys() == there.keys()
    for name in here.keys() - {"fit_time", "score_time", "estimator", "indices"}:
        assert_array_equal(here[name], there[name], err_msg=name)
    assert here.curves.keys() == there.curves.keys()
    for name, curve in here.curves.items():
        assert_array_equal(curve.by_fold, there.curves[name].by_fold)
    for mine, theirs in zip(here["estimator"], there["estimator"], strict=True):
        assert_array_equal(mine.predict(FRAME), theirs.predict(FRAME))


@pytest.mark.parametrize(
    ("placement", "estimator", "task", "options"),
    [
        ("rows", REGRESSOR, "regression", {"cv": 3, "scoring": ["r2", "neg_mean_absolute_error"], "return_train_score": True}),
        ("sharded", REGRESSOR, "regression", {"cv": KFold(3, shuffle=True, random_state=0), "sample_weight": WEIGHTS}),
        ("one-worker", CLASSIFIER, "binary", {"cv": 3, "scoring": ["roc_auc", "neg_log_loss", "accuracy"]}),
        ("rows", CLASSIFIER, "multiclass", {"cv": GroupKFold(2), "groups": np.arange(N) % 5, "sample_weight": WEIGHTS}),
        ("replicated", FOREST, "regression", {"cv": 2}),
        ("rows", clone(REGRESSOR).set_params(early_stopping_rounds=2, learning_rate=1.0, n_estimators=30), "regression", {"cv": 2}),
    ],
)
def test_folds_of_a_collection_are_those_of_the_table(client: Client, placement: str, estimator: Any, task: str, options: Any) -> None:
    options = {"return_estimator": True, "return_indices": True, **options}
    here = dtrees.cross_validate(estimator, FRAME, TARGETS[task], **options)
    X, y = lazily(FRAME, TARGETS[task])
    if "sample_weight" in options:
        (options["sample_weight"],) = lazily(options["sample_weight"])
    with dask.config.set({"dtrees.placement": placement}):
        there = dtrees.cross_validate(estimator, X, y, **options)
    assert_same(here, there)
    assert {model.placement_.kind for model in there["estimator"]} == {placement}
    assert_clean(client)


def test_arrays_of_unknown_lengths_and_sparse_blocks(client: Client) -> None:
    table, y = numbers(FRAME), TARGETS["regression"].to_numpy()
    X = in_partitions(FRAME, LENGTHS[3])[list(FRAME.select_dtypes("number").columns)].to_dask_array()
    here = dtrees.cross_validate(REGRESSOR, FRAME.select_dtypes("number").to_numpy(), y, cv=2)
    there = dtrees.cross_validate(REGRESSOR, X, y, cv=2)
    assert_array_equal(here["test_score"], there["test_score"])
    sparse = da.from_array(np.nan_to_num(table), chunks=(100, table.shape[1])).map_blocks(csr_array)
    here = dtrees.cross_validate(REGRESSOR, csr_array(np.nan_to_num(table)), y, cv=2)
    there = dtrees.cross_validate(REGRESSOR, sparse, y, cv=2)
    assert_array_equal(here["test_score"], there["test_score"])
    assert_array_equal(here.curves["rmse"].by_fold, there.curves["rmse"].by_fold)


def test_the_table_is_loaded_once(client: Client) -> None:
    X, y = lazily(FRAME, TARGETS["regression"])
    with dask.config.set({"dtrees.placement": "sharded"}):
        dtrees.cross_validate(REGRESSOR, X, y, cv=4)
    assert len(events(client, "placed")) == 1
    (fit,) = [fit for fit in dtrees.fits() if fit.label == "cross_validate"][:1]
    assert (fit.estimator, fit.state) == ("GradientBoostingRegressor", "finished")


@pytest.mark.parametrize("placement", ["rows", "sharded"])
def test_a_worker_is_lost_between_folds(mortal_client: Client, tmp_path: Path, placement: str) -> None:
    processes, killed = mortal_client.run(os.getpid), tmp_path / "killed"

    def kill_another(model: Any, X: Any, y: Any) -> float:
        if not killed.exists():
            killed.touch()
            holding = [processes[worker] for worker in model.placement_.workers if worker in processes]
            others = [process for process in (*holding, *processes.values()) if process != os.getpid()]
            os.kill(others[0], signal.SIGKILL)
        return float(model.score(X, y))

    X, y = lazily(FRAME, TARGETS["regression"])
    here = dtrees.cross_validate(REGRESSOR, FRAME, TARGETS["regression"], cv=3, return_estimator=True)
    with dask.config.set({"dtrees.placement": placement}):
        there = dtrees.cross_validate(REGRESSOR, X, y, cv=3, scoring=kill_another, return_estimator=True)
    assert killed.exists()
    assert {*mortal_client.run(os.getpid, on_error="ignore").values()} != {*processes.values()}
    assert_same(here, there)


def test_the_coordinating_worker_is_lost(mortal_client: Client, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def kill_this(model: Any, X: Any, y: Any) -> float:
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return float(model.score(X, y))

    here = dtrees.cross_validate(REGRESSOR, FRAME, TARGETS["regression"], cv=2, return_estimator=True)
    with dask.config.set({"dtrees.placement": "rows"}):
        there = dtrees.cross_validate(REGRESSOR, *lazily(FRAME, TARGETS["regression"]), cv=2, scoring=kill_this, return_estimator=True)
    assert killed.exists()
    assert_same(here, there)


def test_a_search_on_a_cluster(client: Client) -> None:
    space, y = {"max_depth": IntDistribution(1, 6)}, TARGETS["regression"]
    here, model = dtrees.tune(REGRESSOR, FRAME, y, space, n_trials=4, cv=3, random_state=0)
    with dask.config.set({"dtrees.placement": "rows"}):
        there, other = dtrees.tune(REGRESSOR, *lazily(FRAME, y), space, n_trials=4, cv=3, random_state=0)
    assert [(trial.params, trial.value, trial.intermediate_values) for trial in there.trials] == [
        (trial.params, trial.value, trial.intermediate_values) for trial in here.trials
    ]
    assert other.get_params() == model.get_params()
    assert_array_equal(other.predict(FRAME), model.predict(FRAME))
    assert other.placement_.kind == "rows"
    assert_clean(client)


def test_what_is_drawn_is_drawn_among_all_rows(client: Client) -> None:
    """The models differ slightly from those of the rows alone, and their scores are reproducible."""
    estimator = clone(REGRESSOR).set_params(subsample=0.7, n_iter_no_change=5)
    one, two = (dtrees.cross_validate(estimator, *lazily(FRAME, TARGETS["regression"], n_parts=n), cv=3) for n in (3, 7))
    here = dtrees.cross_validate(estimator, FRAME, TARGETS["regression"], cv=3)
    assert_array_equal(one["test_score"], two["test_score"])
    assert one["test_score"].mean() == pytest.approx(here["test_score"].mean(), abs=0.1)


def test_without_a_client_all_is_computed_here() -> None:
    X, y = lazily(FRAME, TARGETS["regression"])
    with dask.config.set(scheduler="sync"):
        there = dtrees.cross_validate(FOREST, X, y, cv=2, n_jobs=2)
    assert_array_equal(there["test_score"], dtrees.cross_validate(FOREST, FRAME, TARGETS["regression"], cv=2)["test_score"])


def test_in_a_task_of_the_user(client: Client) -> None:
    X, y = lazily(FRAME, TARGETS["regression"])
    there = client.submit(dtrees.cross_validate, FOREST, X, y, cv=2).result()
    assert_array_equal(there["test_score"], dtrees.cross_validate(FOREST, FRAME, TARGETS["regression"], cv=2)["test_score"])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"n_jobs": 2}, ValueError, "n_jobs is 2, but X is a Dask collection.*wants n_jobs=None"),
        ({"sample_weight": np.ones(5)}, ValueError, "sample_weight has 5 values"),
        ({"scoring": "nothing"}, ValueError, "nothing"),
    ],
)
def test_what_cannot_be_used_is_refused(client: Client, options: Any, error: type[Exception], match: str) -> None:
    X, y = lazily(FRAME, TARGETS["regression"])
    with pytest.raises(error, match=match):
        dtrees.cross_validate(REGRESSOR, X, y, cv=2, **options)
    with pytest.raises(ValueError, match="both must describe the same rows"):
        dtrees.cross_validate(REGRESSOR, X, y.partitions[:1], cv=2)
    assert_clean(client)
