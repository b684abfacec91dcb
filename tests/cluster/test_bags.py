"""Bags on a cluster: each booster is a task, and the bag equals that of one process, byte for byte, also after a worker was lost."""

import functools
import os
import signal
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from scipy.sparse import csr_array

import dtrees
from dtrees.cluster.data.memory import Sizes, WorkerCapacity
from dtrees.cluster.data.placement import place
from dtrees.cluster.errors import NotEnoughMemory
from tests.cluster.samples import FRAME, LENGTHS, TARGETS, WEIGHTS, assert_clean, events, in_partitions, numbers

pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")]


def make(task: str) -> Any:
    if task == "regression":
        booster: Any = dtrees.GradientBoostingRegressor(n_estimators=6, max_depth=4, subsample=0.8, n_iter_no_change=4)
        return dtrees.BaggingRegressor(booster, 5, oob_score=True, random_state=1)
    booster = dtrees.GradientBoostingClassifier(n_estimators=3, max_depth=4, max_features=0.5)
    return dtrees.BaggingClassifier(booster, 4, oob_score=True, random_state=1)


@functools.cache
def wanted(task: str) -> dict[str, bytes]:
    return found(make(task).fit(FRAME, TARGETS[task], WEIGHTS))


def found(bag: Any) -> dict[str, bytes]:
    """Return all results of a fit as bytes."""
    metadata, arrays = bag._to_state()
    out_of_bag = bag.oob_prediction_ if hasattr(bag, "oob_prediction_") else bag.oob_decision_function_
    return {"facts": repr(metadata).encode(), "oob": out_of_bag.tobytes()} | {name: array.tobytes() for name, array in arrays.items()}


def collections(task: str, n_parts: int) -> tuple[Any, Any, Any]:
    X, y, weight = (in_partitions(data, LENGTHS[n_parts]) for data in (FRAME, TARGETS[task], WEIGHTS))
    return X, y, weight


@pytest.mark.parametrize(
    ("task", "placement", "n_parts"),
    [
        ("regression", "replicated", 7),
        pytest.param("multiclass", "one-worker", 3, marks=pytest.mark.slow),
        pytest.param("multiclass", "auto", 1, marks=pytest.mark.thorough),
    ],
)
def test_the_bag_of_one_process(client: Client, task: str, placement: str, n_parts: int) -> None:
    X, y, weight = collections(task, n_parts)
    bag = make(task).fit(X, y, weight, placement=placement)
    assert found(bag) == wanted(task)
    assert bag.placement_.kind == ("replicated" if placement == "auto" else placement)
    batches = events(client, "batch")
    assert [event["trees"] for event in batches] == [1] * bag.n_estimators
    here = make(task).fit(FRAME, TARGETS[task], WEIGHTS)
    lazy = bag.predict(X)
    assert dask.is_dask_collection(lazy)
    assert lazy.compute().tolist() == here.predict(FRAME).tolist()
    assert bag.score(X, y) == here.score(FRAME, TARGETS[task])
    if task == "multiclass":
        np.testing.assert_array_equal(bag.predict_proba(X).compute(), here.predict_proba(FRAME))
    assert_clean(client)


@pytest.mark.parametrize("blocks", ["frames", pytest.param("sparse", marks=pytest.mark.slow)])
def test_a_worker_is_lost(mortal_client: Client, tmp_path: Path, blocks: str) -> None:
    """While all workers grow boosters."""
    processes, killed = mortal_client.run(os.getpid), tmp_path / "killed"

    def kill_another(progress: Any) -> None:
        if not killed.exists():
            killed.touch()
            os.kill(next(process for process in processes.values() if process != os.getpid()), signal.SIGKILL)

    here: Any
    there: Any
    if blocks == "frames":
        here, there = (FRAME, TARGETS["regression"], WEIGHTS), collections("regression", 3)
    else:
        X, y = csr_array(numbers(FRAME)), TARGETS["regression"].to_numpy()
        here, there = (X, y), (da.from_array(numbers(FRAME), chunks=(90, 3)).map_blocks(csr_array), da.from_array(y, chunks=90))
    bag = make("regression").fit(*there, callbacks=[kill_another], placement="replicated")
    assert killed.exists()
    assert found(bag) == found(make("regression").fit(*here))


def test_what_has_no_room_for_the_whole_table_is_refused(client: Client) -> None:
    bag = make("regression")
    with pytest.raises(ValueError, match="placement is 'sharded', but X is for a bag, .* wants one of auto, one-worker, replicated"):
        bag.fit(*collections("regression", 3), placement="sharded")
    sizes = Sizes(1_000_000, (9_000_000,) * 28, 8_000_000, 14_000_000)
    small, large = WorkerCapacity(1, 3e8), WorkerCapacity(1, 1e9)
    assert place(sizes, {"a": small, "b": large}, n_trees=10, only_whole=True).placement.kind == "one-worker"
    with pytest.raises(NotEnoughMemory, match="does not fit") as refused:
        place(sizes, {"a": small, "b": small}, n_trees=10, only_whole=True)
    assert "sharded" not in str(refused.value)


def test_without_a_cluster() -> None:
    numbers = np.random.default_rng(0).normal(size=(200, 3))
    bag = dtrees.BaggingRegressor(dtrees.GradientBoostingRegressor(n_estimators=3), 2, random_state=0)
    expected = bag.fit(numbers, numbers[:, 0]).predict(numbers)
    lazy = da.from_array(numbers, chunks=(70, 3))
    np.testing.assert_array_equal(bag.fit(lazy, lazy[:, 0]).predict(lazy).compute(), expected)
