"""Data and models for the tests of this folder."""

import gc
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, Future
from distributed.utils import DequeHandler

import dtrees
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import Columns

N_ROWS = 420


def table(n_rows: int = N_ROWS, seed: int = 0) -> pd.DataFrame:
    """Columns of many kinds, with ties and missing values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "wide": rng.normal(size=n_rows),
            "narrow": rng.normal(size=n_rows).astype(np.float32),
            "count": rng.integers(0, 12, n_rows),
            "flag": rng.random(n_rows) < 0.3,
            "rounded": rng.normal(size=n_rows).round(1),
            "word": rng.choice(["ash", "birch", "elm", "oak"], n_rows),
        }
    )
    frame.loc[rng.random(n_rows) < 0.1, "wide"] = np.nan
    frame.loc[rng.random(n_rows) < 0.1, "word"] = None
    return frame


def numbers(frame: pd.DataFrame) -> np.ndarray:
    """The columns that an array can hold."""
    return frame.drop(columns="word").to_numpy(dtype=np.float64)


def targets(frame: pd.DataFrame, seed: int = 1) -> dict[str, pd.Series]:
    """A target for each task."""
    rng = np.random.default_rng(seed)
    value = 2 * frame["wide"].fillna(0) + frame["count"] / 3 + 1.5 * (frame["word"] == "elm") + rng.normal(size=len(frame)) / 5
    value.name = "value"
    return {
        "regression": value,
        "amounts": np.exp(value / 4),
        "binary": (value > value.median()).map({True: "yes", False: "no"}),
        "multiclass": pd.cut(value, 4, labels=False),
    }


def weights(n_rows: int = N_ROWS, seed: int = 2) -> pd.Series:
    """Weights, zeros among them."""
    return pd.Series(np.random.default_rng(seed).integers(0, 4, n_rows) / 2)


def in_partitions(data: pd.DataFrame | pd.Series, lengths: list[int]) -> Any:
    """A Dask frame with partitions of given lengths (some may be 0), and unknown divisions."""
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    assert bounds[-1] == len(data)
    parts = [data.iloc[a:b] for a, b in itertools.pairwise(bounds)]
    return dd.from_map(_identity, parts, meta=data.iloc[:0])


FRAME = table()
NUMBERS = numbers(FRAME)
TARGETS = targets(FRAME)
REGRESSION = TARGETS["regression"]
WEIGHTS = weights()


def training_set(task: str = "regression", n_partitions: int = 3) -> tuple[Any, Any]:
    """Return the columns and a target as Dask collections."""
    return in_partitions(FRAME, LENGTHS[n_partitions]), in_partitions(TARGETS[task], LENGTHS[n_partitions])


def _identity(part: Any) -> Any:
    return part


#: Partitions to try: one, three, seven of which two are empty.
LENGTHS = {1: [420], 3: [100, 20, 300], 7: [0, 60, 1, 199, 0, 80, 80]}


def trees_of(model: Any) -> list[Any]:
    """All trees of a fitted model, in order."""
    return [tree for group in model._trees.groups for tree in group]


def assert_same_model(found: Any, wanted: Any) -> None:
    """Check that models are equal in every bit of every node."""
    found_trees, wanted_trees = trees_of(found), trees_of(wanted)
    assert len(found_trees) == len(wanted_trees)
    assert any(tree.node_count > 1 for tree in wanted_trees)
    for a, b in zip(found_trees, wanted_trees, strict=True):
        for name in a.ARRAYS:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("oob_score_", "oob_prediction_", "oob_decision_function_", "train_score_", "validation_score_", "classes_"):
        if hasattr(wanted, name):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)


def endless(n_estimators: int = 10**6) -> dtrees.GradientBoostingRegressor:
    """Boosting with enough rounds for a fit to last until it is ended."""
    return dtrees.GradientBoostingRegressor(n_estimators=n_estimators, max_depth=3, random_state=0)


def going_on(client: Client, marker: Path) -> tuple[Future, str]:
    """Submit a fit that ends when a file exists; return its future once it has rounds, and the worker that coordinates it."""
    future = dtrees.submit(endless(), *training_set(), callbacks=[lambda progress: marker.exists()])
    wait_until(lambda: len(events(client, "round", future.key)) > 2)
    return future, events(client, "round", future.key)[-1]["worker"]


def assert_goes_on(client: Client, future: Future, marker: Path) -> None:
    """Check that a fit that ends at the marker continues for some rounds; then its model is that of the same rounds in this process."""
    seen = events(client, "round", future.key)[-1]["round"]
    wait_until(lambda: events(client, "round", future.key)[-1]["round"] > seen + 3)
    marker.touch()
    fitted = future.result(timeout=60)
    assert_same_model(fitted, endless(fitted.n_estimators_).fit(FRAME, REGRESSION))


def wait_until(condition: Callable[[], bool], seconds: float = 150.0) -> None:
    """Wait for a condition, and fail if it does not become true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.02)


def events(client: Client, what: str, fit: str | None = None) -> list[dict[str, Any]]:
    """The events of a kind that a fit, by default the last, has sent."""
    sent = [event for _, event in client.get_events("dtrees-exchange" if what == "exchange" else "dtrees")]
    fit = fit or sent[-1]["fit"]
    return [event for event in sent if event["fit"] == fit and event["what"] == what]


def assert_clean(client: Client, *, in_processes: bool = True) -> None:
    """Check that nothing of fits is left on the cluster, after the test has released its results and data.

    The scheduler has no task, client request or published data; workers have no task, result or actor, nor, if they are processes, a
    table that is still referenced.
    """
    try:
        wait_until(lambda: not _left_over(client, in_processes))
    except AssertionError as error:
        raise AssertionError(f"left over: {_left_over(client, in_processes)}") from error


def _left_over(client: Client, in_processes: bool) -> list[str]:
    on_scheduler = client.run_on_scheduler(_left_on_scheduler)
    if on_scheduler:
        return list(on_scheduler)
    # A worker may be about to end.
    on_workers = client.run(_left_on_worker, in_processes, on_error="ignore")
    return [f"{worker}: {what}" for worker, found in on_workers.items() for what in found]


def _left_on_scheduler(dask_scheduler: Any) -> list[str]:
    tasks = [
        f"{key} ({ts.state}, wanted by {[client.client_key for client in ts.who_wants or ()]})" for key, ts in dask_scheduler.tasks.items()
    ]
    actors = [str(actor) for worker in dask_scheduler.workers.values() for actor in worker.actors]
    holders = [client for client in dask_scheduler.clients if client.startswith("dtrees")]
    plugin = dask_scheduler.plugins.get("dtrees-fits")
    records = [f"record of {fit}" for fit in (plugin._records if plugin is not None else ())]
    return tasks + actors + holders + records + [f"published {name}" for name in dask_scheduler.extensions["publish"].datasets]


def _left_on_worker(in_processes: bool, dask_worker: Any) -> list[str]:
    state = dask_worker.state
    found = [f"task {key} ({task.state})" for key, task in state.tasks.items()]
    found += [f"result {key}" for key in state.data] + [f"actor {key}" for key in state.actors]
    if found or not in_processes:
        return found
    DequeHandler.clear_all_instances()  # Dask's log stores the last errors of connections, with all objects that their frames refer to
    gc.collect()  # tracebacks and their frames are reference cycles
    return [f"a {type(item).__name__}" for item in gc.get_objects() if type(item) in (Columns, Shard)]


def records(client: Client) -> dict[str, dict[str, Any]]:
    """Return the state, the turns and the number of stored trees of each fit that has a record on the scheduler."""
    found: dict[str, dict[str, Any]] = client.run_on_scheduler(_records)
    return found


def _records(dask_scheduler: Any) -> dict[str, dict[str, Any]]:
    known = dask_scheduler.plugins["dtrees-fits"]._records
    return {fit: {"state": one.history.state, "turns": one.turns, "n_trees": len(one.trees)} for fit, one in known.items()}
