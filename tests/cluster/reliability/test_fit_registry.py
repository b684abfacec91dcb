"""Records of fits on the scheduler, which outlive workers, and fits without silent workers."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, secede

import dtrees
from dtrees.cluster.errors import FitCancelled, WorkerLost
from dtrees.cluster.reliability.fit import ClusterTreeLog, Fit, Settings, take_turn
from dtrees.cluster.reliability.registry import FitRegistry, belonging, described
from dtrees.cluster.reliability.waiting import FutureWaiter
from dtrees.engine.protocol.messages import Scores
from tests.cluster.clusters import cluster_of
from tests.cluster.samples import FRAME, REGRESSION, assert_clean, assert_same_model, events, records, training_set, wait_until
from tests.slow import one_quick

TREE = dtrees.DecisionTreeRegressor(max_depth=1).fit([[0.0], [1.0]], [0.0, 1.0])._tree

pytestmark = pytest.mark.timeout(180)


def boosting(n_estimators: int) -> Any:
    return dtrees.GradientBoostingRegressor(n_estimators=n_estimators, max_depth=3, random_state=0)


@contextlib.contextmanager
def recorded(client: Client, fit: str, folder: Path, patience: float = 20.0) -> Iterator[Any]:
    """A fit that only waits, with a record."""
    client.register_plugin(FitRegistry())
    with dask.annotate(**described(fit, patience=patience, detached=False, needs=[])):
        future = client.submit(_work, folder / "begun", folder / "end", key=fit)
    wait_until(lambda: fit in records(client))
    try:
        yield future
    finally:
        future.cancel()
        (folder / "end").touch()


def test_a_record_lasts_as_long_as_its_fit(client: Client, tmp_path: Path) -> None:
    marker = tmp_path / "stop"
    future = dtrees.submit(boosting(10**6), *training_set(), placement="sharded", callbacks=[lambda progress: marker.exists()])
    wait_until(lambda: records(client).get(future.key, {}).get("n_trees", 0) > 2)
    record = records(client)[future.key]
    assert record["state"] == "processing"
    assert record["turns"] == {"coordinator": 1, "trees": 1}
    marker.touch()
    future.result(timeout=60)
    record = records(client)[future.key]
    assert (record["state"], record["n_trees"]) == ("memory", 0)
    future.release()
    wait_until(lambda: not records(client))
    assert_clean(client)


def test_trees_are_found_by_the_next_turn_which_the_one_before_cannot_disturb(client: Client, tmp_path: Path) -> None:
    """Like a coordinator that was stopped, and resumes after its fit was restarted elsewhere."""
    with recorded(client, "dtrees-fit-1", tmp_path):
        fit = Fit("dtrees-fit-1", Settings(), turn=1)
        first = ClusterTreeLog(client, fit)
        assert first.recall() == []
        for i in range(3):
            first.keep(TREE, Scores(float(i), np.nan))
        wait_until(lambda: records(client)["dtrees-fit-1"]["n_trees"] == 3)
        second = ClusterTreeLog(client, fit)
        recalled = second.recall()
        assert [scores.train for _, scores in recalled] == [0.0, 1.0, 2.0]
        assert all(tree.equals(TREE) for tree, _ in recalled)
        second.keep(TREE, Scores(3.0, np.nan))
        first.keep(TREE, Scores(-1.0, np.nan))
        wait_until(lambda: first._is_refused)
        with pytest.raises(FitCancelled, match="taken over"):
            first.keep(TREE, Scores(-1.0, np.nan))
        wait_until(lambda: records(client)["dtrees-fit-1"]["n_trees"] == 4)
        assert [scores.train for _, scores in second.recall()] == [0.0, 1.0, 2.0, 3.0]
    wait_until(lambda: not records(client))
    assert_clean(client)


def test_a_fit_that_nobody_wants_gets_no_turn(client: Client, tmp_path: Path) -> None:
    with recorded(client, "dtrees-fit-2", tmp_path) as future:
        future.cancel()
        wait_until(lambda: "dtrees-fit-2" not in records(client))
        with pytest.raises(FitCancelled):
            take_turn(client, "dtrees-fit-2", "coordinator", None, None)
        with pytest.raises(FitCancelled):
            ClusterTreeLog(client, Fit("dtrees-fit-2", Settings(), turn=1))


def test_a_run_that_was_given_up_gets_no_turn(client: Client, tmp_path: Path) -> None:
    """Like a run on a worker that was stopped before it began: another one has taken over, whose tasks it would cancel."""
    fit = "dtrees-fit-4"
    with recorded(client, fit, tmp_path):
        wait_until((tmp_path / "begun").exists)
        (here,) = (worker for worker, keys in client.processing().items() if fit in keys)
        elsewhere = min(set(client.nthreads()) - {here})
        for role in ("coordinator", "trees"):
            assert take_turn(client, fit, role, here, fit)[0] == 1
            for refused in ((elsewhere, fit), (here, "another task")):
                with pytest.raises(FitCancelled):
                    take_turn(client, fit, role, *refused)
            assert take_turn(client, fit, role, here, fit)[0] == 2
    wait_until(lambda: not records(client))
    assert_clean(client)


def test_partitions_that_a_user_wants_outlast_the_fit_that_computed_them(client: Client, tmp_path: Path) -> None:
    """They have the mark of the fit, but their own names; partitions made by the fit itself are removed."""

    def known(dask_scheduler: Any) -> set[str]:
        return set(dask_scheduler.tasks) & {"a-partition", "dtrees-columns-of-it"}

    with recorded(client, "dtrees-fit-3", tmp_path), dask.annotate(**belonging("dtrees-fit-3", 1)):
        theirs = client.submit(int, 7, key="a-partition")
        made = client.submit(int, 8, key="dtrees-columns-of-it")
        assert client.gather([theirs, made]) == [7, 8]
    wait_until(lambda: client.run_on_scheduler(known) == {"a-partition"})
    assert theirs.result(timeout=60) == 7


def test_topics_do_not_grow_in_number(client: Client) -> None:
    def topics(dask_scheduler: Any) -> set[str]:
        return {topic for topic in dask_scheduler.get_events() if topic.startswith("dtrees")}

    for _ in range(2):
        boosting(2).set_params(verbose=1).fit(*training_set())
    assert client.run_on_scheduler(topics) <= {"dtrees", "dtrees-exchange", "dtrees-progress"}


@pytest.mark.parametrize("model", one_quick(["boosting", "forest"]))
def test_a_silent_worker_is_left_to_others(mortal_client: Client, tmp_path: Path, model: str) -> None:
    """The fit continues without it; tasks and data of others on that worker are still there when it resumes."""
    client = mortal_client
    processes = client.run(os.getpid)
    victim = min(processes)
    data = client.scatter("data of somebody else", workers=[victim], hash=False)
    foreign = client.submit(_work, tmp_path / "begun", tmp_path / "end", key="foreign", workers=[victim])
    wait_until((tmp_path / "begun").exists)
    estimator = dtrees.RandomForestRegressor(60, random_state=0) if model == "forest" else boosting(12)
    stopped = tmp_path / "stopped"
    try:
        with dask.config.set({"dtrees.patience": 2.0, "dtrees.placement": "replicated" if model == "forest" else "sharded"}):
            future = dtrees.submit(estimator, *training_set(), callbacks=[_Stop(processes[victim], stopped)])
            fitted = future.result(timeout=120)
    finally:
        os.kill(processes[victim], signal.SIGCONT)
    assert stopped.exists()
    (tmp_path / "end").touch()
    assert foreign.result(timeout=60) == processes[victim]
    assert data.result(timeout=60) == "data of somebody else"
    assert client.run(os.getpid) == processes
    assert (tmp_path / "begun").read_text() == "x"  # it ran once
    assert_same_model(fitted, estimator.fit(FRAME, REGRESSION))
    del data, foreign, fitted
    future.release()
    assert_clean(client)


@pytest.mark.parametrize("whose", ["of the fit", "of somebody else"])
def test_data_that_a_silent_worker_uses_stay_until_it_knows_that_it_does_not(mortal_client: Client, tmp_path: Path, whose: str) -> None:
    """A worker that is ordered to drop data in use ends, and data of others on it is lost. Here it only seems to be silent."""
    client = mortal_client
    processes = client.run(os.getpid)
    victim, other, _ = sorted(processes)
    data = client.scatter("data of somebody else", workers=[victim], hash=False)
    ends = [tmp_path / "end of task", tmp_path / "end of copy"]
    with recorded(client, "dtrees-fit-3", tmp_path, patience=10.0**6):
        with dask.annotate(**belonging("dtrees-fit-3")):
            columns = client.submit(_same, "columns", workers=[victim], key="columns")
            # Dask keeps a copy there as long as a task needs it.
            copy = client.submit(_work, tmp_path / "copied", ends[1], columns, workers=[other], key="copy")
        with dask.annotate(**(belonging("dtrees-fit-3") if whose == "of the fit" else {})):
            task = client.submit(_work, tmp_path / "run", ends[0], columns, workers=[victim], allow_other_workers=True, key="task")
        wait_until(lambda: (tmp_path / "copied").exists() and (tmp_path / "run").exists())
        wait_until(lambda: set(client.who_has()["columns"]) == {victim, other})
        client.run_on_scheduler(_hold_to_be_silent, "dtrees-fit-3", victim)
        if whose == "of the fit":
            wait_until(lambda: (tmp_path / "run").read_text() == "xx")
        # This reaches the worker after the messages sent to it before.
        assert client.submit(os.getpid, workers=[victim], key="later").result(timeout=60) == processes[victim]
        for end in ends:
            end.touch()
        assert (task.result(timeout=60) == processes[victim]) == (whose == "of somebody else")
        assert data.result(timeout=60) == "data of somebody else"
        assert client.run(os.getpid) == processes
    del data, columns, copy, task
    assert_clean(client)


def test_what_a_worker_is_told_to_forget_too_late_is_fetched_again(client: Client, tmp_path: Path) -> None:
    """Like a worker that was stopped while its task ran elsewhere, and then gets another task that needs the result."""
    here, elsewhere, *_ = sorted(client.nthreads())
    begun, end = tmp_path / "begun to fetch", tmp_path / "end of fetching"
    with recorded(client, "dtrees-fit-5", tmp_path, patience=5.0), dask.annotate(**belonging("dtrees-fit-5")):
        columns = client.submit(_SlowToSend, begun, end, workers=[elsewhere], key="columns")
        task = client.submit(_type_of, columns, workers=[here], key="task")
        wait_until(begun.exists)
        client.run_on_scheduler(_finish_late, "columns", here)
        # This reaches the worker after the messages sent to it before.
        assert client.submit(int, workers=[here], key="later").result(timeout=60) == 0
        end.touch()
        assert task.result(timeout=60) == "_SlowToSend"
    del columns, task
    assert_clean(client)


class _SlowToSend:
    """A result whose transfer lasts until a file exists."""

    def __init__(self, begun: Path, end: Path) -> None:
        self._begun, self._end = begun, end

    def __reduce__(self) -> Any:
        self._begun.touch()
        wait_until(self._end.exists, seconds=30)
        return _SlowToSend, (self._begun, self._end)


def _type_of(data: Any) -> str:
    return type(data).__name__


def _finish_late(key: str, worker: str, dask_scheduler: Any) -> None:
    """Report an earlier run of a task to the scheduler."""
    dask_scheduler.handle_task_finished(key=key, worker=worker, stimulus_id="late", run_id=-1, metadata={})


def test_an_actor_that_is_given_up_before_it_is_made_leaves_no_trace(client: Client, tmp_path: Path) -> None:
    """Like one whose worker is stopped; Dask does not retire workers that have an actor in the scheduler's list."""
    client.register_plugin(FitRegistry())
    with dask.annotate(**belonging("dtrees-fit-6")):
        actor = client.submit(_work, tmp_path / "begun", tmp_path / "end", actor=True, key="dtrees-actor")
    wait_until((tmp_path / "begun").exists)
    actor.cancel()
    wait_until(lambda: not client.run_on_scheduler(_known))
    (tmp_path / "end").touch()
    assert_clean(client)


def _known(dask_scheduler: Any) -> list[str]:
    return list(map(str, dask_scheduler.tasks))


def _hold_to_be_silent(fit: str, worker: str, dask_scheduler: Any) -> None:
    registry = dask_scheduler.plugins[FitRegistry.name]
    registry._move(registry._records[fit], [worker])


class _Stop:
    """A callback that stops a worker's process: the coordinator's, or another."""

    def __init__(self, process: int, marker: Path) -> None:
        self._process, self._marker = process, marker

    def __call__(self, progress: Any) -> None:
        if progress.done == 3 and not self._marker.exists():
            self._marker.touch()
            os.kill(self._process, signal.SIGSTOP)


def _same(data: str) -> str:
    return data


def _work(begun: Path, end: Path, data: Any = None) -> int:
    secede()  # the worker has one thread, which the fit needs too
    with begun.open("a") as file:
        file.write("x")
    while not end.exists():
        time.sleep(0.05)
    return os.getpid()


@pytest.mark.slow
def test_all_workers_are_silent() -> None:
    """A fit reports this, and ends."""
    with cluster_of(1) as client:
        (process,) = client.run(os.getpid).values()
        with dask.config.set({"dtrees.patience": 2.0}):
            future = dtrees.submit(boosting(10**6), *training_set())
            wait_until(lambda: bool(events(client, "round", future.key)))
            os.kill(process, signal.SIGSTOP)
            try:
                with pytest.raises(WorkerLost, match="1 workers, none of which shows signs of life"):
                    FutureWaiter(client).gather([future])
            finally:
                os.kill(process, signal.SIGCONT)
            future.cancel()
            assert_clean(client)
