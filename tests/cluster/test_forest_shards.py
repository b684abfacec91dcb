"""Forests over column shards on a cluster: the local forest, byte for byte, whoever is lost meanwhile."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import dtrees
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.reliability.local_callback import local_callback
from dtrees.engine.shard.tree_state import TreeState
from tests.cluster.faults import Fault, install, stopped, uninstall
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, events, in_partitions, table, targets, wait_until, weights
from tests.slow import level_by_level, one_quick

FRAME = table()
TARGETS = targets(FRAME)
WEIGHTS = weights()

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("sharded"),
    pytest.mark.filterwarnings("ignore:Some inputs do not have OOB"),
]

MODELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "forest": ("regression", lambda: dtrees.RandomForestRegressor(9, random_state=1)),
    "out of bag": (  # without sets of categories, whose nodes are not delegated
        "multiclass",
        lambda: dtrees.RandomForestClassifier(9, oob_score=True, max_samples=0.6, categorical_features=None, random_state=2),
    ),
    "weights": ("binary", lambda: dtrees.ExtraTreesClassifier(5, class_weight="balanced", max_leaf_nodes=20, random_state=3)),
    "absolute": ("regression", lambda: dtrees.RandomForestRegressor(3, criterion="absolute_error", max_features=0.5, random_state=4)),
    "one tree": ("regression", lambda: dtrees.DecisionTreeRegressor(min_impurity_decrease=1e-3, random_state=5)),
}


def training_set(task: str) -> tuple[Any, Any]:
    return in_partitions(FRAME, LENGTHS[3]), in_partitions(TARGETS[task], LENGTHS[3])


@functools.cache
def fitted_here(name: str) -> Any:
    task, make = MODELS[name]
    return make().fit(FRAME, TARGETS[task])


def fit(name: str, **options: Any) -> Any:
    task, make = MODELS[name]
    return make().fit(*training_set(task), **options)


@pytest.fixture
def client(mortal_client: Client) -> Client:
    """The current client in the test."""
    return mortal_client


@pytest.mark.parametrize("name", one_quick(MODELS))
def test_the_same_forest(client: Client, name: str) -> None:
    task, make = MODELS[name]
    assert_same_model(fit(name), fitted_here(name))
    assert {"Many", "Advance"} & {event["message"] for event in events(client, "exchange")}
    with dask.config.set({"dtrees.placement": "auto"}):
        assert_same_model(fit(name), fitted_here(name))
    weighted = make().fit(*training_set(task), in_partitions(WEIGHTS, LENGTHS[3]))
    assert_same_model(weighted, make().fit(FRAME, TARGETS[task], WEIGHTS))
    assert_clean(client)


@pytest.mark.parametrize(("kind", "at"), [("Begin", 1), ("Many", 1), ("Many", 5), ("Many", 8)])
@pytest.mark.parametrize("name", ["forest", "out of bag"])
@pytest.mark.slow
def test_a_worker_is_killed(client: Client, tmp_path: Path, name: str, kind: str, at: int) -> None:
    fault = Fault(tmp_path, kind, at=at)
    install(client, fault)
    assert_same_model(fit(name), fitted_here(name))
    assert len(stopped(fault)) == 1
    assert_clean(client)


@pytest.mark.slow
def test_two_are_killed_at_once(client: Client, tmp_path: Path) -> None:
    install(client, Fault(tmp_path, "Many", at=8, times=2))
    assert_same_model(fit("out of bag"), fitted_here("out of bag"))
    assert_clean(client)


@pytest.mark.parametrize("name", ["forest", "out of bag"])
@pytest.mark.slow
def test_the_coordinators_worker_is_killed(client: Client, tmp_path: Path, name: str) -> None:
    """The fit is run again elsewhere; where only trees are wanted, it finds those that were finished."""
    fault = Fault(tmp_path, "Many", at=12, own=True)
    install(client, fault)
    task, make = MODELS[name]
    many = make().set_params(n_estimators=130)
    assert_same_model(many.fit(*training_set(task)), make().set_params(n_estimators=130).fit(FRAME, TARGETS[task]))
    assert len(stopped(fault)) == 1
    assert_clean(client)


@pytest.mark.slow
def test_too_many_are_lost(client: Client, tmp_path: Path) -> None:
    install(client, Fault(tmp_path, "Many", at=5), Fault(tmp_path, "Begin", at=2))
    with dask.config.set({"dtrees.max-restarts": 0}), pytest.raises(WorkerLost, match=r"0 times already .* max_restarts"):
        fit("forest")
    assert_clean(client)
    uninstall(client)
    assert_same_model(fit("forest"), fitted_here("forest"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_one_worker_is_the_only_shard(cluster_of_1: LocalCluster, name: str) -> None:
    with Client(cluster_of_1, set_as_default=False) as client, client.as_current():
        fitted = fit(name)
        assert (fitted.placement_.kind, len(fitted.placement_.workers)) == ("sharded", 1)
        assert_same_model(fitted, fitted_here(name))
        assert_clean(client)


@pytest.mark.parametrize("n_workers", [1, 3])
@pytest.mark.slow
def test_a_worker_without_memory(client: Client, cluster_of_1: LocalCluster, n_workers: int) -> None:
    """The error comes as it was raised, nothing is left, and the cluster can be used."""
    with contextlib.ExitStack() as stack:
        if n_workers == 1:
            client = stack.enter_context(Client(cluster_of_1, set_as_default=False))
            stack.enter_context(client.as_current())
        worker = min(client.nthreads())
        client.run(_have_no_memory, workers=[worker])
        try:
            with pytest.raises(MemoryError, match="Unable to allocate") as caught:
                fit("out of bag")
            assert any(worker in note for note in caught.value.__notes__)
            assert_clean(client)
        finally:
            client.run(_have_memory, workers=[worker])
        assert_same_model(fit("out of bag"), fitted_here("out of bag"))


def test_nodes_are_grown_though_a_helper_compiles(five_threads: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are threads of the client's process share its helper, and a node set aside has no other way to grow meanwhile."""
    model = dtrees.RandomForestRegressor(3, categorical_features=None, random_state=1)
    grown, delegated = [], TreeState.grow_delegated

    def grow(*given: Any) -> Any:
        grown.append(given)
        return delegated(*given)

    monkeypatch.setattr(TreeState, "grow_delegated", grow)
    with level_by_level():
        here = dtrees.RandomForestRegressor(**model.get_params()).fit(FRAME, TARGETS["regression"])
        assert_same_model(model.fit(*training_set("regression")), here)
    assert grown


def _have_no_memory() -> None:
    def grow(self: TreeState, nodes: Any, shared: Any) -> Any:
        return np.empty(2**50)

    grow.whole = TreeState.grow_delegated  # type: ignore[attr-defined]
    TreeState.grow_delegated = grow  # type: ignore[method-assign]


def _have_memory() -> None:
    TreeState.grow_delegated = TreeState.grow_delegated.whole  # type: ignore[attr-defined,method-assign]


@pytest.mark.slow
def test_cancelling_frees_everything(client: Client, tmp_path: Path) -> None:
    marker = tmp_path / "begun"
    future = dtrees.submit(
        dtrees.RandomForestRegressor(10**5), *training_set("regression"), callbacks=[lambda progress: marker.touch()], client=client
    )
    wait_until(marker.exists)
    future.cancel()
    assert_clean(client)


@pytest.mark.parametrize("name", one_quick(["out of bag", "forest"]))
def test_callbacks_hear_of_trees_in_order_and_end_the_forest(client: Client, name: str) -> None:
    heard: list[int] = []
    with local_callback(lambda progress: heard.append(progress.done)) as hear:
        model = fit(name, callbacks=[hear, lambda progress: progress.done == 4])
    task, make = MODELS[name]
    assert_same_model(model, make().set_params(n_estimators=4).fit(FRAME, TARGETS[task]))
    wait_until(lambda: heard == [1, 2, 3, 4])


@pytest.mark.parametrize("name", one_quick(["out of bag", "forest"]))
def test_a_forest_goes_on_from_a_checkpoint(client: Client, tmp_path: Path, name: str) -> None:
    def fail(progress: Any) -> None:
        if progress.done == 5:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        fit(name, callbacks=[fail], checkpoint=tmp_path / "forest", checkpoint_interval=0)
    assert_same_model(fit(name, checkpoint=tmp_path / "forest"), fitted_here(name))
    assert_clean(client)
