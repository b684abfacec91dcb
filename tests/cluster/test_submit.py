"""Fits as tasks of a cluster: submitted, attached, cancelled, several at a time."""

import datetime
import functools
import logging
import os
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import joblib
import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import dtrees
from dtrees.cluster.errors import ClusterError
from dtrees.cluster.growing.watching import local_callback
from tests.cluster.samples import FRAME, REGRESSION, assert_clean, assert_same_model, events, numbers, training_set, wait_until
from tests.slow import one_quick

pytestmark = pytest.mark.timeout(180)


def boosting(n_estimators: int = 5) -> Any:
    return dtrees.GradientBoostingRegressor(n_estimators=n_estimators, subsample=0.8, random_state=3)


def forest() -> Any:
    return dtrees.RandomForestRegressor(6, random_state=4)


MODELS: dict[str, Callable[[], Any]] = {"boosting": boosting, "forest": forest, "tree": lambda: dtrees.DecisionTreeRegressor(max_depth=5)}


@functools.cache
def fitted_here(name: str) -> Any:
    return MODELS[name]().fit(FRAME, REGRESSION)


@pytest.mark.parametrize("name", one_quick(MODELS))
def test_the_result_is_the_fitted_model(client: Client, name: str) -> None:
    model = MODELS[name]()
    future = dtrees.submit(model, *training_set())
    assert re.fullmatch(r"dtrees-fit-[0-9a-f]{10}", future.key)
    assert_same_model(future.result(timeout=150), fitted_here(name))
    assert not model.__sklearn_is_fitted__()
    del future
    assert_clean(client)


@pytest.mark.parametrize("X", one_quick([FRAME, numbers(FRAME)]), ids=["frame", "array"])
def test_data_in_memory_goes_to_a_worker(client: Client, X: Any) -> None:
    with warnings.catch_warnings(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1kB"}):
        warnings.filterwarnings("error", message="Sending large graph")
        fitted = dtrees.submit(boosting(), X, REGRESSION).result(timeout=150)
    assert_same_model(fitted, boosting().fit(X, REGRESSION))
    assert_clean(client)


@pytest.mark.parametrize("persisted", one_quick([False, True]))
def test_a_detached_fit_outlives_its_client(cluster_of_3: LocalCluster, tmp_path: Path, persisted: bool) -> None:
    go_on = tmp_path / "go on"

    def wait_for_word(progress: Any) -> None:
        wait_until(go_on.exists)

    with Client(cluster_of_3, set_as_default=False) as first, first.as_current():
        data = first.persist(training_set()) if persisted else training_set()
        key = dtrees.submit(boosting(), *data, detached=True, callbacks=[wait_for_word]).key
        del data
    with Client(cluster_of_3, set_as_default=False) as second:
        go_on.touch()
        future = dtrees.attach(key, client=second)
        assert_same_model(future.result(timeout=150), fitted_here("boosting"))
    with Client(cluster_of_3, set_as_default=False) as third:
        future = dtrees.attach(key, client=third, take_over=True)
        assert_same_model(future.result(timeout=150), fitted_here("boosting"))
        del future
        assert_clean(third)
        with pytest.raises(KeyError, match=f"has no fit '{key}'"):
            dtrees.attach(key, client=third)


def test_attaching_only_looks_and_fits_are_listed(cluster_of_3: LocalCluster) -> None:
    with Client(cluster_of_3, set_as_default=False) as first:
        key = dtrees.submit(forest(), *training_set(), client=first, detached=True, label="a trial").key
    for _ in range(2):
        with Client(cluster_of_3, set_as_default=False) as other:
            assert_same_model(dtrees.attach(key, client=other).result(timeout=150), fitted_here("forest"))
    with Client(cluster_of_3, set_as_default=False) as last:
        (found,) = [fit for fit in dtrees.fits(last) if fit.key == key]
        assert (found.label, found.estimator, found.state, found.failure) == ("a trial", "RandomForestRegressor", "finished", "")
        assert found.done == found.total == 6
        assert abs(datetime.datetime.now(datetime.UTC) - found.submitted) < datetime.timedelta(minutes=3)
        dtrees.attach(key, client=last, take_over=True)
        assert_clean(last)
    with pytest.raises(TypeError, match="label is 3; wants text"):
        dtrees.submit(forest(), *training_set(), label=3)


def test_other_fits_end_with_their_client(cluster_of_3: LocalCluster) -> None:
    with Client(cluster_of_3, set_as_default=False) as second:
        with Client(cluster_of_3, set_as_default=False) as first, first.as_current():
            future = dtrees.submit(boosting(10**6), *training_set())
            key = future.key
            wait_until(lambda: bool(events(first, "round", key)))
        assert_clean(second)


@pytest.mark.parametrize(
    ("placement", "detached"),
    [
        ("sharded", False),
        ("one-worker", True),
        pytest.param("sharded", True, marks=pytest.mark.slow),
        pytest.param("one-worker", False, marks=pytest.mark.slow),
    ],
)
def test_cancelling_frees_everything(client: Client, placement: str, detached: bool) -> None:
    with dask.config.set({"dtrees.placement": placement}):
        future = dtrees.submit(boosting(10**6), *training_set(), detached=detached)
    wait_until(lambda: len(events(client, "round", future.key)) > 2)
    future.cancel(force=detached)
    assert_clean(client)


@pytest.mark.parametrize("found_again", one_quick([True, False]))
def test_cancelling_a_detached_fit_that_is_finished(client: Client, found_again: bool) -> None:
    future = dtrees.submit(boosting(), *training_set(), detached=True)
    future.result(timeout=150)
    if found_again:
        future = dtrees.attach(future.key)
    future.cancel(force=True)
    del future
    assert_clean(client)


@pytest.mark.slow
def test_cancelling_ends_batches_of_trees_that_would_take_hours(client: Client) -> None:
    future = dtrees.submit(dtrees.RandomForestRegressor(10**8), *training_set(), placement="replicated")
    wait_until(lambda: any(str(key).startswith("dtrees-trees") for keys in client.processing().values() for key in keys))
    del future
    assert_clean(client)


@pytest.mark.parametrize("model", [boosting(10**7), dtrees.RandomForestRegressor(10**8)], ids=["boosting", "forest"])
@pytest.mark.slow
def test_cancelling_a_fit_of_data_in_memory(client: Client, tmp_path: Path, model: Any) -> None:
    marker = tmp_path / "begun"
    future = dtrees.submit(model, numbers(FRAME), REGRESSION, callbacks=[lambda progress: marker.touch()])
    wait_until(marker.exists)
    future.cancel()
    assert_clean(client)


@pytest.mark.parametrize("name", one_quick(["boosting", "forest"]))
async def test_an_asynchronous_client(cluster_of_3: LocalCluster, name: str) -> None:
    async with Client(cluster_of_3.scheduler_address, asynchronous=True, set_as_default=False) as client:
        future = dtrees.submit(MODELS[name](), *training_set(), client=client, detached=True)
        assert_same_model(await future, fitted_here(name))
        again = await dtrees.attach(future.key, client=client)
        assert future.key in [fit.key for fit in await dtrees.fits(client)]
        assert_same_model(await again, fitted_here(name))
        with client.as_current(), pytest.raises(ClusterError, match=r"await dtrees\.submit"):
            boosting().fit(*training_set())
        await future.cancel(force=True)
        assert await dtrees.submit(forest(), *training_set(), client=client, detached=True).cancel(force=True) is None
    with Client(cluster_of_3, set_as_default=False) as other:
        assert_clean(other)


@pytest.mark.slow
def test_several_fits_at_once(cluster_of_3: LocalCluster) -> None:
    """More fits than threads, by two clients, each over shards on all workers."""
    with (
        dask.config.set({"dtrees.placement": "sharded"}),
        Client(cluster_of_3, set_as_default=False) as one,
        Client(cluster_of_3, set_as_default=False) as other,
    ):
        names = [*MODELS, *MODELS]
        futures = [dtrees.submit(MODELS[name](), *training_set(), client=(one, other)[i % 2]) for i, name in enumerate(names)]
        for name, future in zip(names, futures, strict=True):
            assert_same_model(future.result(timeout=150), fitted_here(name))
        del futures, future
        assert_clean(one)


def test_fits_in_threads_of_one_client(client: Client) -> None:
    def fit(number: int) -> Any:
        with client.as_current():
            return boosting().fit(*training_set())

    with ThreadPoolExecutor(4) as pool:
        for model in pool.map(fit, range(4), timeout=150):
            assert_same_model(model, fitted_here("boosting"))


def test_a_fit_in_a_task(client: Client) -> None:
    def fit(name: str, lazy: bool) -> Any:
        model = MODELS[name]()
        return (model if name == "tree" else model.set_params(n_jobs=-1)).fit(*(training_set() if lazy else (FRAME, REGRESSION)))

    for name, lazy in (*((name, False) for name in MODELS), ("boosting", True)):
        assert_same_model(client.submit(fit, name, lazy, pure=False).result(timeout=150), fitted_here(name))


def test_scikit_learns_search_with_dasks_backend(client: Client) -> None:
    X, y = numbers(FRAME), REGRESSION.to_numpy()
    search = GridSearchCV(boosting(), {"max_depth": [2, 4], "learning_rate": [0.1, 0.5]}, cv=3)
    here = search.fit(X, y).cv_results_["mean_test_score"]
    with joblib.parallel_backend("dask", client=client):
        there = search.fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize(
    ("option", "message"),
    [({"max_restarts": -1}, "max_restarts is -1"), ({"max_restarts": 1.5}, "max_restarts is 1.5")],
)
def test_wrong_parameters(client: Client, option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dtrees.submit(boosting(), *training_set(), **option)
    with pytest.raises(ValueError, match="'learning_rate' parameter"):
        dtrees.submit(boosting().set_params(learning_rate=-1.0), *training_set())
    for name, value in (("dtrees.patience", 0), ("dtrees.patience", "20s"), ("dtrees.placement", "nowhere")):
        with dask.config.set({name: value}), pytest.raises(ValueError, match=f"{name[7:]} is {value!r}"):
            boosting().fit(*training_set())


def test_what_is_no_model_or_client_or_key(client: Client) -> None:
    for model in ("boosting", make_pipeline(boosting()), dtrees.GradientBoostingRegressor):
        with pytest.raises(TypeError, match=r"(?s)model is .*; wants one of dtrees' estimators"):
            dtrees.submit(model, *training_set())
    with pytest.raises(TypeError, match=r"client is 'tcp://there'; wants a distributed.Client"):
        dtrees.submit(boosting(), *training_set(), client="tcp://there")
    with pytest.raises(TypeError, match=r"key is <Future.*; wants the text"):
        dtrees.attach(dtrees.submit(boosting(), *training_set()))
    with pytest.raises(
        TypeError,
        match="fit has no option 'evalset' for a .*Regressor; wants some of X_val, y_val, sample_weight_val, base_margin, eval_set",
    ):
        dtrees.submit(boosting(), *training_set(), evalset=[])


def test_attaching_by_the_key_alone(client: Client) -> None:
    """The future is discarded; the scheduler may learn of the fit only after the request."""
    for _ in range(2):
        key = dtrees.submit(forest(), *training_set(), detached=True).key
        assert_same_model(dtrees.attach(key, take_over=True).result(timeout=150), fitted_here("forest"))
    assert_clean(client)


def test_without_a_client() -> None:
    with pytest.raises(ValueError, match="no current Dask client"):
        dtrees.submit(boosting(), FRAME, REGRESSION)


@pytest.mark.parametrize("generator", [np.random.RandomState, np.random.default_rng])
def test_random_states_move_on_as_they_do_here(client: Client, generator: Any) -> None:
    outcomes = []
    for data in (training_set(), (FRAME, REGRESSION)):
        state = generator(7)
        models = [forest().set_params(random_state=state).fit(*data) for _ in range(2)]
        outcomes.append((models, state.normal()))
    (there, drawn_there), (here, drawn_here) = outcomes
    assert drawn_there == drawn_here
    for a, b in zip(there, here, strict=True):
        assert_same_model(a, b)
    assert there[0].random_state is there[1].random_state


def test_what_is_left_of_an_earlier_fit(client: Client) -> None:
    model = boosting().set_params(n_iter_no_change=3).fit(FRAME, REGRESSION)
    assert hasattr(model, "validation_score_")
    parameters = model.set_params(n_iter_no_change=None).get_params()
    model.fit(*training_set())
    assert not hasattr(model, "validation_score_")
    assert model.get_params() == parameters
    assert_same_model(model, fitted_here("boosting"))


def test_warnings_reach_the_user(client: Client) -> None:
    with pytest.warns(UserWarning, match="Some inputs do not have OOB scores") as warned:
        dtrees.RandomForestRegressor(1, oob_score=True).fit(*training_set())
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize("kind", one_quick(["frame", "array", "here"]))
def test_a_column_of_targets_is_flattened_with_one_warning(client: Client, kind: str) -> None:
    X, y = training_set()
    column = {"frame": y.to_frame(), "array": y.to_dask_array(lengths=True)[:, None], "here": REGRESSION.to_numpy()[:, None]}[kind]
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed") as warned:
        assert_same_model(boosting().fit(X, column), fitted_here("boosting"))
    assert len(warned) == 1


def test_verbose_fits_log_where_the_user_is(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dtrees"):
        boosting().set_params(verbose=2).fit(*training_set())
    assert sum("round 5 of 5" in record.getMessage() for record in caplog.records) == 1


def test_verbose_fits_tell_where_the_user_is(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    """On standard error, unless the user has configured the package's logger."""
    boosting().set_params(verbose=2).fit(*training_set())
    lines = [line[:12] for line in capfd.readouterr().err.splitlines() if line.startswith("round")]
    assert lines == [f"round {i} of 5" for i in range(1, 6)]


def test_callbacks_run_beside_the_coordinator_unless_they_are_to_run_here(client: Client, tmp_path: Path) -> None:
    heard: list[int] = []
    with local_callback(lambda progress: heard.append(os.getpid())) as hear:
        boosting(2).fit(*training_set(), callbacks=[hear, lambda progress: (tmp_path / str(os.getpid())).touch()])
    assert heard == [os.getpid()] * 2
    (other,) = tmp_path.iterdir()
    assert int(other.name) in client.run(os.getpid).values()


def test_callbacks_hear_of_trees_in_order_and_end_the_fit(client: Client) -> None:
    for n_trees in (5, 80):  # with a batch for each tree, and with several trees in one batch
        heard: list[int] = []
        with local_callback(lambda progress, heard=heard: heard.append(progress.done)) as hear:
            callbacks = [hear, lambda progress: progress.done == 3]
            model = forest().set_params(n_estimators=n_trees).fit(*training_set(), callbacks=callbacks)
        assert heard == [1, 2, 3]
        assert_same_model(model, forest().set_params(n_estimators=3).fit(FRAME, REGRESSION))


def test_what_there_is_to_see(client: Client) -> None:
    with dask.config.set({"dtrees.placement": "sharded"}):
        boosting().fit(*training_set())
    rounds = events(client, "round")
    assert [event["round"] for event in rounds] == [1, 2, 3, 4, 5]
    workers = set(client.nthreads())
    last = rounds[-1]
    assert set(last["scan"]) == set(last["wait"]) == workers
    assert all(seconds >= 0 for seconds in [*last["scan"].values(), *last["wait"].values(), last["communicate"]])
    assert sum(last["scan"].values()) > 0
    kinds = [event["message"] for event in events(client, "exchange")]
    assert kinds == ["Open", *5 * ["GrowTree"]]
    assert set(events(client, "placed")[0]["workers"]) == workers
