"""Fits on a cluster whose workers are killed, stopped, resumed, restarted, retired and added at random: the model must be the same.

Terms
-----
fault
        an action on a worker (:class:`Fault`). Its kind, worker and time are drawn from a seed; the state of the fit at that time is up
        to chance.
saboteur
    the thread that carries out faults during a fit (:class:`Saboteur`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import dtrees
from benchmarks.cluster import cluster
from benchmarks.results import Measure, Row
from benchmarks.run import Run, benchmark
from dtrees.cluster.transport.clients import threads_of_workers

logger = logging.getLogger("benchmarks")

#: The kinds of faults, and their relative frequencies.
KINDS = {"kill": 4, "kill two": 2, "kill coordinator": 2, "stop shortly": 2, "stop for long": 3, "restart": 2, "retire": 1, "scale": 1}
#: Initial seconds of silence after which a worker counts as lost.
PATIENCE = 5.0
#: Seconds that a disturbed fit may take.
_DEADLINE = 600.0


@dataclass(frozen=True)
class Fault:
    """An action on a worker.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    pause : float
        Seconds after the previous fault.
    victim : float
        The worker, as a share of the list of workers.
    duration : float
        Seconds for which it is stopped, if it is.
    """

    kind: str
    pause: float
    victim: float
    duration: float


def script(seed: int, seconds_between: float, kinds: Mapping[str, int] = KINDS) -> Iterator[Fault]:
    """Yield an endless sequence of faults, the same for the same seed."""
    rng = random.Random(seed)
    while True:
        (kind,) = rng.choices(list(kinds), list(kinds.values()))
        pause, victim = rng.uniform(0.2, 1.8) * seconds_between, rng.random()
        yield Fault(kind, pause, victim, PATIENCE * (rng.uniform(0.1, 0.6) if kind == "stop shortly" else rng.uniform(1.2, 4.0)))


@contextlib.contextmanager
def cluster_to_break(n_workers: int) -> Iterator[tuple[LocalCluster, Client]]:
    """Yield a cluster of processes whose scheduler does not blame tasks for the deaths of workers, and its current client."""
    settings = {
        "dtrees.patience": PATIENCE,
        "dtrees.max-restarts": 10**6,
        "distributed.scheduler.allowed-failures": 10**6,
        "distributed.deploy.lost-worker-timeout": "200ms",
    }
    with dask.config.set(settings), cluster(n_workers) as client:
        yield client.cluster, client


class Saboteur:
    """Carries out faults on a cluster until the with block ends; then stopped workers are resumed.

    Parameters
    ----------
    cluster : LocalCluster
    client : Client
    n_workers : int
        Intended number of workers, up to one more or less by scaling: those that end for good are replaced.
    faults : iterator of Fault
    most : int, optional
        Maximum number of faults.

    Attributes
    ----------
    done : Counter
        Faults by kind.
    """

    def __init__(self, cluster: LocalCluster, client: Client, n_workers: int, faults: Iterator[Fault], most: int | None = None) -> None:
        self.done: Counter[str] = Counter()
        self._cluster, self._client, self._n_workers = cluster, client, n_workers
        self._faults, self._most = faults, most
        self._n_more = 0
        self._over = threading.Event()
        self._asleep: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._run, name="saboteur", daemon=True)

    def __enter__(self) -> Saboteur:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(60)
        for _, process in self._asleep:
            _signal(process, signal.SIGCONT)

    def _run(self) -> None:
        for fault in self._faults:
            due = time.monotonic() + fault.pause
            # Enough workers remain, and have time: otherwise no fit would ever end.
            n_needed = max(3 if fault.kind == "kill two" else 2, self._n_workers - 1)
            while time.monotonic() < due or len(self._processes()) < n_needed:
                if self._over.wait(0.1):
                    return
                self._wake()
                self._cluster.scale(self._n_workers + self._n_more)
            self._act(fault)
            self.done[fault.kind] += 1
            if self.done.total() == self._most:
                break
        while not self._over.wait(0.1):
            self._wake()
            self._cluster.scale(self._n_workers + self._n_more)

    def _processes(self) -> dict[str, int]:
        """Return the addresses and processes of workers that are running and not stopped, in order."""
        known = threads_of_workers(self._client)
        asleep = {process for _, process in self._asleep}
        found = {}
        for nanny in list(self._cluster.workers.values()):
            process = getattr(nanny, "pid", None)
            if nanny.worker_address in known and process is not None and process not in asleep:
                found[nanny.worker_address] = process
        return dict(sorted(found.items()))

    def _coordinator(self) -> str:
        """Return the worker that coordinates the fit; "" before it has begun."""
        running = self._client.processing()
        return next((worker for worker, keys in running.items() if any(str(key).startswith("dtrees-fit") for key in keys)), "")

    def _wake(self) -> None:
        for due, process in list(self._asleep):
            if time.monotonic() > due:
                _signal(process, signal.SIGCONT)
                self._asleep.remove((due, process))

    def _act(self, fault: Fault) -> None:
        processes = list(self._processes().items())
        place = int(fault.victim * len(processes))
        address, process = processes[place]
        if fault.kind.startswith("kill"):
            if fault.kind == "kill coordinator":
                process = dict(processes).get(self._coordinator(), process)
            _signal(process, signal.SIGKILL)
            if fault.kind == "kill two":
                _signal(processes[place - 1][1], signal.SIGKILL)
        elif fault.kind.startswith("stop"):
            _signal(process, signal.SIGSTOP)
            self._asleep.append((time.monotonic() + fault.duration, process))
        elif fault.kind == "scale":
            self._n_more = 1 - self._n_more
        elif fault.kind == "restart":
            with contextlib.suppress(Exception):  # it may have ended before, or take long
                self._client.restart_workers([address], timeout=5, raise_for_error=False)
        else:
            with contextlib.suppress(Exception):
                self._client.retire_workers([address], close_workers=True)


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


@dataclass(frozen=True)
class Work:
    """A fit to disturb: a name, the placement of boosting, the estimator, and options of ``fit``."""

    name: str
    placement: str
    make: Callable[[], Any]
    classify: bool = False
    evaluate: bool = False
    detached: bool = False


def works(size: int) -> list[Work]:
    """Return the fits to disturb; ``size`` multiplies their length."""
    boosting = dtrees.GradientBoostingRegressor
    return [
        Work("boosting over shards", "sharded", lambda: boosting(n_estimators=10 * size, max_depth=4, subsample=0.8, random_state=1)),
        Work("boosting over rows", "rows", lambda: boosting(n_estimators=10 * size, max_depth=4, subsample=0.8, random_state=1)),
        Work("forest", "auto", lambda: dtrees.RandomForestRegressor(60 * size, oob_score=True, max_features=0.5, random_state=2)),
        Work("forest over rows", "rows", lambda: dtrees.RandomForestRegressor(6 * size, max_depth=6, max_features=0.5, random_state=2)),
        Work("bag", "one-worker", lambda: dtrees.BaggingRegressor(boosting(n_estimators=40 * size), n_estimators=4, random_state=5)),
        Work(
            "boosting of three classes, evaluation sets, detached",
            "sharded",
            lambda: dtrees.GradientBoostingClassifier(n_estimators=3 * size, max_depth=3, max_features=0.5, random_state=3),
            classify=True,
            evaluate=True,
            detached=True,
        ),
        Work(
            "boosting on one worker, detached",
            "one-worker",
            lambda: boosting(n_estimators=300 * size, max_depth=6, max_features=0.5, random_state=4),
            detached=True,
        ),
    ]


def make_table(n_rows: int, seed: int) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Return nine columns, with ties, missing values and categories, a target, and classes."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n_rows, 8)), columns=list("abcdefgh"))
    X["b"] = X["b"].round(1)
    X.loc[rng.random(n_rows) < 0.1, "c"] = np.nan
    X["word"] = rng.choice(["ash", "birch", "elm", "oak"], n_rows)
    y = X["a"] + X["b"] * X["d"] + 2.0 * (X["word"] == "elm") + rng.normal(size=n_rows) / 4
    y.name = "y"
    return X, y, pd.Series(np.digitize(y, [-1.0, 1.0]), name="class")


@dataclass
class Outcome:
    """Results of disturbed fits.

    Attributes
    ----------
    n_fits : int
    different : int
        Number of models that differed.
    hung : int
        Number of fits that did not end in time.
    faults : Counter
        Number of faults by kind.
    seconds : float
    """

    n_fits: int = 0
    different: int = 0
    hung: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Chaos:
    """Disturbs fits by a saboteur, and compares the models with those of undisturbed fits in this process.

    Parameters
    ----------
    cluster : LocalCluster
    client : Client
    n_workers : int
    n_rows : int
    """

    def __init__(self, cluster: LocalCluster, client: Client, n_workers: int, n_rows: int) -> None:
        self._cluster, self._client, self._n_workers = cluster, client, n_workers
        self._table, self._held_out = make_table(n_rows, 0), make_table(n_rows // 3, 1)
        self._wanted: dict[str, Any] = {}

    def fit(self, work: Work, faults: Iterator[Fault], outcome: Outcome, most: int | None = None) -> None:
        """Fit once, and add the result to an outcome."""
        X, y = self._table[0], self._table[2 if work.classify else 1]
        if work.name not in self._wanted:
            self._wanted[work.name] = work.make().fit(X, y, **self._options(work, lazy=False))
        began = time.monotonic()
        with Saboteur(self._cluster, self._client, self._n_workers, faults, most) as saboteur:
            placed = {"placement": work.placement, "detached": work.detached, **self._options(work, lazy=True)}
            future = dtrees.submit(work.make(), _lazy(X), _lazy(y), **placed)
            try:
                outcome.different += not same_model(future.result(timeout=_DEADLINE), self._wanted[work.name])
            except TimeoutError:
                outcome.hung += 1
                logger.warning("no end of %s after %.0f s: %s", work.name, _DEADLINE, self._client.run_on_scheduler(_state))
                future.cancel()
            if work.detached:
                dtrees.attach(future.key).release()
            future.release()
        outcome.n_fits += 1
        outcome.faults += saboteur.done
        outcome.seconds += time.monotonic() - began

    def _options(self, work: Work, lazy: bool) -> dict[str, Any]:
        if not work.evaluate:
            return {}
        X, y = self._held_out[0], self._held_out[2 if work.classify else 1]
        return {"eval_set": [(_lazy(X), _lazy(y)) if lazy else (X, y)]}

    def left_over(self) -> list[str]:
        """Return what remains of fits on the cluster after a while: tasks, records, results and actors; it should be empty."""
        deadline = time.monotonic() + 60.0
        while (found := self._left_now()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _left_now(self) -> list[str]:
        on_workers = self._client.run(_on_worker, on_error="ignore")
        return [*self._client.run_on_scheduler(_our_tasks), *(f"{at}: {what}" for at, found in on_workers.items() for what in found)]


def _lazy(data: Any) -> Any:
    return dd.from_pandas(data, npartitions=6)


def _state(dask_scheduler: Any) -> dict[str, Any]:
    """Return the states of workers, of unfinished tasks, and of fits."""
    workers = {address: str(worker.status) for address, worker in dask_scheduler.workers.items()}
    records = dask_scheduler.plugins.get("dtrees-fits")
    waiting = {
        str(key): (task.state, task.processing_on and task.processing_on.address)
        for key, task in dask_scheduler.tasks.items()
        if task.state not in ("memory", "released")
    }
    return {
        "workers": workers,
        "tasks": waiting,
        "fits": {} if records is None else {fit: record.history.state for fit, record in records._records.items()},
    }


def _our_tasks(dask_scheduler: Any) -> list[str]:
    tasks = [str(key) for key in dask_scheduler.tasks if "dtrees" in str(key)]
    tasks += [f"actor {actor.key}" for worker in dask_scheduler.workers.values() for actor in worker.actors]
    holders = [client for client in dask_scheduler.clients if client.startswith("dtrees")]
    records = dask_scheduler.plugins.get("dtrees-fits")
    return tasks + holders + ([] if records is None else list(records._records))


def _on_worker(dask_worker: Any) -> list[str]:
    state = dask_worker.state
    return [f"{task.state} {key}" for key, task in state.tasks.items()] + [f"actor {key}" for key in state.actors]


def same_model(one: Any, other: Any) -> bool:
    """Return whether the files and the out-of-bag predictions of two models are the same, byte for byte."""
    contents = []
    with tempfile.TemporaryDirectory() as folder:
        for model in (one, other):
            dtrees.save(model, Path(folder) / "model")
            out_of_bag = getattr(model, "oob_prediction_", np.empty(0)).tobytes()
            contents.append(((Path(folder) / "model").read_bytes(), out_of_bag))
    return contents[0] == contents[1]


@benchmark("chaos")
def chaos(run: Run) -> Iterator[Row]:
    """Faults survived on a cluster of four: workers killed, stopped, restarted, retired and added at random during fits."""
    n_workers = 4
    size = run.size(tiny=1, small=3, full=6)
    seconds = run.size(tiny=0.0, small=60.0, full=900.0)
    most = run.size(tiny=1, small=None, full=None)
    selected = works(size)[: run.size(tiny=1, small=None, full=None)]
    outcomes = {work.name: Outcome() for work in selected}
    with cluster_to_break(n_workers) as (local, client):
        broken = Chaos(local, client, n_workers, run.size(tiny=300, small=3_000, full=20_000))
        faults = script(0, seconds_between=run.size(tiny=0.1, small=2.0, full=3.0))
        ends = time.monotonic() + seconds
        while True:
            for work in selected:
                broken.fit(work, faults, outcomes[work.name], most)
            if time.monotonic() >= ends:
                break
        left_over = broken.left_over()
    for name, outcome in outcomes.items():
        failed = outcome.different + outcome.hung
        measure, note = Measure(float(outcome.faults.total()), unit="faults survived"), f"{failed} fits failed"
        work = f"chaos, {name}: {outcome.n_fits} fits in {outcome.seconds:.0f} s"
        yield Row(work, measure, note=note if failed else "all models the same")
    yield Row("chaos, afterwards", Measure(float(len(left_over)), unit="tasks left"))
    for kind, number in sorted(sum((outcome.faults for outcome in outcomes.values()), Counter[str]()).items()):
        yield Row(f"chaos, of these: {kind}", Measure(float(number), unit="faults"))
