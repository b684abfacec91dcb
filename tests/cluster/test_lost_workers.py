"""Loss of more workers than can be replaced, and of schedulers: an error, never a hang; recovery without nannies; random faults."""

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import pytest
from dask import delayed
from distributed import Client, get_client, get_task_stream, get_worker

import dtrees
from benchmarks.works.chaos import KINDS, Chaos, Outcome, cluster_to_break, script, works
from dtrees.cluster.errors import SchedulerLost, WorkerLost
from dtrees.cluster.growing import fits
from tests.cluster.clusters import cluster_of, process
from tests.cluster.samples import (
    FRAME,
    LENGTHS,
    REGRESSION,
    assert_clean,
    assert_goes_on,
    assert_same_model,
    events,
    going_on,
    in_partitions,
    training_set,
    wait_until,
    weights,
)
from tests.slow import one_quick

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("sharded")]

# --- loss of more workers than can be replaced, and of schedulers: an error, never a hang; recovery without nannies ---


@pytest.fixture
def impatient() -> Iterator[None]:
    """Workers count as lost after a few seconds of silence, so that the tests are fast."""
    with dask.config.set({"dtrees.patience": 3.0}):
        yield


def after(n_done: int, act: Callable[[], Any]) -> Callable[[Any], None]:
    """Return a callback that acts after ``n_done`` trees or rounds."""

    def callback(progress: Any) -> None:
        if progress.done == n_done:
            act()

    return callback


@pytest.mark.slow
def test_one_worker_takes_over_and_gives_back(no_nannies: Client, tmp_path: Path) -> None:
    """Without a spare worker, one holds two shards until another worker joins."""
    marker = tmp_path / "stop"
    future, coordinator = going_on(no_nannies, marker)
    key = future.key
    (placed,) = events(no_nannies, "placed", key)
    first, second = placed["workers"]
    victim, other = (second, first) if coordinator == first else (first, second)
    os.kill(no_nannies.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
    wait_until(lambda: bool(events(no_nannies, "shard moved", key)))
    (moved,) = events(no_nannies, "shard moved", key)
    assert moved["to"] == other
    with process("dask_worker", no_nannies.scheduler.address, "--no-nanny", "--nthreads", "1"):
        wait_until(lambda: len(events(no_nannies, "shard moved", key)) > 1, 40)
        assert events(no_nannies, "shard moved", key)[1]["to"] not in (first, second)
        assert_goes_on(no_nannies, future, marker)
        future.release()
        assert_clean(no_nannies)


def test_a_worker_that_joins_grows_trees_of_a_forest_whose_columns_are_on_each(no_nannies: Client, tmp_path: Path) -> None:
    go_on, there = tmp_path / "go on", set(no_nannies.nthreads())
    no_nannies.run(_grow_when, go_on)
    make = functools.partial(dtrees.RandomForestRegressor, 64, max_depth=3, random_state=0)
    future = dtrees.submit(make(), *training_set(), placement="replicated")
    with (
        process("dask_worker", no_nannies.scheduler.address, "--no-nanny", "--nthreads", "1"),
        get_task_stream(no_nannies) as stream,
    ):
        wait_until(lambda: _grows(no_nannies, there), 120)
        go_on.touch()
        assert_same_model(future.result(timeout=60), make().fit(FRAME, REGRESSION))
    assert any(task["worker"] not in there and str(task["key"]).startswith("dtrees-trees-") for task in stream.data)
    future.release()
    assert_clean(no_nannies)


def _grows(client: Client, others: set[str]) -> bool:
    """Return whether a worker other than ``others`` should grow trees."""
    return any(str(key).startswith("dtrees-trees-") for worker, keys in client.processing().items() if worker not in others for key in keys)


def _grow_when(marker: Path) -> None:
    """Keep this process from growing trees of a forest until a file exists."""
    grow = fits._grow_batch

    def wait_and_grow(*args: Any) -> Any:
        wait_until(marker.exists)
        return grow(*args)

    fits._grow_batch = wait_and_grow


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["GradientBoostingRegressor", "RandomForestRegressor"])
@pytest.mark.slow
def test_no_workers_left(no_nannies: Client, name: str) -> None:
    processes = no_nannies.run(os.getpid)

    def kill_all() -> None:
        for victim in sorted(processes.values(), key=lambda victim: victim == os.getpid()):
            os.kill(victim, signal.SIGKILL)

    with pytest.raises(WorkerLost, match="no workers left"):
        getattr(dtrees, name)(n_estimators=400).fit(*training_set(), callbacks=[after(1, kill_all)])


@pytest.mark.parametrize("name", one_quick(["GradientBoostingRegressor", "RandomForestRegressor"]))
def test_the_scheduler_is_lost(name: str, tmp_path: Path) -> None:
    file = str(tmp_path / "scheduler.json")
    options = ["--scheduler-file", file]
    with (
        process("dask_scheduler", "--port", "0", *options) as scheduler,
        process("dask_worker", "--no-nanny", *options),
        Client(scheduler_file=file, set_as_default=False, timeout=5) as client,
        client.as_current(),
    ):
        client.wait_for_workers(1, timeout=30)
        process_id = scheduler.pid
        kill = after(2, lambda: os.kill(process_id, signal.SIGKILL))
        with pytest.raises(SchedulerLost, match=r"[Rr]un it again"):
            getattr(dtrees, name)(n_estimators=2000).fit(*training_set(), callbacks=[kill])


def test_the_first_worker_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """However long it takes: workers of an adaptive cluster come when there are tasks, those of a queue when it is their turn."""
    with cluster_of(0) as client, dask.config.set({"dtrees.patience": 0.5}), ThreadPoolExecutor() as pool:
        fitting = pool.submit(dtrees.DecisionTreeRegressor().fit, *training_set(), client=client)
        time.sleep(2.0)
        assert not fitting.done()
        assert caplog.text.count("waits for a first worker") == 1
        client.cluster.scale(1)
        assert fitting.result(timeout=60).get_depth() > 1


@pytest.mark.parametrize(
    ("name", "when"), [("X", "before"), ("X", "meanwhile"), ("y", "meanwhile"), ("sample_weight", "before"), ("eval_set", "before")]
)
@pytest.mark.slow
def test_scattered_data_is_lost(no_nannies: Client, name: str, when: str) -> None:
    """It cannot be recomputed; the error names the argument."""
    X, y = training_set()
    given = {"X": X, "y": y, "sample_weight": in_partitions(weights(), LENGTHS[3])}
    local = {"X": FRAME, "y": REGRESSION, "sample_weight": weights(), "eval_set": FRAME}[name]
    holder, other = sorted(no_nannies.nthreads())
    chunks = no_nannies.scatter([local.iloc[:200], local.iloc[200:]], workers=[holder])
    scattered = dd.from_delayed([delayed(chunk) for chunk in chunks], meta=local.iloc[:0], verify_meta=False)
    if name == "eval_set":
        given["eval_set"] = [(scattered, in_partitions(REGRESSION, [200, 220]))]
    else:
        given = {key: in_partitions(values, [200, 220]) for key, values in zip(given, (FRAME, REGRESSION, weights()), strict=True)}
        given[name] = scattered
    victim = no_nannies.run(os.getpid, workers=[holder])[holder]
    if when == "before":
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: list(no_nannies.nthreads()) == [other])
    else:
        given["callbacks"] = [functools.partial(_kill, victim)]
    with pytest.raises(WorkerLost, match=rf"^{name} is lost in part: 2 of the 2 futures .* client\.scatter\. .* broadcast=True"):
        dtrees.GradientBoostingRegressor(n_estimators=20).fit(**given)
    del chunks, scattered, given, X, y
    assert_clean(no_nannies)


def _kill(process: int, progress: Any) -> None:
    if progress.done == 3:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_runs_out_of_memory(tmp_path: Path) -> None:
    """Something else on it takes all its memory; its nanny ends it, and starts it again."""
    marker, hungry = tmp_path / "stop", tmp_path / "hungry"
    looks = {"distributed.worker.memory.pause": False, "distributed.worker.memory.monitor-interval": "100ms"}
    with dask.config.set(looks), cluster_of(2, memory_limit="1200MB") as client:
        future, coordinator = going_on(client, marker)
        victim = next(worker for worker in client.nthreads() if worker != coordinator)
        eaten = client.submit(_eat, hungry, 1200, workers=[victim], allow_other_workers=True)
        wait_until(lambda: bool(events(client, "shards lost", future.key)))
        assert list(events(client, "shards lost", future.key)[0]["workers"]) == [victim]
        eaten.release()
        assert_goes_on(client, future, marker)
        future.release()
        assert_clean(client)


def _eat(marker: Path, megabytes: int) -> None:
    """Use more and more memory, once, until the nanny reacts."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        eaten = [b"x" * 10**6 for _ in range(megabytes)]
        wait_until(lambda: not eaten, 60)


@pytest.mark.slow
def test_the_client_restarts_a_worker(tmp_path: Path) -> None:
    marker = tmp_path / "stop"
    with cluster_of(2) as client:
        future, coordinator = going_on(client, marker)
        another = next(worker for worker in client.nthreads() if worker != coordinator)
        process_id = client.run(os.getpid, workers=[another])[another]
        client.restart_workers([another], timeout=60)
        assert process_id not in client.run(os.getpid).values()
        assert_goes_on(client, future, marker)
        future.release()
        assert_clean(client)


@pytest.mark.slow
def test_no_memory_left_for_what_was_lost() -> None:
    """The only other worker has memory for its own columns, but not for those of the lost one."""
    with cluster_of(0) as client, contextlib.ExitStack() as stack:
        for _ in range(2):
            options = ("--no-nanny", "--nthreads", "1", "--memory-limit", "2GB")
            stack.enter_context(process("dask_worker", client.scheduler.address, *options))
        client.wait_for_workers(2, timeout=60)
        processes = client.run(os.getpid)
        with (
            dask.config.set({"dtrees.patience": 8.0}),
            pytest.raises(WorkerLost, match=r"Lost tcp.*, which held \d of 6 columns, 0 MB, and none of the 1 workers left has the memory"),
        ):
            dtrees.GradientBoostingRegressor(n_estimators=400).fit(
                *training_set(), callbacks=[functools.partial(_fill_and_kill, processes)]
            )
        assert_clean(client)


def _fill_and_kill(processes: dict[str, int], progress: Any) -> None:
    """Make the scheduler believe that this worker is full, and kill the other."""
    if progress.done == 3:
        here = get_client()
        here.run_on_scheduler(_fill, get_worker().address)
        for victim in processes.values():
            if victim != os.getpid():
                os.kill(victim, signal.SIGKILL)


def _fill(address: str, dask_scheduler: Any) -> None:
    dask_scheduler.workers[address].memory_limit = 1


# --- random faults, a short form of the benchmark: workers are killed, stopped, restarted and retired while models are fitted ---


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_models_are_the_same_whatever_happens_to_workers() -> None:
    quick = {kind: weight for kind, weight in KINDS.items() if kind != "stop for long"}  # a long stop takes the patience to be detected
    faults = script(seed=5, seconds_between=0.5, kinds=quick)
    outcome = Outcome()
    with cluster_to_break(3) as (cluster, client):
        broken = Chaos(cluster, client, 3, n_rows=300)
        for work in works(size=1)[:2]:
            broken.fit(work, faults, outcome, most=2)
            assert outcome.different == 0, work.name
        assert broken.left_over() == []
    assert outcome.n_fits == 2
    assert outcome.faults.total() > 0


def test_scripts_are_the_same_for_the_same_seed() -> None:
    one, again, other = (script(seed, 1.0) for seed in (0, 0, 1))
    faults = [next(one) for _ in range(100)]
    assert faults == [next(again) for _ in range(100)]
    assert faults != [next(other) for _ in range(100)]
    assert {fault.kind for fault in faults} == set(KINDS)
