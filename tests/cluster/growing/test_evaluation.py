"""Evaluation sets, early stopping, callbacks and checkpoints on a cluster: the results equal those of one process."""

import functools
import os
import signal
import threading
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, get_client, get_worker
from numpy.typing import NDArray
from sklearn.base import clone

import dtrees
from dtrees import EarlyStopping
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, in_partitions, table, targets, weights
from tests.slow import one_quick, slow_for

FRAME, REST = table(), table(300, seed=9)
TARGETS, REST_TARGETS = targets(FRAME), targets(REST)
WEIGHTS, REST_WEIGHTS = weights(), weights(300, seed=8)
REST_LENGTHS = {1: [300], 3: [120, 0, 180], 7: [1, 0, 99, 50, 50, 50, 50]}

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")


def spread_out(y: NDArray[Any], predicted: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
    """A metric that depends on the order of the rows."""
    order = np.arange(len(y)) % 7
    return float(np.average(predicted.reshape(len(y), -1)[:, 0] * order + (y == y[0]), weights=weight))


spread_out.greater_is_better = False  # type: ignore[attr-defined]


def make(task: str, **parameters: Any) -> Any:
    kind, metrics = dtrees.GradientBoostingClassifier, ["logloss", "error", "auc", spread_out]
    if task == "regression":
        kind, metrics = dtrees.GradientBoostingRegressor, ["rmse", "mae", "r2", spread_out]
    return kind(n_estimators=7, learning_rate=0.5, subsample=0.8, random_state=3, eval_metric=metrics, **parameters)


def sets_here(task: str) -> dict[str, Any]:
    return {"plain": (REST, REST_TARGETS[task]), "weighted": (REST, REST_TARGETS[task], REST_WEIGHTS)}


def sets_there(task: str, n_partitions: int) -> dict[str, Any]:
    lengths = REST_LENGTHS[n_partitions]
    X, y, weight = (in_partitions(data, lengths) for data in (REST, REST_TARGETS[task], REST_WEIGHTS))
    return {"plain": (X, y), "weighted": (X, y, weight)}


def data_there(task: str, n_partitions: int = 3) -> tuple[Any, ...]:
    return tuple(in_partitions(data, LENGTHS[n_partitions]) for data in (FRAME, TARGETS[task], WEIGHTS))


@functools.cache
def fitted_here(task: str, early: bool = False) -> Any:
    return make(task).fit(FRAME, TARGETS[task], WEIGHTS, eval_set=sets_here(task), callbacks=stops(early))


def stops(early: bool) -> list[Any]:
    return [EarlyStopping(1, eval_name="weighted", metric="spread_out", tol=0.05)] if early else []


def assert_same_scores(there: Any, here: Any) -> None:
    assert list(there.evals_result_) == list(here.evals_result_)
    for name, metrics in here.evals_result_.items():
        assert list(there.evals_result_[name]) == list(metrics)
        for metric, values in metrics.items():
            assert there.evals_result_[name][metric].tobytes() == values.tobytes(), (name, metric)
    for name in ("best_iteration_", "best_score_"):
        assert getattr(there, name, None) == getattr(here, name, None)
    assert_same_model(there, here)


@pytest.mark.parametrize(("n_partitions", "placement", "early"), slow_for({3}, [(7, "sharded", True), (3, "one-worker", False)]))
@pytest.mark.parametrize("task", one_quick(["regression", "binary"]))
def test_scores_are_those_of_one_process(client: Client, task: str, n_partitions: int, placement: str, early: bool) -> None:
    with dask.config.set({"dtrees.placement": placement}):
        model = make(task).fit(*data_there(task, n_partitions), eval_set=sets_there(task, n_partitions), callbacks=stops(early))
    assert_same_scores(model, fitted_here(task, early))
    assert (model.n_estimators_ < 7) == early
    assert np.isfinite([list(metrics.values()) for metrics in model.evals_result_.values()]).all()


@pytest.mark.parametrize(
    ("placement", "scoring"),
    [("rows", "loss"), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("sharded", "roc_auc"), ("rows", "roc_auc")))],
)
def test_rows_that_decide_when_to_stop(client: Client, placement: str, scoring: str) -> None:
    """Also with a scorer, wherever the training rows are."""
    model = make("binary", n_iter_no_change=2, tol=0.01, scoring=scoring)
    val = {"X_val": REST, "y_val": REST_TARGETS["binary"], "sample_weight_val": REST_WEIGHTS}
    lazy = {name: in_partitions(data, REST_LENGTHS[7]) for name, data in val.items()}
    here = clone(model).fit(FRAME, TARGETS["binary"], WEIGHTS, **val)
    there = model.fit(*data_there("binary"), **lazy, placement=placement)
    assert there.placement_.kind == placement
    assert_same_scores(there, here)
    assert there.validation_score_.tobytes() == here.validation_score_.tobytes()
    assert len(here.validation_score_) == here.n_estimators_


def test_callbacks_of_scikit_learn(client: Client) -> None:
    """They are called in the user's process, without a model before the end."""
    pytest.importorskip("sklearn.callback")
    told: list[Any] = []

    class Told:
        def setup(self, estimator: Any, context: Any) -> None:
            told.append(("begin", os.getpid()))

        on_fit_task_begin = setup

        def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:
            told.append((context.task_name, fitted_estimator is None))

        def teardown(self, estimator: Any, context: Any) -> None:
            told.append(("teardown", True))

    model = make("regression").set_callbacks(Told()).fit(*data_there("regression"))
    assert [one for one in told if one[0] != "begin"] == [*[("round", True)] * 7, ("fit", False), ("teardown", True)]
    assert {process for name, process in told if name == "begin"} == {os.getpid()}
    assert_same_model(model.set_callbacks(), fitted_here("regression"))
    with pytest.raises(TypeError, match="model has callbacks of scikit-learn"):
        dtrees.submit(model.set_callbacks(Told()), *data_there("regression"))


@pytest.mark.slow
def test_sets_of_other_kinds(client: Client, sharded: None) -> None:
    """Sets in memory with Dask collections, and the reverse; see also test_data_in.py."""
    y, here = REST_TARGETS["binary"], fitted_here("binary")
    mixed = {"plain": (REST, in_partitions(y, REST_LENGTHS[3])), "weighted": (in_partitions(REST, REST_LENGTHS[7]), y, REST_WEIGHTS)}
    assert_same_scores(make("binary").fit(*data_there("binary"), eval_set=mixed), here)
    assert_same_scores(make("binary").fit(FRAME, TARGETS["binary"], WEIGHTS, eval_set=sets_there("binary", 3)), here)
    assert_clean(client)


def test_without_a_cluster() -> None:
    there = make("multiclass").fit(*data_there("multiclass"), eval_set=sets_there("multiclass", 3))
    assert_same_scores(there, fitted_here("multiclass"))


def test_sets_that_cannot_be_used(client: Client, sharded: None) -> None:
    X, y = in_partitions(REST, REST_LENGTHS[3]), in_partitions(REST_TARGETS["binary"], REST_LENGTHS[3])
    for given, message in (
        ((X, in_partitions(REST_TARGETS["binary"].iloc[:-1], [299])), "eval_set 'validation_0': X has 300 rows but y has 299"),
        ((X, y == "yes"), "eval_set 'validation_0': y has the label"),
        ((X[["wide"]], y), "eval_set 'validation_0'"),
        ((X, y, in_partitions(0 * REST_WEIGHTS, REST_LENGTHS[3])), "eval_set 'validation_0' has no weight above zero"),
        ((in_partitions(REST.iloc[:0], [0]), in_partitions(REST_TARGETS["binary"].iloc[:0], [0])), "has no rows"),
    ):
        with pytest.raises(ValueError, match=message):
            make("binary").fit(*data_there("binary"), eval_set=[given])
    assert_clean(client)


class Unpicklable:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, *_: Any) -> float:
        return 0.0


def test_what_cannot_travel_is_refused_at_once(client: Client) -> None:
    with pytest.raises(TypeError, match=r"callbacks\[1\] cannot be sent to the cluster, since it cannot be pickled"):
        make("regression").fit(*data_there("regression"), callbacks=[print, Unpicklable()])
    with pytest.raises(TypeError, match="eval_metric cannot be sent to the cluster, since it cannot be pickled"):
        make("regression").set_params(eval_metric=Unpicklable()).fit(*data_there("regression"), eval_set=sets_there("regression", 1))
    assert_clean(client)


@pytest.mark.parametrize("placement", one_quick(["sharded", "one-worker"]))
def test_callbacks_are_told_of_scores(client: Client, placement: str) -> None:
    wanted = fitted_here("regression").evals_result_["plain"]["rmse"].tolist()
    losses = fitted_here("regression").train_score_.tolist()

    def stop_as_told(progress: Any, wanted: Any = wanted, losses: Any = losses) -> bool:
        assert progress.evaluation["plain"]["rmse"] == wanted[progress.done - 1]
        assert progress.train_score == losses[progress.done - 1]
        assert 0 < progress.tree_seconds <= progress.seconds
        return progress.evaluation["plain"]["rmse"] <= wanted[3]

    with dask.config.set({"dtrees.placement": placement}):
        model = make("regression").fit(*data_there("regression"), eval_set=sets_there("regression", 3), callbacks=[stop_as_told])
    assert model.n_estimators_ == 4


@pytest.mark.slow
def test_scorers_that_are_lost_start_over(tmp_path: Path, sharded: None) -> None:
    """A worker with a shard and a scorer dies after the third round."""

    def kill(progress: Any, mark: Path = tmp_path / "killed") -> None:
        if progress.done == 3 and not mark.exists():
            mark.touch()
            client, here = get_client(), get_worker().address
            victim = next(worker for worker in sorted(client.nthreads()) if worker != here)
            os.kill(client.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)

    with (
        LocalCluster(n_workers=3, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        model = make("regression").fit(*data_there("regression"), eval_set=sets_there("regression", 7), callbacks=[kill])
        assert (tmp_path / "killed").exists()
        assert_clean(client)
    assert_same_scores(model, fitted_here("regression"))


@pytest.mark.slow
def test_checkpoints(client: Client, tmp_path: Path) -> None:
    """A fit that is interrupted on a cluster continues in one process, and the reverse; forests too."""

    def stop(progress: Any) -> None:
        if progress.done == 4:
            raise KeyboardInterrupt

    def fail(progress: Any) -> None:
        if progress.done == 4:
            raise LookupError("enough")

    forest = dtrees.RandomForestRegressor(7, oob_score=True, max_features=0.5, random_state=5)
    for name, estimator, more_here, more_there in (
        ("boosting", make("regression"), {"eval_set": sets_here("regression")}, {"eval_set": sets_there("regression", 3)}),
        ("forest", forest, {}, {}),
    ):
        here, there = (FRAME, TARGETS["regression"], WEIGHTS), data_there("regression", 7)
        wanted = clone(estimator).fit(*here, **more_here)
        for placement in ("one-worker", "sharded"):
            with dask.config.set({"dtrees.placement": placement}):
                path = tmp_path / f"{name}-{placement}"
                with pytest.raises(LookupError, match="enough"):
                    clone(estimator).fit(*there, **more_there, callbacks=[fail], checkpoint=f"{path}-there", checkpoint_interval=0)
                with pytest.raises(KeyboardInterrupt):
                    clone(estimator).fit(*here, **more_here, callbacks=[stop], checkpoint=f"{path}-here", checkpoint_interval=0)
                kept = Path(f"{path}-there").read_bytes()
                assert kept == Path(f"{path}-here").read_bytes()
                on = clone(estimator).fit(*there, **more_there, checkpoint=f"{path}-here")
                back = clone(estimator).fit(*here, **more_here, checkpoint=f"{path}-there")
                for model in (on, back):
                    assert_same_model(model, wanted)
                    if name == "boosting":
                        assert_same_scores(model, wanted)
                with pytest.raises(ValueError, match="is of another fit .*data was"):
                    clone(estimator).fit(*there[:2], checkpoint=f"{path}-here")
    assert_clean(client)


def test_a_checkpoint_in_the_memory_of_a_process(client: Client) -> None:
    with pytest.raises(ValueError, match=r"checkpoint is 'memory://c', in the memory of one worker; wants a file, or an address, that"):
        make("regression").fit(*data_there("regression"), checkpoint="memory://c")


def test_a_checkpoint_without_a_seed(client: Client, tmp_path: Path, sharded: None) -> None:
    models = [make("regression").set_params(random_state=None).fit(*data_there("regression"), checkpoint=tmp_path / "c") for _ in range(2)]
    assert_same_model(*models)
